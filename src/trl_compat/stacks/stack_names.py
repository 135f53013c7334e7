"""Names of the stacks of a matrix file, read without any dependency, for nox's parametrize."""

from __future__ import annotations

import re
from pathlib import Path


def stack_names(path: Path) -> list[str]:
    """The keys under ``stacks:``; the file is checked in full when it is run."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return []
    section = re.search(r"^stacks:\s*\n((?:[ #].*\n|\n)+)", text, re.M)
    return re.findall(r"^  ([a-z0-9][\w.+-]*):", section[1], re.M) if section else []
