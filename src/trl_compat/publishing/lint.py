"""Checks of advisories that no schema can express, against the list of releases.

Every rule returns sentences; an empty list means that the advisory is correct.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Literal

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from trl_compat.advisories.catalogue import Catalogue
from trl_compat.advisories.invariant import symptom_in
from trl_compat.advisories.schema import Advisory, Affected, ConditionMap
from trl_compat.conditions import Value, common
from trl_compat.publishing.events import is_open
from trl_compat.ranges import inside
from trl_compat.results import Results, found_in
from trl_compat.shipped.releases import Releases


@dataclass(frozen=True)
class Complaint:
    """What is wrong with a record; a warning does not fail the lint."""

    failure: str
    text: str
    level: Literal["error", "warning"] = "error"


def lint(
    catalogue: Catalogue, releases: Releases, document: Results | None, reproductions: Path
) -> list[Complaint]:
    """All complaints about all records, in the order of their ids."""
    complaints = []
    for failure, advisory in sorted(catalogue.records.items()):
        rules = (
            *_ranges(advisory, releases),
            *_overlaps(advisory, releases),
            *_references(advisory, reproductions),
            *_unobserved(advisory),
            *_open_ends(advisory, releases, document),
            *_avoidances(advisory, releases),
            *_advice(advisory),
            *_standalone(advisory),
            *_for_users(advisory),
            *_dates(advisory),
        )
        complaints += [Complaint(failure, text, level) for level, text in rules]
    return complaints


Rule = Iterator[tuple[Literal["error", "warning"], str]]


def _all_ranges(advisory: Advisory) -> Iterator[tuple[str, str, str]]:
    """Every range of a record with the place where it stands."""
    places = [("available", advisory.available)]
    places += [(f"affected {n}", block.versions) for n, block in enumerate(advisory.affected, 1)]
    places += [(f"absent {n}", block.versions) for n, block in enumerate(advisory.absent, 1)]
    places += [(f"fix {r.name}", r.versions) for r in (*advisory.fixes, *advisory.wrong_fixes)]
    places += [(f"avoid {n}", {**w.upgrade, **w.pin}) for n, w in enumerate(advisory.avoid, 1)]
    for place, ranges in places:
        for package, range_ in ranges.items():
            yield place, package, range_


def _ranges(advisory: Advisory, releases: Releases) -> Rule:
    """Versions that do not exist, and ranges that hold no release."""
    for place, package, range_ in _all_ranges(advisory):
        known = releases.of(package)
        if not known:
            continue
        for specifier in SpecifierSet(range_):
            try:
                bound = Version(specifier.version)
            except InvalidVersion:
                continue  # 1.2.*: a family of releases
            if bound not in known:
                text = f"{place}: {package} {bound} was never released (as of {releases.as_of})"
                yield "error", text
        if not any(inside(version, range_) for version in known):
            yield "error", f"{place}: no release of {package} is in '{range_}'"


def _overlaps(advisory: Advisory, releases: Releases) -> Rule:
    """Blocks that cover the same stack and name different symptoms, or say the same twice."""
    numbered = list(enumerate(advisory.affected, 1))
    for (n, one), (m, other) in combinations(numbered, 2):
        if not _compatible(one.conditions, other.conditions) or not _meet(one, other, releases):
            continue
        # Symptoms of different invariants are looked for in different cells.
        if len({advisory.symptoms[block.symptom].violates for block in (one, other)}) > 1:
            continue
        if one.symptom != other.symptom and not one.precedence:
            yield (
                "error",
                f"affected {n} and {m} overlap with different symptoms; give the 'precedence'",
            )
        if one.symptom == other.symptom and one.conditions == other.conditions:
            yield "error", f"affected {n} and {m} overlap and are equivalent"


def _compatible(one: ConditionMap, other: ConditionMap) -> bool:
    shared = one.keys() & other.keys()
    return all(common(_listed(one[name]), _listed(other[name])) for name in shared)


def _listed(allowed: Value | tuple[Value, ...]) -> tuple[Value, ...]:
    return allowed if isinstance(allowed, tuple) else (allowed,)


def _meet(one: Affected, other: Affected, releases: Releases) -> bool:
    """Whether some stack can be in both: for each package a release that both ranges hold."""
    for package in one.commits.keys() | other.commits.keys():
        ours, theirs = set(one.commits.get(package, ())), set(other.commits.get(package, ()))
        if not ours & theirs:
            return False
    for package in one.versions.keys() & other.versions.keys():
        both = SpecifierSet(one.versions[package]) & SpecifierSet(other.versions[package])
        if not any(inside(v, str(both)) for v in releases.of(package)):
            return False
    return True


def _references(advisory: Advisory, reproductions: Path) -> Rule:
    """Fixes, wrong fixes and variants that are not there."""
    reproduction = advisory.reproduction
    for remedy in (*advisory.fixes, *advisory.wrong_fixes):
        if remedy.entry is None:
            continue
        name, _, function = remedy.entry.partition(":")
        path: Path | None
        if name == "reproduction":
            path = reproductions / f"{reproduction.module}.py" if reproduction else None
        else:
            spec = importlib.util.find_spec(name) if name.startswith("trl_compat.") else None
            path = Path(spec.origin) if spec and spec.origin else None
        if path is None or not path.is_file():
            yield "error", f"{remedy.name}: module {name} does not exist"
        elif function not in _functions(path):
            yield "error", f"{remedy.name}: {path.name} has no function {function}"
        for variant in remedy.variants:
            if not reproduction or variant not in reproduction.variants:
                yield "error", f"{remedy.name}: '{variant}' is not one of the variants"


def _unobserved(advisory: Advisory) -> Rule:
    """A symptom that nobody has seen, so that no cell can show it."""
    for name, symptom in advisory.symptoms.items():
        if fields := symptom.to_observe:
            run = f"run: trl-compat advisories finish {advisory.id}"
            yield "error", f"symptom {name}: {', '.join(fields)} still to be observed; {run}"


def _functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def _open_ends(advisory: Advisory, releases: Releases, document: Results | None) -> Rule:
    """A range without an upper end holds for releases to come: the newest must have been run.

    Where another package of the block has an end, releases to come are not hit by themselves: it is
    a warning, and none where ``open_ends`` says why the range is right all the same.
    """
    explained = set()
    for number, block in enumerate(advisory.affected, 1):
        ends = {package: range_ for package, range_ in block.versions.items() if is_open(range_)}
        partly = len(ends) < len(block.versions)
        for package in ends:
            if partly and package in advisory.open_ends:
                explained.add(package)
                continue
            newest, seen = (
                releases.newest(package),
                _newest_seen(advisory, block, package, document),
            )
            if seen == newest:
                continue
            run = f"the newest observed is {seen}" if seen else "none was observed"
            text = f"affected {number}: {package} has no upper end; releases up to {newest}: {run}"
            yield ("warning" if partly else "error"), text
    for package in sorted(advisory.open_ends.keys() - explained):
        yield "warning", f"open_ends: no block has an open end of {package} beside one with an end"


def _newest_seen(
    advisory: Advisory, block: Affected, package: str, document: Results | None
) -> Version | None:
    """The newest release of a package on which the block's symptom was really seen."""
    if document is None:
        return None
    found = {
        getattr(document.stacks[cell.stack], package)
        for cell in document.cells
        if found_in(cell) == advisory.id and symptom_in(cell.symptom) == block.symptom
    }
    return max((Version(v) for v in found if not v.startswith("git+")), default=None)


