"""What an exception looked like: type, message, raising place and the frames before it.

The harness decides from these alone whether a failure is the known one, so they are recorded
unchanged, with paths shortened to ``package/module.py`` to be equal on every machine.  Exceptions
are objects of the stack: whatever their methods raise or return, :func:`describe` gives a record.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from types import FrameType
from typing import Any

from .context import PostConditionFailed
from .plain import LONGEST, at_most, text, type_of

# Attribute look-ups raise inside these; the place of interest is whoever looked the attribute up.
LOOKUP_FUNCTIONS = frozenset({"__getattr__", "__getattribute__"})
# A recursion's way is longer; its beginning and its end are kept.
MOST_FRAMES = 300
# Seconds after which code that makes the text of an exception is interrupted.
PATIENCE = 5.0
# How many exceptions are looked through that led to one.
LONGEST_CHAIN = 100


def _end_of(said: str) -> str:
    return said if len(said) <= 2 * LONGEST else "[...]\n" + said[-2 * LONGEST :]


def package_path(filename: str) -> str:
    """``.../site-packages/trl/trainer/x.py`` → ``trl/trainer/x.py``; other paths keep two parts."""
    path = filename.replace("\\", "/")
    for marker in ("/site-packages/", "/dist-packages/"):
        if marker in path:
            return path.rsplit(marker, 1)[1]
    return "/".join(path.split("/")[-2:])


def frames_of(walked: Iterable[tuple[FrameType, int]]) -> list[dict[str, Any]]:
    """The frames of a walk, outermost first, as ``{file, function, line}``."""
    frames = list(walked)
    if len(frames) > MOST_FRAMES:
        frames = frames[: MOST_FRAMES // 2] + frames[-MOST_FRAMES // 2 :]
    return [
        {
            "file": text(package_path(frame.f_code.co_filename), 1000),
            "function": text(frame.f_code.co_name, 1000),
            "line": line,
        }
        for frame, line in frames
    ]


def raising_place(frames: list[dict[str, Any]]) -> str:
    """``file:function`` of the innermost frame that is not a mere attribute look-up."""
    for frame in reversed(frames):
        if frame["function"] not in LOOKUP_FUNCTIONS:
            return f"{frame['file']}:{frame['function']}"
    return "unknown"


def describe(
    error: BaseException, walked: list[tuple[FrameType, int]] | None = None
) -> dict[str, Any]:
    """The exception as JSON: ``exception, message, where, frames, errnos, traceback``.

    Args:
        walked: the way to where it is made, outermost frame first, if it is not raised yet.
    """
    frames = frames_of(traceback.walk_tb(error.__traceback__) if walked is None else walked)
    with at_most(PATIENCE):
        message = text(error)
        told = _traceback(error, walked)
    return {
        "exception": type_of(error),
        "message": message,
        "where": _place(error, frames),
        "frames": frames,
        "errnos": errnos(error),
        "traceback": text(_end_of(told), 3 * LONGEST),
    }


def _place(error: BaseException, frames: list[dict[str, Any]]) -> str:
    # Only a post-condition names its place itself; what others call ``where`` may be anything.
    named = vars(error).get("where") if type(error) is PostConditionFailed else None
    return text(named, 1000) if named else raising_place(frames)


def _traceback(error: BaseException, walked: list[tuple[FrameType, int]] | None) -> str:
    try:
        lines = traceback.format_exception(type(error), error, error.__traceback__)
    except BaseException as broken:  # the texts of its chain and notes are code of the stack
        lines = traceback.format_tb(error.__traceback__)
        lines.append(f"{type_of(error)}: its text cannot be made ({type_of(broken)})\n")
    if walked is None:
        return "".join(lines)
    way = traceback.StackSummary.extract(iter(walked[-MOST_FRAMES:])).format()
    return "".join(["Traceback (most recent call last):\n", *way, *lines])


def errnos(error: BaseException) -> list[int]:
    """The error numbers of an exception and of those that led to it, the nearest first.

    A library that meets a full disk may raise an error of its own in the place of the system's.
    """
    found: list[int] = []
    todo, seen = [error], {id(error)}
    while todo and len(seen) <= LONGEST_CHAIN:
        one = todo.pop(0)
        try:
            if isinstance(one, OSError) and type(one.errno) is int and abs(one.errno) < 2**31:
                found.append(one.errno)
            led = [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]
        except BaseException:  # somebody's own properties
            continue
        for other in led:
            if isinstance(other, BaseException) and id(other) not in seen:
                seen.add(id(other))
                todo.append(other)
    return found
