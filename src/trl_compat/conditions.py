"""The values that a condition allows: one of several, a number within bounds, or none at all.

A condition is written as a value or a list of values.  ``">=3"`` and ``">0,<1.5"`` are bounds, met
by every number between them.  ``null`` is met where the configuration does not have the key.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from math import inf

Value = str | int | float | bool | None

_BOUND = re.compile(r"(>=|>|<=|<)\s*(-?\d+(?:\.\d+)?)")


@dataclass(frozen=True)
class _Span:
    """The numbers between two ends; an end is the number and whether it is left out."""

    low: tuple[float, bool] = (-inf, False)
    high: tuple[float, bool] = (inf, False)

    def narrowed(self, other: _Span) -> _Span:
        # Of two equal ends the one that leaves the number out is the narrower.
        low = max(self.low, other.low)
        high = min(self.high, other.high, key=lambda end: (end[0], not end[1]))
        return _Span(low, high)

    @property
    def empty(self) -> bool:
        (low, without_low), (high, without_high) = self.low, self.high
        return low > high or (low == high and (without_low or without_high))


def is_bound(value: Value) -> bool:
    """Whether a value of a record is a bound, and no value itself."""
    return isinstance(value, str) and _span(value) is not None


def allows(allowed: Iterable[Value], value: Value) -> bool:
    """Whether a value is one of those that are allowed, or lies within a bound of them."""
    for one in allowed:  # a plan asks this a hundred times for each cell
        if _same(value, one) or (isinstance(one, str) and _within_one(value, one)):
            return True
    return False


def within(inner: Iterable[Value], outer: Collection[Value]) -> bool:
    """Whether everything that the inner values allow is allowed by the outer ones."""
    return all(allows(outer, value) for value in inner)


def common(one: Iterable[Value], other: Iterable[Value]) -> tuple[Value, ...]:
    """What both allow, in the order of the first; bounds are narrowed to what they share."""
    pairs = ((a, b) for a in one for b in tuple(other))
    found = (both for a, b in pairs for both in _meet(a, b))
    return tuple(dict.fromkeys(found))


def in_words(bound: str) -> str:
    """``>= 3``, ``> 0 and < 1.5``."""
    return " and ".join(f"{sign} {number}" for sign, number in _BOUND.findall(bound))


def _same(one: Value, other: Value) -> bool:
    return one == other and isinstance(one, bool) is isinstance(other, bool)


def _within_one(value: Value, allowed: Value) -> bool:
    outer = _span(allowed)
    if outer is None:
        return _same(value, allowed)
    inner = _span(value)
    if inner is not None:
        return inner.narrowed(outer) == inner
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return not outer.narrowed(_Span((value, False), (value, False))).empty


def _meet(one: Value, other: Value) -> tuple[Value, ...]:
    if _within_one(one, other):
        return (one,)
    if _within_one(other, one):
        return (other,)
    mine, theirs = _span(one), _span(other)
    if mine is None or theirs is None or mine.narrowed(theirs).empty:
        return ()
    return (f"{one},{other}",)


def _span(value: Value) -> _Span | None:
    """The numbers that a text like ``>=1,<3`` allows; None if it is no bound."""
    if not isinstance(value, str) or not value.startswith(("<", ">")):
        return None
    span = _Span()
    for part in value.split(","):
        found = _BOUND.fullmatch(part.strip())
        if found is None:
            return None
        sign, end = found[1], (float(found[2]), found[1] in ("<", ">"))
        span = span.narrowed(_Span(low=end) if sign[0] == ">" else _Span(high=end))
    return span
