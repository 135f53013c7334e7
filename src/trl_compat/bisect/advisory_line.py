"""The line of an advisory that says where an edge is, and what it should say.

Pure.  The range of the block that covers the failing side is the one that ends at the edge; the
proposal replaces that bound only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from trl_compat.advisories import Advisory, Affected
from trl_compat.files import documents
from trl_compat.ranges import Answer, inside
from trl_compat.stacks.matrix import Stack


@dataclass(frozen=True)
class Line:
    """A range of an advisory.

    Attributes:
        file: its record, and ``line`` in it, from 1; 0 where the range is not there yet.
        now: the range as it is; ``""`` where no block covers the failing side.
        proposed: as the edge says; the same where they agree.
    """

    file: str
    line: int
    package: str
    now: str
    proposed: str

    @property
    def words(self) -> str:
        """Where it is and what it says."""
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f'{place}: {self.package}: "{self.now}"' if self.now else f"{place}: no such block"


def line_of(
    advisory: Advisory,
    file: Path,
    symptom: str | None,
    conditions: Mapping[str, Any],
    failing: Stack,
    package: str,
    versions: tuple[str, str],
) -> Line:
    """The line that an edge concerns.

    Args:
        advisory: of the failure, or of what masks it.
        file: where it is.
        symptom: what was seen on the failing side.
        conditions: of the variant.
        failing: the stack on the failing side.
        package: what was moved.
        versions: the passing and the failing release.
    """
    passing, fails = Version(versions[0]), Version(versions[1])
    shown = f"advisories/{file.name}"
    number = _block(advisory, symptom, conditions, failing, package)
    if number is None:
        bound = f">={fails}" if fails > passing else f"<={fails}"
        return Line(shown, 0, package, "", bound)
    now = advisory.affected[number].versions.get(package, "")
    line = _line(file, number, package)
    if now and inside(fails, now) and not inside(passing, now):
        return Line(shown, line, package, now, now)
    return Line(shown, line, package, now, proposed(now, passing, fails))


def _block(
    advisory: Advisory,
    symptom: str | None,
    conditions: Mapping[str, Any],
    failing: Stack,
    package: str,
) -> int | None:
    """The block that covers the failing stack, or would if the package's range were another."""
    alike = [
        number
        for number, block in enumerate(advisory.affected)
        if symptom in (None, block.symptom)
        and not block.commits
        and _without(block, package).answer(failing, conditions) is not Answer.NO
    ]
    covering = [n for n in alike if advisory.affected[n].covers(failing, conditions)]
    naming = [n for n in alike if package in advisory.affected[n].versions]
    return next(iter([*covering, *naming, *alike]), None)


def _without(block: Affected, package: str) -> Affected:
    rest = {p: range_ for p, range_ in block.versions.items() if p != package}
    return block.model_copy(update={"versions": rest})


def proposed(now: str, passing: Version, fails: Version) -> str:
    """A range whose bound on the side of the edge is moved to the edge; the other stays."""
    lower = fails > passing
    bounds = list(_bounds(now))
    strict = any(bound.startswith("<") and not bound.startswith("<=") for bound in bounds)
    if lower:
        return ",".join([f">={fails}", *(b for b in bounds if b[0] not in ">~")])
    kept = [b.replace("~=", ">=") for b in bounds if b[0] != "<"]
    return ",".join([*kept, f"<{passing}" if strict else f"<={fails}"])


def _bounds(range_: str) -> Iterator[str]:
    """The bounds of a range, the lower ones first; ``==`` is two of them."""
    found = sorted(SpecifierSet(range_), key=lambda one: (one.operator[0] not in ">~=", str(one)))
    for one in found:
        if one.operator == "==" and not one.version.endswith("*"):
            yield from (f">={one.version}", f"<={one.version}")
        else:
            yield str(one)


def _line(file: Path, number: int, package: str) -> int:
    """Where the range of a block stands in its file; 0 if it does not."""
    return documents.line_of(file, ("affected", number, "versions", package))
