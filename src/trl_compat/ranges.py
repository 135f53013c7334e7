"""Does a conjunction of version ranges and commits hold for what somebody has?  Three answers.

The one place where a version is looked for in a range.  Expectations, fixes, doctor, gate and plan
differ only in what they know of a package: an exact stack has a release or a commit, a lock may
leave a package open, and a command line names some packages and says nothing of the others.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from typing import Protocol

from packaging.specifiers import SpecifierSet
from packaging.version import Version


class Answer(enum.Enum):
    """Yes, no, or not known."""

    NO = 0
    UNKNOWN = 1
    YES = 2


class HasVersions(Protocol):
    """Anything that knows versions of packages: a stack, or what a user has (see ``sources``)."""

    def version(self, package: str) -> Version | None:
        """The release of a package; None where there is none or a git commit is taken."""

    def commit(self, package: str) -> str | None:
        """The git commit of a package; None where a release is taken."""

    def absent(self, package: str) -> bool:
        """Whether the package is certainly not there."""


InRange = Callable[[str, str], Answer]
"""Whether the version that somebody has of a package is in a range."""


@cache
def ranges(range_: str) -> SpecifierSet:
    """A range, read once.

    Raises:
        InvalidSpecifier: it is none.
    """
    return SpecifierSet(range_)


@cache
def inside(version: Version, range_: str) -> bool:
    """Whether a version is in a PEP 440 range, pre-releases too; the same is asked over and over.

    Raises:
        InvalidSpecifier: it is no range.
    """
    return ranges(range_).contains(version, prereleases=True)


def same_commit(one: str, other: str) -> bool:
    """Either may be abbreviated."""
    return one.startswith(other) or other.startswith(one)


def holds(
    versions: Mapping[str, str],
    commits: Mapping[str, Iterable[str]],
    in_range: InRange,
    commit_of: Callable[[str], str | None],
) -> tuple[Answer, tuple[str, ...]]:
    """Whether a conjunction holds, and the packages of which that is not known.

    A package that is taken at a git commit is named by that commit or not at all.

    Args:
        versions: a range for each package.
        commits: for each package the commits of which it must have one.
        in_range: what is known of somebody's versions.
        commit_of: the commit that somebody has of a package, if any.
    """
    for package, known in commits.items():
        commit = commit_of(package)
        if commit is None or not any(same_commit(commit, one) for one in known):
            return Answer.NO, ()
    unknown = []
    for package, range_ in versions.items():
        match in_range(package, range_):
            case Answer.NO:
                return Answer.NO, ()
            case Answer.UNKNOWN:
                unknown.append(package)
    return (Answer.UNKNOWN if unknown else Answer.YES), tuple(unknown)


def of_stack(stack: HasVersions, examined: Collection[str] = ()) -> InRange:
    """What is known of an exact stack: of a commit that was not examined, ranges say nothing.

    Args:
        stack: the stack; a package without release and commit is not in it.
        examined: the packages whose commit a record names, so that its ranges are not meant.
    """

    def in_range(package: str, range_: str) -> Answer:
        version = stack.version(package)
        if version is not None:
            return Answer.YES if inside(version, range_) else Answer.NO
        open_ = stack.commit(package) is not None and package not in examined
        return Answer.UNKNOWN if open_ else Answer.NO

    return in_range


def of_named(versions: Mapping[str, Version]) -> InRange:
    """What is known where only some versions were named: of the others nothing."""

    def in_range(package: str, range_: str) -> Answer:
        version = versions.get(package)
        if version is None:
            return Answer.UNKNOWN
        return Answer.YES if inside(version, range_) else Answer.NO

    return in_range


def outside(available: Mapping[str, str], stack: HasVersions) -> bool:
    """Whether a release of the stack lies outside of one of the ranges; commits never do."""
    found = ((stack.version(package), range_) for package, range_ in available.items())
    return any(version is not None and not inside(version, range_) for version, range_ in found)
