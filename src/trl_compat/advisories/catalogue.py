"""The advisories of a folder: read strictly for runs, leniently for reading."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from trl_compat.advisories.schema import Advisory, Phase, Reproduction
from trl_compat.errors import BadInput
from trl_compat.files import documents
from trl_compat.files.models import FrozenModel


class Catalogue(FrozenModel):
    """All advisories of a folder, by id."""

    kind: Literal["catalogue"] = "catalogue"
    records: dict[str, Advisory]

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

    def reproduction(self, failure: str) -> Reproduction:
        """How a failure is provoked."""
        reproduction = self.records[failure].reproduction
        assert reproduction is not None, f"{failure} only masks others"
        return reproduction

    def __getitem__(self, failure: str) -> Advisory:
        return self.records[failure]


SHIPPED = Path(__file__).parents[1] / "shipped" / "advisories"


def load(folder: Path, reproductions: Path) -> Catalogue:
    """Reads every advisory of a folder and checks that each reproduction is there.

    Raises:
        BadInput: a broken record, a file whose name is not its id, a missing reproduction.
    """
    records = [_read(path, reproductions) for path in _files(folder)]
    return Catalogue(records={record.id: record for record in records})


def load_available(root: Path) -> Catalogue:
    """The records of a checkout, or, where the folder is none, those that the package came with."""
    checkouts = (root, Path(__file__).parents[3])  # the second where the package is editable
    for folder in (*(checkout / "advisories" for checkout in checkouts), SHIPPED):
        if any(folder.glob("*.yaml")):
            return Catalogue(records={r.id: r for r in (_read(p, None) for p in _files(folder))})
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


def _read(path: Path, reproductions: Path | None) -> Advisory:
    advisory = documents.load(path, Advisory)
    if advisory.id != path.stem:
        raise BadInput(f"{path}: id '{advisory.id}' must match the file name '{path.stem}'")
    if reproductions and advisory.reproduction:
        module = reproductions / f"{advisory.reproduction.module}.py"
        if not module.is_file():
            raise BadInput(f"{path}: reproduction {module.name} not found in {reproductions}")
    return advisory