def _avoidances(advisory: Advisory, releases: Releases) -> Rule:
    """A range that is given as a way out and is affected itself."""
    for number, way in enumerate(advisory.avoid, 1):
        changes = {**way.upgrade, **way.pin}
        for m, block in enumerate(advisory.affected, 1):
            shared = changes.keys() & block.versions.keys()
            if changes and len(shared) == len(changes) and _inside(changes, block, releases):
                yield "error", f"avoid {number} leads to releases of affected {m}"


def _advice(advisory: Advisory) -> Rule:
    """A release that is recommended in free text, where nobody checks it against other failures."""
    texts = [("advice", advisory.advice)]
    texts += [(f"note of avoid {n}", way.note) for n, way in enumerate(advisory.avoid, 1)]
    for place, text in texts:
        found = re.search(r"\d+\.\d+", text)
        if found:
            yield "error", f"{place}: names {found[0]}; name releases as a range under 'avoid'"


def _standalone(advisory: Advisory) -> Rule:
    """A fix that nobody can use without this package."""
    for fix in advisory.fixes:
        if fix.conditions:  # other settings, which its snippet has
            continue
        if not fix.standalone:
            yield "error", f"{fix.name}: has no standalone form"
            continue
        try:
            tree = ast.parse(fix.standalone)
        except SyntaxError as error:
            yield "error", f"{fix.name}: its standalone form is not valid Python ({error.msg})"
            continue
        imports = (n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom))
        if any("trl_compat" in ast.unparse(node) for node in imports):
            yield "error", f"{fix.name}: its standalone form imports this package"


def _inside(changes: dict[str, str], block: Affected, releases: Releases) -> bool:
    for package, range_ in changes.items():
        both = SpecifierSet(range_) & SpecifierSet(block.versions[package])
        if not any(inside(v, str(both)) for v in releases.of(package)):
            return False
    return True


def _for_users(advisory: Advisory) -> Rule:
    """A facet or a stand-in means nothing to a user."""
    for number, block in enumerate(advisory.affected, 1):
        inner = block.conditions.keys() & {"facet", "without_stand_in"}
        if inner and block.user_conditions is None:
            level: Literal["error", "warning"] = "warning" if advisory.masks else "error"
            text = (
                f"affected {number}: '{min(inner)}' exists only in the reproduction; "
                "add 'user_conditions'"
            )
            yield level, text


def _dates(advisory: Advisory) -> Rule:
    if advisory.published is None:
        yield "warning", "no publication date"
    for later in (advisory.modified, advisory.withdrawn):
        if later and advisory.published and later < advisory.published:
            yield "error", f"{later} is before it was published, {advisory.published}"
