"""What a node needs of a run: the order, and the files that cells read.

Nodes need no checkout and share no folder with the command.  The package itself must be installed
there, the same one as here: what a record is worth depends on the code that made it.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

import trl_compat
from trl_compat.cells.plan import Cell
from trl_compat.files.project import Project
from trl_compat.running.campaign import RunSpec
from trl_compat.running.store import CellRecord, Store

ORDER, FILES, TASK = "order.json", "files.zip", "task.json"
SOURCE = Path(trl_compat.__file__).parent


class Task(BaseModel):
    """A batch for a node.

    Attributes:
        code: the digest of the package that made the batch.
        cells: what to run, of one stack.
        lock: the text of the stack's lock.
        records: what is known of these cells, and of the controls of cells whose control is not
            among them.
        jobs: how many batches a node runs at a time.
    """

    code: str
    cells: list[Cell]
    lock: str
    records: list[CellRecord]
    jobs: int


@dataclass(frozen=True)
class Unpacked:
    """A parcel on its node: the order as it is there, and the store that records are kept in."""

    order: RunSpec
    store: Store
    task: Task


def code_digest() -> str:
    """The digest of every module of this package; what it ships of a checkout is sent along."""
    total = hashlib.sha256()
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE)
        if name.parts[0] != "shipped" or len(name.parts) == 2:
            total.update(f"{name} ".encode() + path.read_bytes())
    return total.hexdigest()


def files_of(project: Project) -> bytes:
    """An archive of what cells read of a project: reproductions and models."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for folder in (project.reproductions, project.models):
            for path in sorted(folder.rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    archive.write(path, path.relative_to(project.root))
    return packed.getvalue()


def order_text(order: RunSpec, todo: Sequence[Cell]) -> str:
    """A campaign as text, without its cells and with the stacks of ``todo`` only."""
    wanted = {cell.stack for cell in todo}
    stacks = {name: stack for name, stack in order.matrix.stacks.items() if name in wanted}
    nothing: dict[str, object] = {"profiles": {}, "excludes": (), "grids": {}}  # they name others
    short = order.matrix.model_copy(update={"stacks": stacks, **nothing})
    lighter = order.model_copy(update={"cells": [], "matrix": short})
    return lighter.model_dump_json(by_alias=True)


def unpack(folder: Path) -> Unpacked:
    """The parcel that lies in a folder, opened there."""
    root = folder / "project"
    with zipfile.ZipFile(folder / FILES) as archive:
        archive.extractall(root)
    task = Task.model_validate_json((folder / TASK).read_bytes())
    order = RunSpec.model_validate_json((folder / ORDER).read_bytes())
    lock = folder / "lock.txt"
    lock.write_text(task.lock, encoding="utf-8")
    name = task.cells[0].stack
    stack = order.matrix.stacks[name].model_copy(update={"lock": lock})
    here = {
        "root": root,
        "matrix_file": root / "matrix.yaml",
        "reports": root / "reports",
        "state": root / ".trl-compat",
        "cells": task.cells,
        "matrix": order.matrix.model_copy(update={"stacks": {name: stack}}),
    }
    return Unpacked(order.model_copy(update=here), Store(root / ".trl-compat"), task)
