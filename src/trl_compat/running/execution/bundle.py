"""The folder that goes into a cell: the runtime, the fixes, and the script that starts a rank.

It contains nothing else, so that adding it to a cell's path cannot add or shadow a package of the
stack.  The digest of the files that a cell can import is part of the cell's content key.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path

import trl_compat
from trl_compat.machine.gpus import SHARED
from trl_compat.running.execution import importable

SOURCE = Path(trl_compat.__file__).parent
MAIN = "rank_main.py"
PARTS = ("runtime", "fixes")
RANK_MAIN = """\
import sys
from pathlib import Path

from trl_compat.runtime.rank import run
from trl_compat.runtime.spec import CellSpec

run(CellSpec.read(Path(sys.argv[1])))
"""
PRELOAD_MAIN = """\
from trl_compat.runtime.preload import serve

serve()
"""


# The main of ranks that share a GPU: only their cells have it, and no other's result depends on it.
SHARED_GPU_MAIN = SOURCE / "machine" / "shared_gpu_main.py"


def contents() -> dict[str, bytes]:
    """Every file of the bundle by its path in it; what is made and what is digested are these."""
    files = [SOURCE / "__init__.py"]
    for part in PARTS:
        files += (p for p in sorted((SOURCE / part).rglob("*")) if p.is_file())
    package = SOURCE.name
    found = {
        f"{package}/{path.relative_to(SOURCE).as_posix()}": path.read_bytes()
        for path in files
        if "__pycache__" not in path.parts
    }
    return {
        **found,
        MAIN: RANK_MAIN.encode(),
        "preload_main.py": PRELOAD_MAIN.encode(),
    }


def make(folder: Path) -> Path:
    """Writes the bundle into a folder and gives the folder."""
    package = folder / SOURCE.name
    if not package.is_dir():
        draft = folder / "draft"
        shutil.rmtree(draft, ignore_errors=True)
        for name, content in contents().items():
            path = draft / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        # The package comes last: where it is, everything is.
        for path in sorted(draft.iterdir(), key=lambda path: path.is_dir()):
            path.rename(folder / path.name)
        draft.rmdir()
    return folder


def more(device: str) -> str:
    """The digest of what cells of a device have beside the bundle; empty if they have nothing."""
    if device != SHARED:
        return ""
    return hashlib.sha256(SHARED_GPU_MAIN.read_bytes()).hexdigest()


def share_gpu(folder: Path) -> None:
    """Lets the ranks of a bundle be started on one GPU."""
    (folder / MAIN).write_bytes(SHARED_GPU_MAIN.read_bytes())


def digest(files: Mapping[str, bytes], reproduction: bytes, entry: str | None) -> str:
    """SHA-256 over the files of a bundle that a cell can import.

    Args:
        files: the bundle, see :func:`contents`.
        reproduction: the text of the cell's reproduction.
        entry: of the cell's fix, ``module:function``.
    """
    total = hashlib.sha256()
    for name in sorted(importable.files_of_a_cell(files, reproduction, entry)):
        total.update(f"{name} {hashlib.sha256(files[name]).hexdigest()}\n".encode())
    return total.hexdigest()
