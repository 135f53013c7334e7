"""A binary search whose questions may stay without an answer, or be answered differently next time.

Pure: positions are numbers from the good end (0) to the bad end, and :func:`search` asks a callable
about them.  The ends are verified first.  A position that cannot be judged is skipped; the search
goes on with its neighbours at growing distances, so that a whole region of them costs little.  Both
sides of the edge are asked a second time before they count.

If good and bad alternate there are several edges; one of them is found.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from dataclasses import dataclass


class Side(enum.StrEnum):
    """The side of the edge on which a position lies; ``UNJUDGED`` if that cannot be told."""

    GOOD = "good"
    BAD = "bad"
    UNJUDGED = "unjudged"


Ask = Callable[[int, int], Side]
"""The side of a position, from at least so many runs."""

CONFIRMED = 2  # runs that an answer needs to count as one side of the edge


class WrongEnd(Exception):
    """An end of the search is not what it was said to be."""

    def __init__(self, position: int, found: Side) -> None:
        super().__init__(f"position {position} is {found}")
        self.position, self.found = position, found


@dataclass(frozen=True)
class Edge:
    """Where good becomes bad: two judged positions, and what between them cannot be judged."""

    good: int
    bad: int
    between: tuple[int, ...]


@dataclass(frozen=True)
class Search:
    """The answers so far, in the order of asking; the ends are taken as verified."""

    size: int
    answers: tuple[tuple[int, Side], ...] = ()

    def told(self, position: int, side: Side) -> Search:
        """The search after an answer; a later one about the same position replaces the earlier."""
        kept = dict(self.answers)
        kept[position] = side
        return dataclasses.replace(self, answers=tuple(kept.items()))

    @property
    def bracket(self) -> tuple[int, int]:
        """The last good and the first bad position."""
        good, bad, _ = self._replayed()
        return good, bad

    @property
    def next(self) -> int | None:
        """What to ask now; None if nothing is left between good and bad."""
        good, bad, skips = self._replayed()
        asked = dict(self.answers)
        open_ = [p for p in range(good + 1, bad) if p not in asked]
        if not open_:
            return None
        middle = (good + bad) // 2
        away = 2 ** (skips - 1) * (1 if skips % 2 else -1) if skips else 0
        return min(open_, key=lambda p: (abs(p - middle - away), p))

    @property
    def ahead(self) -> tuple[int, ...]:
        """What may be asked after the next position, by its two possible answers."""
        now = self.next
        if now is None:
            return ()
        then = (self.told(now, side).next for side in (Side.GOOD, Side.BAD))
        return tuple(dict.fromkeys(p for p in then if p is not None))

    @property
    def edge(self) -> Edge:
        """The edge, when nothing is left to ask."""
        good, bad = self.bracket
        return Edge(good, bad, tuple(range(good + 1, bad)))

    def _replayed(self) -> tuple[int, int, int]:
        """The bracket, and how many positions were skipped since it last became smaller."""
        good, bad, skips = 0, self.size - 1, 0
        for position, side in self.answers:
            if not good < position < bad:
                continue
            match side:
                case Side.GOOD:
                    good, skips = position, 0
                case Side.BAD:
                    bad, skips = position, 0
                case Side.UNJUDGED:
                    skips += 1
        return good, bad, skips


def search(
    size: int, ask: Ask, ahead: Callable[[tuple[int, ...]], object] = lambda _: None
) -> Edge:
    """Finds an edge between position 0, which is good, and the last one, which is bad.

    Args:
        size: the number of positions, at least two.
        ask: the side of a position.
        ahead: is told before a question which positions may come next.

    Raises:
        WrongEnd: an end is not on its side.
    """
    for position, wanted in ((0, Side.GOOD), (size - 1, Side.BAD)):
        if (found := ask(position, 1)) is not wanted:
            raise WrongEnd(position, found)
    state = Search(size)
    while True:
        while (position_ := state.next) is not None:
            ahead(state.ahead)
            state = state.told(position_, ask(position_, 1))
        changed = False
        for position, wanted in zip(state.bracket, (Side.GOOD, Side.BAD), strict=True):
            found = ask(position, CONFIRMED)
            if found is wanted:
                continue
            if position in (0, size - 1):
                raise WrongEnd(position, found)
            state, changed = state.told(position, found), True
            break
        if not changed:
            return state.edge


def majority(sides: list[Side]) -> Side:
    """The side of most runs; ``UNJUDGED`` if there is no such side."""
    for side in (Side.GOOD, Side.BAD):
        if sides.count(side) * 2 > len(sides):
            return side
    return Side.UNJUDGED
