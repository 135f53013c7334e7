"""Ranges as the executed cells show them, where a record's own are contradicted: pure.

A range is narrowed only by releases that were all executed and passed, and widened only by releases
that were all executed and failed; where one between was not run, or where it cannot be told which
package decides, the reason is given in place of an edit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from packaging.specifiers import Specifier, SpecifierSet
from packaging.version import Version

from trl_compat.advisories import Advisory, Affected
from trl_compat.publishing.checking.contradictions import Contradiction, contradictions
from trl_compat.publishing.checking.evidence import Evidence, conditions_of, without
from trl_compat.ranges import inside
from trl_compat.shipped.releases import Releases

LOWER, UPPER = (">=", ">"), ("<", "<=")


@dataclass(frozen=True)
class Edit:
    """A new range for one package of one scope.

    Attributes:
        scope: the number of the scope, from 1.
        why: the cells that show it, in words.
    """

    failure: str
    scope: int
    package: str
    before: str
    after: str
    why: str


@dataclass(frozen=True)
class NoEdit:
    """Why a contradiction leads to no edit, and what has to be run first."""

    contradiction: Contradiction
    why: str


def propose(
    advisory: Advisory, evidence: Sequence[Evidence], releases: Releases
) -> tuple[list[Edit], list[NoEdit]]:
    """The edits of a record that its cells support, and why other contradictions lead to none.

    Only edits that leave fewer contradictions and bring no new one are given.
    """
    found = contradictions(advisory, evidence)
    edits: dict[tuple[int, str], Edit] = {}
    refused: list[NoEdit] = []
    for one in found:
        made = _edit(advisory, one, evidence, releases)
        if isinstance(made, str):
            refused.append(NoEdit(one, made))
        elif (before := edits.get((made.scope, made.package))) is None or before == made:
            edits[made.scope, made.package] = made
        elif why := _joined(before, made, releases):
            edits[made.scope, made.package] = why
    kept: list[Edit] = []
    for edit in edits.values():
        after = contradictions(edited(advisory, [*kept, edit]), evidence)
        left, known = {one.key for one in after}, {one.key for one in found}
        if len(after) < len(contradictions(edited(advisory, kept), evidence)) and left <= known:
            kept.append(edit)
        else:
            refused += [
                NoEdit(one, f"{edit.package} '{edit.after}' would contradict other cells")
                for one in found
                if one.scope in (0, edit.scope)
            ]
    return kept, refused


def edited(advisory: Advisory, edits: Sequence[Edit]) -> Advisory:
    """The record with other ranges."""
    scopes = list(advisory.affected)
    for edit in edits:
        scope = scopes[edit.scope - 1]
        versions = {**scope.versions, edit.package: edit.after}
        scopes[edit.scope - 1] = scope.model_copy(update={"versions": versions})
    return advisory.model_copy(update={"affected": tuple(scopes)})


def _joined(one: Edit, other: Edit, releases: Releases) -> Edit | None:
    """Of two edits of the same end, the one that says more; None if they do not fit together."""
    known = releases.final(one.package)

    def holds(range_: str) -> set[Version]:
        return {v for v in known if inside(v, range_)}

    before, first, second = holds(one.before), holds(one.after), holds(other.after)
    if first >= before and second >= before:
        return one if first >= second else other
    if first <= before and second <= before:
        return one if first <= second else other
    return None


def _edit(
    advisory: Advisory, one: Contradiction, evidence: Sequence[Evidence], releases: Releases
) -> Edit | str:
    shown = {cell.shows for cell in one.evidence}
    if one.place.startswith(("available", "absent")):
        return f"'{one.place}' is to be corrected by hand: it says where the failure cannot occur"
    if one.scope and None in shown:
        return _narrower(advisory, one, evidence, releases)
    if not one.scope:
        return _wider(advisory, one, evidence, releases)
    return "a scope with another symptom is in the way; change it by hand"


def _narrower(
    advisory: Advisory, one: Contradiction, evidence: Sequence[Evidence], releases: Releases
) -> Edit | str:
    scope = advisory.affected[one.scope - 1]
    here = [cell for cell in evidence if cell.inside(scope)]
    failing = [cell for cell in here if cell.shows == scope.symptom]
    passed = one.evidence[0]
    if any(cell.cell.stack == one.stack for cell in failing):
        return "other cells of the same stack fail: conditions decide, not versions"
    if not failing:
        return "no executed cell fails in this scope, so nothing shows where it ends"
    package = _axis(scope, passed, failing)
    if package is None:
        return (
            "no failing cell differs from it in one package of the scope alone; run "
            f"{_nearest_stack(scope, passed, failing)}"
        )
    version = passed.version(package)
    assert version is not None
    failed_at = {v for cell in failing if (v := cell.version(package)) is not None}
    held = [v for v in releases.final(package) if inside(v, scope.versions[package])]
    fine = {v for cell in here if cell.shows is None and (v := cell.version(package))} - failed_at
    if all(v < version for v in failed_at):
        side, end = [v for v in held if v > max(failed_at)], "<"
        side = [v for v in side if v >= min(v for v in fine if v > max(failed_at))]
    elif all(v > version for v in failed_at):
        side, end = [v for v in held if v < min(failed_at)], ">"
        side = [v for v in side if v <= max(v for v in fine if v < min(failed_at))]
    else:
        return f"{package} {version} passes between releases that fail; change it by hand"
    if not_run := [v for v in side if v not in fine]:
        return f"of {package} {_names(not_run)} {_were(not_run)} not run, and would be left out too"
    bound = min(side) if end == "<" else max(side)
    return Edit(
        advisory.id,
        one.scope,
        package,
        scope.versions[package],
        _with_bound(scope.versions[package], f"{end}{bound}"),
        f"{package} {_names(side)} passed in {_stacks(here, package, side)}",
    )


def _wider(
    advisory: Advisory, one: Contradiction, evidence: Sequence[Evidence], releases: Releases
) -> Edit | str:
    seen = one.evidence[0]
    fitting = [
        (number, package)
        for number, scope in enumerate(advisory.affected, 1)
        if scope.symptom == seen.shows and not scope.commits and seen.inside(conditions_of(scope))
        for package in scope.versions
        if seen.version(package) is not None
        and not inside(_version(seen, package), scope.versions[package])
        and seen.inside(without(scope, package))
    ]
    if len(fitting) != 1:
        said = "no scope is" if not fitting else f"{len(fitting)} scopes are"
        return f"{said} one package away from it; add a scope by hand, or run more stacks"
    ((number, package),) = fitting
    scope, version = advisory.affected[number - 1], _version(seen, package)
    known = releases.final(package)
    held = [v for v in known if inside(v, scope.versions[package])]
    if not held:
        return f"'{scope.versions[package]}' holds no release of {package}"
    upper = version > max(held)
    if not upper and version > min(held):
        return f"{package} {version} lies in a gap of '{scope.versions[package]}'"
    low, high = (max(held), version) if upper else (version, min(held))
    rest = without(scope, package)
    here = [cell for cell in evidence if cell.inside(rest)]
    failed_at = {cell.version(package) for cell in here if cell.shows == scope.symptom}
    between = [v for v in known if low < v < high]
    if not_run := [v for v in between if v not in failed_at]:
        return f"of {package} {_names(not_run)} {_were(not_run)} not seen to fail between"
    side = [*between, version]
    end = f"<={version}" if upper else f">={version}"
    return Edit(
        advisory.id,
        number,
        package,
        scope.versions[package],
        _with_bound(scope.versions[package], end),
        f"{package} {_names(sorted(side))} failed in {_stacks(here, package, side)}",
    )


def _axis(scope: Affected, passed: Evidence, failing: Sequence[Evidence]) -> str | None:
    """The package of the scope in which alone a failing cell differs; None if there is no such."""
    if len(scope.versions) == 1:
        return next(iter(scope.versions))
    found = {
        differing[0]
        for cell in failing
        if len(differing := [p for p in scope.versions if cell.version(p) != passed.version(p)])
        == 1
    }
    return found.pop() if len(found) == 1 else None


def _nearest_stack(scope: Affected, passed: Evidence, failing: Sequence[Evidence]) -> str:
    """A failing stack with one package moved to where the other passes, which would tell."""

    def differing(cell: Evidence) -> list[str]:
        return [p for p in scope.versions if cell.version(p) != passed.version(p)]

    near = min(failing, key=lambda cell: len(differing(cell)))
    package = (differing(near) or [next(iter(scope.versions))])[0]
    return f"{near.cell.stack} with {package} {passed.version(package)}"


def _with_bound(range_: str, bound: str) -> str:
    """A range with another end on one side; ``!=`` stays."""
    specifiers = list(SpecifierSet(range_))
    upper = bound.startswith("<")
    exact = [s for s in specifiers if s.operator in ("==", "~=", "===")]
    kept = [
        s for s in specifiers if s not in exact and s.operator not in (UPPER if upper else LOWER)
    ]
    parts = [str(s) for s in kept]
    for one in exact:
        version = one.version.removesuffix(".*")
        if upper:
            parts.append(f">={version}")
        else:
            parts.append(f"<={version}" if one.operator == "==" else f"<{_above(one)}")
    parts.append(bound)
    order = (*LOWER, "!=", *UPPER)
    return ",".join(sorted(parts, key=lambda part: order.index(Specifier(part).operator)))


def _above(specifier: Specifier) -> str:
    """The end of a compatible release, ``~=1.4.2``: before 1.5."""
    parts = [int(part) for part in specifier.version.split(".")[:-1]]
    return ".".join(map(str, [*parts[:-1], parts[-1] + 1]))


def _version(one: Evidence, package: str) -> Version:
    version = one.version(package)
    assert version is not None
    return version


def _names(versions: Sequence[Version]) -> str:
    names = [str(version) for version in versions]
    if len(names) > 6:
        return f"{names[0]} to {names[-1]} ({len(names)} releases)"
    return ", ".join(names)


def _were(versions: Sequence[Version]) -> str:
    return "was" if len(versions) == 1 else "were"


def _stacks(cells: Sequence[Evidence], package: str, versions: Sequence[Version]) -> str:
    names = [cell.cell.stack for cell in cells if cell.version(package) in versions]
    return ", ".join(dict.fromkeys(names))
