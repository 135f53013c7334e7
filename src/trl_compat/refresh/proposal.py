"""The stacks that new releases ask for: pure, over the matrix and the list of releases.

For each new release the newest stack with that package moved alone, so that a suspect can be told
from the others, and one stack of everything newest.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass

from packaging.version import Version

from trl_compat.errors import BadInput
from trl_compat.packages import PACKAGES
from trl_compat.refresh.days import Release
from trl_compat.refresh.holding import Holds
from trl_compat.shipped.releases import Releases
from trl_compat.stacks.matrix import Matrix, Stack


@dataclass(frozen=True)
class Proposed:
    """A stack to add.

    Attributes:
        moved: the new releases in it.
        why: one sentence, for the file.
    """

    name: str
    stack: Stack
    moved: tuple[Release, ...]
    why: str


@dataclass(frozen=True)
class Proposal:
    """What new releases ask for.

    Attributes:
        base: the newest stack that is known, against which they are compared.
        new: the releases that the matrix does not know, oldest first within a package.
        stacks: those to add; the last one has everything newest.
        held_back: releases that are new, and that a hold keeps out.
        yanked: of the base's releases those that were taken back, in a sentence each.
    """

    base: str
    new: tuple[Release, ...]
    stacks: tuple[Proposed, ...]
    held_back: tuple[Release, ...] = ()
    yanked: tuple[str, ...] = ()


def propose(table: Matrix, releases: Releases, today: datetime.date, held: Holds) -> Proposal:
    """The proposal for a day.

    Raises:
        BadInput: no stack of the matrix has a release of every package.
    """
    base = newest_stack(table)
    stack = table.stacks[base]
    new, held_back = _new(table, releases, held)
    found: list[Proposed] = []
    taken = set(table.stacks)
    for release in new:
        moved = _moved(stack, {release.package: str(release.version)}, today)
        why = f"{base} with {release} alone"
        found.append(Proposed(_name(today, str(release), taken), moved, (release,), why))
    newest: dict[str, Release] = {release.package: release for release in new}
    if len(newest) > 1:
        everything = {package: str(one.version) for package, one in newest.items()}
        moved = _moved(stack, everything, today)
        why = f"everything newest on {today}"
        found.append(Proposed(_name(today, "newest", taken), moved, tuple(newest.values()), why))
    yanked = (releases.doubt(p, v) for p in PACKAGES if (v := stack.version(p)) is not None)
    return Proposal(base, tuple(new), tuple(found), tuple(held_back), tuple(filter(None, yanked)))


def newest_stack(table: Matrix) -> str:
    """The newest of the stacks that are written by hand and consist of releases.

    Raises:
        BadInput: there is none.
    """
    found = {
        name: stack
        for name, stack in by_hand(table)
        if stack.lock is None and all(stack.version(package) for package in PACKAGES)
    }
    if not found:
        raise BadInput("the matrix has no stack of releases that new ones could be compared with")

    def key(name: str) -> tuple[object, ...]:
        versions = (found[name].version(package) or Version("0") for package in PACKAGES[1:])
        return (found[name].as_of, *versions, found[name].version("torch"))

    return max(found, key=key)


def by_hand(table: Matrix) -> Iterator[tuple[str, Stack]]:
    """The stacks that stand in the file, without those that a grid makes."""
    for name, stack in table.stacks.items():
        if not stack.grid:
            yield name, stack


def _new(table: Matrix, releases: Releases, held: Holds) -> tuple[list[Release], list[Release]]:
    """The releases that are newer than any in the matrix; and of these what is held back."""
    new: list[Release] = []
    back: list[Release] = []
    for package in PACKAGES:
        known = [v for _, stack in by_hand(table) if (v := stack.version(package)) is not None]
        for version in releases.final(package):
            if known and version <= max(known):
                continue
            allowed = package not in held or version in held[package]
            (new if allowed else back).append(Release(package, version))
    return new, back


def _moved(stack: Stack, versions: dict[str, str], today: datetime.date) -> Stack:
    said = stack.model_dump(by_alias=True, exclude_defaults=True)
    for of_one_stack in ("only", "why"):
        said.pop(of_one_stack, None)
    return Stack.model_validate({**said, **versions, "as_of": today})


def _name(today: datetime.date, what: str, taken: set[str]) -> str:
    """A name that the matrix has not; it is remembered."""
    plain = f"{today}-{what.replace(' ', '-').replace('_', '-').lower()}"
    name, number = plain, 2
    while name in taken:
        name, number = f"{plain}-{number}", number + 1
    taken.add(name)
    return name
