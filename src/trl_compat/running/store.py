"""Observations on disk: one file per cell, written before the next cell starts.

A record keeps the raw observations, not the verdict, so that a corrected advisory corrects the
verdicts of earlier runs.  Its key describes everything that influenced it; a record with another
key than the current one is not used.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trl_compat.cells.observation import Launch, Observation
from trl_compat.cells.outcome import Outcome
from trl_compat.cells.plan import Cell
from trl_compat.files.writing import write_atomically


class ResolvedStack(BaseModel):
    """What a stack resolved to: the digest of its lock and the version of every package."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    lock_sha256: str
    packages: dict[str, str]


class CellRecord(BaseModel):
    """What was observed of a cell.

    Attributes:
        observations: one, or as many as were asked for (``--repeat``).
        confirmation: the run alone by plain ``torchrun`` after an outcome that surprised.
        run: the id of the run of the command that made the observations (see ``runs``).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: str
    cell_id: str
    surroundings: ResolvedStack | None
    observations: tuple[Observation, ...] = Field(min_length=1)
    confirmation: Observation | None = None
    run: str = ""

    @property
    def attempts(self) -> tuple[Observation, ...]:
        """Every run of the cell, in order."""
        return (*self.observations, *([self.confirmation] if self.confirmation else []))

    @property
    def started(self) -> bool:
        """Whether its stack got as far as running."""
        return all(seen.not_started is None for seen in self.observations)

    @classmethod
    def of_nothing(cls, seen: Observation, cell: Cell, run: str) -> CellRecord:
        """The record of a cell of which nothing is known; without a key it is never reused."""
        return cls(key="", cell_id=cell.id, surroundings=None, observations=(seen,), run=run)

    @property
    def by_torchrun(self) -> bool:
        """Whether plain ``torchrun`` started its ranks, as far as any were started."""
        started = (seen for seen in self.observations if seen.not_started is None)
        return all(seen.launch is Launch.TORCHRUN for seen in started)

    @property
    def final(self) -> bool:
        """Whether it says something about the stack, so that the cell need not run again.

        That there is no such stack is final under a key: that of the kept answer.
        """
        return all(seen.final or (self.key and unresolvable(seen)) for seen in self.attempts)


def unresolvable(seen: Observation) -> bool:
    """Whether nothing ran because there is no such stack."""
    return seen.not_started is not None and seen.not_started[0] is Outcome.UNRESOLVABLE


class Store:
    """The folder of records."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "cells"
        self._read: dict[str, tuple[tuple[int, int], CellRecord]] = {}

    def read(self, cell_id: str) -> CellRecord | None:
        """The record of a cell; None if there is none or it cannot be read (then it runs again).

        A record is asked for many times (a control once for each cell that it vouches for), and
        read once for each time that it is written.
        """
        path = self._path(cell_id)
        try:
            state = path.stat()
            version = (state.st_mtime_ns, state.st_ino)
            if cell_id not in self._read or self._read[cell_id][0] != version:
                record = CellRecord.model_validate_json(path.read_bytes())
                self._read[cell_id] = (version, record)
            return self._read[cell_id][1]
        except (OSError, ValidationError):
            return None

    def current(self, cell: Cell, key: str) -> CellRecord | None:
        """The record of a cell if it was observed under this key and says something final."""
        record = self.read(cell.id)
        if record is None or record.key != key:
            return None
        # What a machine could not reach yesterday it may reach today.
        return record if record.final else None

    def write(self, record: CellRecord) -> None:
        """Keeps a record, atomically."""
        write_atomically(self._path(record.cell_id), record.model_dump_json())

    def _path(self, cell_id: str) -> Path:
        return self._folder / f"{cell_id}.json"


def content_key(
    cell: Cell,
    *,
    lock_sha256: str,
    conditions: dict[str, object],
    reproduction_digest: str,
    model_digest: str,
    bundle_digest: str,
) -> str:
    """Digest of everything that can change what is observed in a cell.

    The advisory's text is not part of it: verdicts are decided anew from what was observed.
    """
    parts = [
        cell.id,
        lock_sha256,
        json.dumps(conditions, sort_keys=True),
        reproduction_digest,
        model_digest,
        bundle_digest,
        cell.entry or "",
        cell.device,
        *filter(None, [cell.code]),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
