"""Converts anything from a scenario, a library or an exception into plain JSON.

Another process reads a rank's record, so it contains only short texts, finite numbers, lists and
mappings.  The text of a stack's object may raise, never end, or not be text at all: the record then
says so instead, and the rest of the record is not affected.
"""

from __future__ import annotations

import contextlib
import math
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

# A message can hold whole tensors; so much of a text is kept.
LONGEST = 20_000
# Of a value that is no text: items and characters together, and how deep they may lie.
ROOM, DEEPEST = 500_000, 12
# Beyond this Python refuses to write an integer as text.
BITS = 4096
NAME_OF_TYPE = type.__dict__["__name__"].__get__


class _TooLong(BaseException):
    """Interrupts code that makes a text; nothing that it catches in good faith."""


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Interrupts Python code below it again and again once it takes longer (main thread only).

    For code of others that makes a text.  :func:`text` says so in the place of the text.
    """

    def interrupt(*_: Any) -> None:
        raise _TooLong

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, interrupt)
    running = signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *running)
        signal.signal(signal.SIGALRM, before)


def text(value: Any, longest: int = LONGEST) -> str:
    """A value as text that can be written as UTF-8, cut to a length."""
    try:
        made = value if isinstance(value, str) else str(value)
        # Through the type: a subclass of str may say anything of itself.
        whole = str.__getitem__(made, slice(longest + 1))
    except BaseException as error:
        return f"<no text of this {type_of(value)} can be made: {type_of(error)}>"
    if not whole.isascii():
        # Halves of pairs belong together; what stays alone cannot be written.
        whole = whole.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return whole if len(whole) <= longest else whole[: longest - 1] + "…"


def type_of(value: Any) -> str:
    """The name of a value's type, whatever its metaclass says."""
    return text(str.__str__(NAME_OF_TYPE(type(value))), 200)


def plain(value: Any) -> Any:
    """The value as JSON can hold it: mappings by text, lists, texts, finite numbers, None."""
    return _Keeping().kept(value, DEEPEST)


class _Keeping:
    """Copies one value, as long as there is room: what refers to itself comes to an end, too."""

    def __init__(self) -> None:
        self._room = ROOM

    def kept(self, value: Any, depth: int) -> Any:
        self._room -= 1
        if self._room < 0:
            return "<more than is kept>"
        if value is None or value is True or value is False:
            return value
        try:
            return self._copy(value, depth)
        except BaseException as error:  # one of somebody's own classes
            return f"<this {type_of(value)} cannot be read: {type_of(error)}>"

    def _copy(self, value: Any, depth: int) -> Any:
        if isinstance(value, int):
            number = int.__index__(value)
            bits = number.bit_length()
            return number if bits <= BITS else f"<an integer of {bits} bits>"
        if isinstance(value, float):
            real = float.__float__(value)
            return real if math.isfinite(real) else str(real)
        if isinstance(value, Mapping):
            return self._mapping(value, depth)
        if isinstance(value, (list, tuple, set, frozenset)):
            return self._sequence(value, depth)
        return self._text(value)

    def _text(self, value: Any) -> str:
        said = text(value, min(LONGEST, max(self._room, 100)))
        self._room -= len(said)
        return said

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> Any:
        if depth == 0:
            return "<deeper than is kept>"
        found: dict[str, Any] = {}
        for key in value:
            found[self._text(key)] = self.kept(value[key], depth - 1)
            if self._room < 0:
                break
        return found

    def _sequence(self, value: Iterable[Any], depth: int) -> Any:
        if depth == 0:
            return "<deeper than is kept>"
        found: list[Any] = []
        for one in value:
            found.append(self.kept(one, depth - 1))
            if self._room < 0:
                break
        return found
