"""What somebody has, as every command takes it: a FILE, or the environment of an interpreter."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trl_compat.errors import BadInput

if TYPE_CHECKING:
    from trl_compat.stacks.sources import Source


def source_of(file: str | None, python: Path | None) -> Source:
    """The versions of a file or an environment; of this one where neither is named.

    Raises:
        BadInput: both are named, or the one that is cannot be read or installed.
    """
    from trl_compat.stacks import sources

    if file is not None and python is not None:
        raise BadInput("a file and --python: name one of the two")
    source = sources.installed(python) if file is None else sources.read(file)
    sources.refuse_doubtful(source)
    return source
