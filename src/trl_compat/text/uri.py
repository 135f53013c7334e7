"""The location of a file in findings, without folders of this machine."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote


def relative(path: str) -> str:
    """A path from here, with slashes; of a file that lies elsewhere the name alone."""
    given, here = Path(path), Path.cwd()
    whole = Path(os.path.normpath(here / given))
    return whole.relative_to(here).as_posix() if whole.is_relative_to(here) else given.name


def reference(path: str) -> str:
    """The same as a relative URI reference."""
    return quote(relative(path).encode(errors="surrogateescape"), safe="/~")
