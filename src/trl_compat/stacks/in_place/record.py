"""An environment in place as data: what a stack of the matrix carries to the processes that run it.

It is read once, when a command begins; every worker of the run then compares with the same listing.
"""

from __future__ import annotations

from pathlib import Path

from trl_compat.files.models import FrozenModel


class InPlace(FrozenModel):
    """An environment that the harness did not make.

    Attributes:
        python: its interpreter, by the name by which the interpreter knows itself.
        sha256: digest of its packages and of the files of these; see :mod:`.listing`.
        packages: version or commit of every distribution.
        folders: what its packages are in, and its programs; ``sites`` are the former alone.
        readable: the files that a cell has to reach beside the interpreter's own folders.
        listing: the file with the listing of its files, made when the command began.
        bytecode: a folder of ours for its compiled modules.
    """

    python: Path
    sha256: str
    packages: dict[str, str]
    folders: tuple[Path, ...]
    sites: tuple[Path, ...]
    readable: tuple[Path, ...] = ()
    listing: Path
    bytecode: Path
