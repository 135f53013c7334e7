"""The folder that goes into a cell: the runtime, the fixes, and the script that a rank starts with.

It holds nothing else, so that putting it on a cell's path cannot add or shadow a package of the
stack.  Its digest is part of every cell's content key.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import trl_compat

SOURCE = Path(trl_compat.__file__).parent
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


def make(folder: Path) -> Path:
    """Writes the bundle into a folder and gives the folder."""
    package = folder / "trl_compat"
    if not package.is_dir():
        draft = folder / f"draft-{package.name}"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        shutil.copy(SOURCE / "__init__.py", draft)
        for part in PARTS:
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(SOURCE / part, draft / part, ignore=ignored)
        (folder / "rank_main.py").write_text(RANK_MAIN, encoding="utf-8")
        (folder / "preload_main.py").write_text(PRELOAD_MAIN, encoding="utf-8")
        draft.rename(package)
    return folder


def digest() -> str:
    """SHA-256 over the runtime; the fixes count only for the cells that use them."""
    total = hashlib.sha256()
    for path in sorted((SOURCE / "runtime").glob("*.py")):
        total.update(path.name.encode() + path.read_bytes())
    return total.hexdigest()


def fix_digest(entry: str | None) -> str:
    """SHA-256 of the module of a fix; empty without one or if the reproduction holds it."""
    module = (entry or "").partition(":")[0]
    path = SOURCE.parent / (module.replace(".", "/") + ".py")
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
