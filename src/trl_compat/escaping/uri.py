"""The place of a file, for services that show findings beside it: no folders of this machine."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote


def relative(path: str) -> str:
    """A path from here, with slashes; of a file that lies elsewhere the name alone."""
    given, here = Path(path), Path.cwd()
    whole = here / given
    for one, base in ((whole, here), (whole.resolve(), here.resolve())):
        if one.is_relative_to(base) and ".." not in one.relative_to(base).parts:
            return one.relative_to(base).as_posix()
    return given.name


def reference(path: str) -> str:
    """The same as a relative URI reference."""
    return quote(relative(path).encode(errors="surrogateescape"), safe="/~")
