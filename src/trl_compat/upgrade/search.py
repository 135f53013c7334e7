"""The search for an upgrade path: breadth first, so that the first one found is a shortest.

A state is a set of versions, a bump replaces one of them by a later release.  Which releases there
are and what speaks against a bump is given to the search; it knows neither packages nor failures.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from packaging.version import Version

Versions = Mapping[str, Version]
Judge = Callable[[Versions, Versions], tuple[str, ...]]
"""What speaks against going from one state to another; nothing if the step is safe."""


@dataclass(frozen=True)
class Bump:
    """One package goes to a later release."""

    package: str
    old: Version
    new: Version

    def __str__(self) -> str:
        return f"{self.package} {self.old} → {self.new}"


@dataclass(frozen=True)
class Refused:
    """A bump that was not taken, from a state on the way, and why."""

    bump: Bump
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Step:
    """A bump that is taken, the versions after it, and the bumps that were refused beside it."""

    bump: Bump
    after: Versions
    refused: tuple[Refused, ...]


@dataclass(frozen=True)
class Found:
    """The answer of a search.

    Attributes:
        steps: the path; empty where the start is the goal, None where there is no path.
        refused: without a path, every bump to the goal that was refused anywhere, and those that
            were refused at the start.
    """

    steps: tuple[Step, ...] | None
    refused: tuple[Refused, ...] = ()


def search(
    start: Versions,
    reached: Callable[[Versions], bool],
    releases: Mapping[str, Sequence[Version]],
    judge: Judge,
) -> Found:
    """The shortest safe path from a state to one in which ``reached`` holds.

    Args:
        start: the versions that one has.
        reached: whether a state is the goal.
        releases: what each package may be bumped to, the most wanted first.
        judge: what speaks against a step.
    """
    if reached(start):
        return Found(())
    first = _key(start)
    came_by: dict[tuple[tuple[str, Version], ...], Step | None] = {first: None}
    waiting = deque([(start, first)])
    refused_at_start: tuple[Refused, ...] = ()
    refused_goals: dict[Refused, None] = {}
    while waiting:
        state, key = waiting.popleft()
        refused, safe = _moves(state, releases, judge)
        if key == first:
            refused_at_start = refused
        for bump, after in safe:
            there = _key(after)
            if there in came_by:
                continue
            came_by[there] = Step(bump, after, refused)
            if reached(after):
                return Found(tuple(_way(there, came_by)))
            waiting.append((after, there))
        for one in refused:
            if reached({**state, one.bump.package: one.bump.new}):
                refused_goals.setdefault(one)
    return Found(None, tuple(dict.fromkeys((*refused_goals, *refused_at_start))))


def _moves(
    state: Versions, releases: Mapping[str, Sequence[Version]], judge: Judge
) -> tuple[tuple[Refused, ...], list[tuple[Bump, Versions]]]:
    refused: list[Refused] = []
    safe: list[tuple[Bump, Versions]] = []
    for package, known in releases.items():
        for version in known:
            if version <= state[package]:
                continue
            bump, after = Bump(package, state[package], version), {**state, package: version}
            reasons = judge(state, after)
            if reasons:
                refused.append(Refused(bump, reasons))
            else:
                safe.append((bump, after))
    return tuple(refused), safe


def _way(
    key: tuple[tuple[str, Version], ...],
    came_by: Mapping[tuple[tuple[str, Version], ...], Step | None],
) -> Iterable[Step]:
    def backwards() -> Iterator[Step]:
        there = key
        while (step := came_by[there]) is not None:
            yield step
            there = _key({**step.after, step.bump.package: step.bump.old})

    return reversed(list(backwards()))


def _key(state: Versions) -> tuple[tuple[str, Version], ...]:
    return tuple(sorted(state.items()))
