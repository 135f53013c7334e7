"""The order of the steps of an upgrade: as few packages at a time as is safe."""

from __future__ import annotations

from itertools import combinations

from trl_compat.upgrade.safety import Safety
from trl_compat.upgrade.versions import State, bumps


def steps(start: State, end: State, safety: Safety) -> tuple[int, list[State]] | None:
    """The best order, as what it costs and the sets of versions after each step.

    A step that moves n packages costs n², so that one package at a time is best, and costs as much
    as there are packages to move.  None if no order is safe.
    """
    moved = tuple(bump.package for bump in bumps(start, end))
    best: dict[frozenset[str], tuple[int, list[State]]] = {frozenset(): (0, [])}
    for size in range(1, len(moved) + 1):
        for done in map(frozenset, combinations(moved, size)):
            after = {**start, **{package: end[package] for package in done}}
            ways = [
                (cost + len(done - before) ** 2, [*way, after])
                for before, (cost, way) in best.items()
                if before < done and not safety.objections(way[-1] if way else start, after)
            ]
            if ways:
                best[done] = min(ways, key=lambda way: way[0])
    return best.get(frozenset(moved))
