"""The instructions for a cell: one JSON file, read by every rank.

They state what to run (reproduction, variant, model, fix) and where, but no expectation, so nothing
inside a cell can know the outcome that the advisory predicts.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

# The exit status by which a rank says that it could not write its record (EX_IOERR).
UNRECORDED = 74


@dataclass(frozen=True)
class CellSpec:
    """One cell as its ranks see it.

    Attributes:
        cell: id of the cell, for messages.
        reproduction: path of the module that provokes the failure.
        variant: name of the variant; ``conditions`` are its settings (``strategy``, ``zero_stage``,
            ``fsdp_version`` ...); ``without_stand_in`` leaves one out, to show what
            it is for.
        model: name of the tiny model; ``model_dir`` is the folder it is loaded from.
        world_size: number of ranks, 2 to 8.
        device: ``cpu`` (gloo) or ``cuda`` (NCCL, one GPU per rank).
        fix: ``module:function`` to call before the scenario, or None.  The module is
            ``reproduction`` for fixes that exist only to be shown wrong.
        fix_code: the text of a fix's standalone form, to execute in its place; empty without one.
        folder: scratch folder of the cell; rank records and logs are written there.
    """

    cell: str
    reproduction: str
    variant: str
    conditions: dict[str, Any]
    model: str
    model_dir: str
    world_size: int
    device: str
    folder: str
    fix: str | None = None
    fix_code: str = ""
    seed: int = 7

    def write(self, path: Path) -> None:
        """Writes the spec as JSON."""
        path.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> CellSpec:
        """Reads what :meth:`write` wrote."""
        data = json.loads(path.read_text(encoding="utf-8"))
        return cls(**data)
