"""The smallest set of changes that brings a failure about: delta debugging.

Pure.  ``ddmin`` after Zeller and Hildebrandt, *Simplifying and Isolating Failure-Inducing Input*
(2002), with three answers: what cannot be judged counts as not failing.  The set that it gives is
one from which no single change can be taken away.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence

from trl_compat.bisect.search import Side

Try = Callable[[frozenset[str]], Side]
"""What the good stack shows with these changes."""


def ddmin(changes: Iterable[str], attempt: Try) -> tuple[str, ...]:
    """A smallest set of changes with which the failure shows; all of them together must show it."""
    known: dict[frozenset[str], Side] = {}

    def fails(some: Sequence[str]) -> bool:
        chosen = frozenset(some)
        if chosen not in known:
            known[chosen] = attempt(chosen) if chosen else Side.GOOD
        return known[chosen] is Side.BAD

    left = tuple(changes)
    parts = min(2, len(left))
    while len(left) > 1:
        chunks = _split(left, parts)
        smaller = next((chunk for chunk in chunks if fails(chunk)), None)
        if smaller is not None:
            left, parts = smaller, 2
            continue
        rests = (tuple(c for c in left if c not in chunk) for chunk in chunks)
        rest = next((rest for rest in rests if fails(rest)), None)
        if rest is not None:
            left, parts = rest, max(parts - 1, 2)
        elif parts < len(left):
            parts = min(len(left), parts * 2)
        else:
            break
    return left


def _split(items: tuple[str, ...], parts: int) -> list[tuple[str, ...]]:
    """Nearly equal parts in order."""
    at = [len(items) * number // parts for number in range(parts + 1)]
    return [items[a:b] for a, b in itertools.pairwise(at)]
