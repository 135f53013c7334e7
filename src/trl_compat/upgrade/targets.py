"""The sets of versions to move to: every way to change some packages without a problem.

This is a custom search, because the problem is small and special: releases are tried package by
package, and a conflict between packages that are already decided is not explored further.  Results
are cached, since several failures of one environment need the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from packaging.version import Version

from trl_compat.upgrade.safety import Safety
from trl_compat.upgrade.versions import State

Choices = Mapping[str, Sequence[Version]]
"""What each package may be moved to, the most wanted first; one for each span."""


class Targets:
    """The safe changes of one environment.

    Args:
        start: the releases that one has.
        choices: a package that is not among them stays.
    """

    def __init__(self, safety: Safety, start: State, choices: Choices) -> None:
        self.safety, self.start, self.choices = safety, start, choices
        self._safe: dict[tuple[str, ...], tuple[State, ...]] = {}

    def subsets(self, size: int) -> Iterator[tuple[str, ...]]:
        """The sets of packages of a size that can be moved."""
        yield from combinations([p for p in self.choices if self.choices[p]], size)

    def moving(self, packages: tuple[str, ...]) -> tuple[State, ...]:
        """Every safe change that moves just these packages."""
        if packages not in self._safe:
            self._safe[packages] = tuple(self._tried(packages, dict(self.start)))
        return self._safe[packages]

    def nearest(self, needed: tuple[str, ...]) -> Iterator[State]:
        """Every safe change that moves some packages, and as few others as can be first."""
        others = [p for p in self.choices if self.choices[p] and p not in needed]
        for size in range(len(others) + 1):
            for beside in combinations(others, size):
                yield from self._tried((*needed, *beside), dict(self.start))

    def _tried(self, packages: tuple[str, ...], state: dict[str, Version]) -> Iterator[State]:
        if not packages:
            yield dict(state)
            return
        package, *rest = packages
        undecided = frozenset(rest)
        for version in self.choices[package]:
            then = {**state, package: version}
            if not any(self.safety.problems(self.start, then, undecided)):
                yield from self._tried(tuple(rest), then)
