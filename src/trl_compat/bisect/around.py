"""The stack around a release: the other packages stay, unless the release requires newer ones.

Pure.  What must move is told by the requirements that the packages declare on each other.  It moves
to the nearest release that is allowed, and is named.  Everything below the six packages is of the
base stack's day, or of the day of the youngest release if that is later.
"""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from packaging.version import Version

from trl_compat.files.names import NAME
from trl_compat.packages import PACKAGES
from trl_compat.ranges import inside
from trl_compat.shipped.releases import Releases
from trl_compat.shipped.requires import Requires
from trl_compat.stacks.matrix import Matrix, Stack

ROUNDS = 8


@dataclass(frozen=True)
class Move:
    """A package that could not stay as in the base stack."""

    package: str
    old: str
    new: str
    why: str

    def __str__(self) -> str:
        return f"{self.package} {self.old} → {self.new} ({self.why})"


@dataclass(frozen=True)
class Around:
    """A stack for one release.

    Attributes:
        name: of matrix.yaml, if that has exactly this stack, else made from what it consists of.
        moved: what else had to move.
        conflict: a requirement that cannot be met; empty if none is known.
    """

    name: str
    stack: Stack
    moved: tuple[Move, ...] = ()
    conflict: str = ""


@dataclass(frozen=True)
class Rules:
    """What is known of releases, and what must not move.

    Attributes:
        held: packages that the user pins.
        builds: releases of torch that need no download; they are preferred.
    """

    table: Matrix
    releases: Releases
    requires: Requires
    held: frozenset[str] = frozenset()
    builds: frozenset[str] = frozenset()


def around(base: Stack, versions: Mapping[str, str], label: str, rules: Rules) -> Around:
    """The stack that is the base with other versions of some packages.

    Args:
        base: has releases only.
        versions: what is moved on purpose, or pinned.
        label: begins its name, e.g. ``trl-0.13.0``.
        rules: see there.
    """
    wanted = {p: getattr(base, p) for p in PACKAGES} | dict(versions)
    fixed = frozenset(versions) | rules.held
    wanted, moved, conflict = _consistent(base, wanted, fixed, rules)
    days = [rules.releases.dates.get(p, {}).get(v) for p, v in wanted.items()]
    day = max([base.as_of, *(datetime.date.fromisoformat(d) for d in days if d)])
    return named(base, wanted, day, label, rules.table, moved, conflict)


def named(
    base: Stack,
    versions: Mapping[str, str],
    as_of: datetime.date,
    label: str,
    table: Matrix,
    moved: tuple[Move, ...] = (),
    conflict: str = "",
) -> Around:
    """The base with these versions and this day, under the name that it has or gets."""
    plain = {"only": (), "why": "", "grid": "", "also_in": ()}
    changes = {**versions, "as_of": as_of, **plain}
    stack = Stack.model_validate({**base.model_dump(by_alias=True), **changes})
    for name, other in table.stacks.items():
        if not other.only and NAME.fullmatch(name) and other.model_copy(update=plain) == stack:
            return Around(name, stack, moved, conflict)
    told = json.dumps(stack.model_dump(mode="json"), sort_keys=True)
    digest = hashlib.sha256(told.encode()).hexdigest()[:8]
    return Around(f"bisect-{label.lower()}-{digest}"[:64], stack, moved, conflict)


def _consistent(
    base: Stack, wanted: dict[str, str], fixed: Collection[str], rules: Rules
) -> tuple[dict[str, str], tuple[Move, ...], str]:
    """Moves what is required to move; what the base stack itself violates may stay."""
    moved: dict[str, Move] = {}
    for _ in range(ROUNDS):
        broken = _broken(base, wanted, rules)
        if broken is None:
            break
        package, requirement, range_ = broken
        mover, allowed = _mover(package, requirement, range_, wanted, fixed, rules)
        if not mover:
            why = f"{package} {wanted[package]} requires {requirement}{range_}"
            return wanted, tuple(moved.values()), f"{why}, not {wanted[requirement]}"
        why = f"{package} {wanted[package]} requires {requirement}{range_}"
        wanted = {**wanted, mover: allowed}
        moved[mover] = Move(mover, getattr(base, mover), allowed, why)
    return wanted, tuple(m for m in moved.values() if m.old != m.new), ""


def _broken(base: Stack, wanted: Mapping[str, str], rules: Rules) -> tuple[str, str, str] | None:
    """A requirement of one package on another that does not hold."""
    for package in PACKAGES:
        declared = rules.requires.get(package, {}).get(wanted[package], {})
        for other, range_ in declared.items():
            if other not in wanted or inside(Version(wanted[other]), range_):
                continue
            same = all(getattr(base, p) == wanted[p] for p in (package, other))
            if not same:
                return package, other, range_
    return None


def _mover(
    package: str,
    other: str,
    range_: str,
    wanted: Mapping[str, str],
    fixed: Collection[str],
    rules: Rules,
) -> tuple[str, str]:
    """Which of two packages moves, and where to; two empty words if neither can."""
    if other not in fixed:
        found = [v for v in rules.releases.final(other) if inside(v, range_)]
        if other == "torch":
            found = [v for v in found if str(v) in rules.builds] or found
        if found:
            return other, _nearest(found, wanted[other])
    if package not in fixed:
        found = [
            v
            for v in rules.releases.final(package)
            if inside(Version(wanted[other]), _range(package, v, other, rules))
        ]
        if found:
            return package, _nearest(found, wanted[package])
    return "", ""


def _range(package: str, version: Version, other: str, rules: Rules) -> str:
    return rules.requires.get(package, {}).get(str(version), {}).get(other, "")


def _nearest(found: list[Version], now: str) -> str:
    """The next release that is newer, or else the next older one."""
    at = Version(now)
    above = [v for v in found if v >= at]
    return str(above[0] if above else found[-1])
