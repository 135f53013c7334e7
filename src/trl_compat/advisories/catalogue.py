"""The advisories of a folder: read strictly for runs, leniently for reading."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeVar

from trl_compat.advisories.invariant import Invariant
from trl_compat.advisories.schema import Advisory, Phase, Reproduction
from trl_compat.errors import BadInput
from trl_compat.files import documents
from trl_compat.files.models import FrozenModel
from trl_compat.text.nearest import unknown_name


class Catalogue(FrozenModel):
    """All advisories of a folder, by id, and the invariants beside them.

    Cells are about a *subject*: a failure that has a reproduction, or an invariant.
    """

    kind: Literal["catalogue"] = "catalogue"
    records: dict[str, Advisory]
    invariants: dict[str, Invariant] = {}

    @property
    def failures(self) -> tuple[str, ...]:
        """Ids of the failures that have a reproduction, in the order of their ids."""
        return tuple(
            sorted(i for i, r in self.records.items() if r.reproduction and not r.withdrawn)
        )

    @property
    def masks(self) -> tuple[Advisory, ...]:
        """Advisories that can stop another failure's scenario, those that do so first, first."""
        moments = [*Phase, None]
        masks = [r for r in self.records.values() if r.masks and not r.withdrawn]
        return tuple(sorted(masks, key=lambda mask: (moments.index(mask.phase), mask.id)))

    @property
    def subjects(self) -> tuple[str, ...]:
        """Ids of what cells can be about: the failures, then the invariants."""
        return (*self.failures, *sorted(self.invariants))

    def reproduction(self, subject: str) -> Reproduction:
        """How a failure is provoked, or an invariant measured."""
        reproduction = self[subject].reproduction
        assert reproduction is not None, f"{subject} has no cells of its own"
        return reproduction

    def __getitem__(self, subject: str) -> Advisory:
        """The record by which the cells of a failure or an invariant are judged."""
        return self.records.get(subject) or self._judged[subject]

    @cached_property
    def _judged(self) -> dict[str, Advisory]:
        valid = [r for _, r in sorted(self.records.items()) if not r.withdrawn]
        return {name: one.with_violations(valid) for name, one in self.invariants.items()}


Record = TypeVar("Record", Advisory, Invariant)
SHIPPED = Path(__file__).parents[1] / "shipped" / "advisories"


def load(folder: Path, reproductions: Path) -> Catalogue:
    """Reads every advisory of a folder and checks that each reproduction is there.

    Raises:
        BadInput: a broken record, a file whose name is not its id, a missing reproduction.
    """
    records = [_read(path, reproductions) for path in _files(folder)]
    return _catalogue(records, folder.parent / "invariants", reproductions)


def load_available(root: Path) -> Catalogue:
    """The records of a checkout, or, where the folder is none, those that the package came with."""
    checkouts = (root, Path(__file__).parents[3])  # the second where the package is editable
    for folder in (*(checkout / "advisories" for checkout in checkouts), SHIPPED):
        if any(folder.glob("*.yaml")):
            records = [_read(path, None) for path in _files(folder)]
            return _catalogue(records, folder.parent / "invariants", None)
    raise BadInput(
        f"{root} is not a checkout of trl-compat, and the package contains no advisories"
    )


def load_leniently(folder: Path, reproductions: Path | None = None) -> tuple[Catalogue, list[str]]:
    """Reads one by one: the records that are right, and a sentence for each that is left out.

    Without ``reproductions`` it does not matter whether these are there.
    """
    records, broken = {}, []
    for path in _files(folder):
        try:
            record = _read(path, reproductions)
            records[record.id] = record
        except BadInput as error:
            broken.append(f"left out: {error}")
    return Catalogue(records=records), broken


def _files(folder: Path) -> list[Path]:
    paths = sorted(folder.glob("*.yaml"))
    if not paths:
        raise BadInput(f"{folder}: no advisories found")
    return paths


def _catalogue(records: Iterable[Advisory], folder: Path, reproductions: Path | None) -> Catalogue:
    """The records with the invariants of a folder, which may be none.

    Raises:
        BadInput: a broken invariant, one that nobody has defined, an id or a fix named twice.
    """
    by_id = {record.id: record for record in records}
    found = [_read_as(Invariant, path, reproductions) for path in sorted(folder.glob("*.yaml"))]
    invariants = {invariant.id: invariant for invariant in found}
    if twice := sorted(by_id.keys() & invariants.keys()):
        raise BadInput(f"{folder}: '{twice[0]}' is the id of an advisory, too")
    fixes: dict[tuple[str, str], str] = {}
    for record in by_id.values():
        violated = sorted({s.violates for s in record.symptoms.values() if s.violates})
        for name in violated:
            if name not in invariants:
                unknown = unknown_name("invariant", name, invariants)
                raise BadInput(f"advisory {record.id} violates an {unknown}")
            for fix in (*record.fixes, *record.wrong_fixes):
                other = fixes.setdefault((name, fix.name), record.id)
                if other != record.id:
                    raise BadInput(
                        f"advisories {other} and {record.id} both have a fix '{fix.name}' for the "
                        f"invariant {name}; give one of them another name"
                    )
    return Catalogue(records=by_id, invariants=invariants)


def _read(path: Path, reproductions: Path | None) -> Advisory:
    return _read_as(Advisory, path, reproductions)


def _read_as(kind: type[Record], path: Path, reproductions: Path | None) -> Record:
    record = documents.load(path, kind)
    if record.id != path.stem:
        raise BadInput(f"{path}: id '{record.id}' must match the file name '{path.stem}'")
    if reproductions and record.reproduction:
        module = reproductions / f"{record.reproduction.module}.py"
        if not module.is_file():
            raise BadInput(f"{path}: reproduction {module.name} not found in {reproductions}")
    return record
