"""What the advisories know of a step from one stack to the next: failures introduced, and mended.

The records were written later than the releases, so this is what happened afterwards, against which
a replay is held.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trl_compat.advisories import Advisory, Catalogue, Scope
from trl_compat.ranges import outside
from trl_compat.stacks.matrix import Stack


@dataclass(frozen=True)
class Introduced:
    """A failure that a step brings.

    Attributes:
        reachable: the cells, ``(failure, variant)``, whose conditions are those of a scope that is
            new; empty if no reproduction does what it takes.
    """

    failure: str
    reachable: tuple[tuple[str, str], ...]


def introduced(
    before: Stack, after: Stack, catalogue: Catalogue, device: str = "cpu"
) -> list[Introduced]:
    """The failures with a scope that covers the later stack and not the earlier."""
    found = []
    for failure, advisory in sorted(catalogue.records.items()):
        if advisory.withdrawn:
            continue
        old = _scopes(before, advisory)
        new = [scope for scope in _scopes(after, advisory) if not _among(scope, old)]
        if new:
            found.append(Introduced(failure, tuple(_reachable(advisory, new, catalogue, device))))
    return found


def mended(before: Stack, after: Stack, catalogue: Catalogue) -> list[str]:
    """The failures with a scope that covers the earlier stack, and none that covers the later."""
    return [
        failure
        for failure, advisory in sorted(catalogue.records.items())
        if not advisory.withdrawn and _scopes(before, advisory) and not _scopes(after, advisory)
    ]


def covers(stack: Stack, advisory: Advisory) -> bool:
    """Whether a stack has a failure under some conditions."""
    return bool(_scopes(stack, advisory))


def _scopes(stack: Stack, advisory: Advisory) -> list[Scope]:
    """The scopes whose versions are those of the stack, whatever else they ask for."""
    if outside(advisory.available, stack):
        return []
    return [
        scope
        for scope in advisory.affected
        if Scope(versions=scope.versions, commits=scope.commits).covers(stack, {})
    ]


def _among(scope: Scope, others: Sequence[Scope]) -> bool:
    """Whether the same conditions were affected before: by another range it is no new failure."""
    return any(scope.conditions == other.conditions for other in others)


def _reachable(
    advisory: Advisory, scopes: Sequence[Scope], catalogue: Catalogue, device: str
) -> list[tuple[str, str]]:
    """The variants of reproductions that do what it takes; a mask is met in those of others."""
    failures = [advisory.id] if advisory.reproduction is not None else list(catalogue.subjects)
    found = []
    for failure in failures:
        reproduction = catalogue.reproduction(failure)
        for variant in reproduction.variants:
            conditions = {**reproduction.conditions_of(variant), "device": device}
            if any(Scope(conditions=s.conditions).covers(_NO_STACK, conditions) for s in scopes):
                found.append((failure, variant))
    return found


class _Nothing:
    """A stack of nothing: where only conditions are asked for."""

    def version(self, package: str) -> None:
        return None

    def commit(self, package: str) -> None:
        return None

    def absent(self, package: str) -> bool:
        return False


_NO_STACK = _Nothing()
