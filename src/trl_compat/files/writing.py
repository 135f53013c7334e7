"""Files that are written so that a reader sees all of one or nothing."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomically(path: Path, text: str) -> None:
    """Writes a text in place of what is there; its folder is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}.draft")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)
