"""The files of an environment, to tell whether any of them changed.

Files of up to 16 MiB (every Python module, most libraries) are compared by SHA-256, larger ones by
size and time of their last change: reading several gigabytes of CUDA libraries from a cluster's
file system takes minutes.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from trl_compat.files.writing import write_atomically

LARGEST_HASHED = 16 * 2**20
COMPILED = "__pycache__"
# Says how and when something was installed, not what it is.
NOT_ITSELF = (".dist-info", ".egg-info")
OURS = "trl_compat"
OF_PACKAGES = ("-packages",)  # site-packages, dist-packages


@dataclass(frozen=True)
class File:
    """One file or link.

    Attributes:
        kind: ``file``, ``link`` or ``other``.
        size: in bytes; ``changed`` is when, in nanoseconds.
        sha256: of its content, or of a link's target; empty for a large file.
    """

    kind: str
    size: int
    changed: int
    mode: int
    sha256: str


Listing = Mapping[str, File]
"""The files of an environment by their paths."""


def of(folders: Iterable[Path], *, contents: bool = True) -> Listing:
    """The files below folders, and files that are named themselves.

    Of a folder that is no folder of packages (somebody's project, put on the path by
    ``pip install -e``) only the modules: there may be anything else in it.

    Args:
        contents: without it no file is read.
    """
    found = {}
    for folder in folders:
        for path in _files(str(folder)):
            file = _file(path, contents=contents)
            if file is not None:
                found[path] = file
    return found


def _files(folder: str) -> Iterator[str]:
    if not os.path.isdir(folder):
        yield folder
        return
    of_packages = folder.endswith(OF_PACKAGES) or os.path.basename(folder) == "bin"
    for place, folders, files in os.walk(folder):
        if not of_packages:
            hidden = [name for name in folders if name.startswith(".")]
            others = [n for n in folders if os.path.exists(os.path.join(place, n, "pyvenv.cfg"))]
            folders[:] = [name for name in folders if name not in (*hidden, *others)]
            files = [name for name in files if name.endswith(".py")]
        links = (name for name in folders if os.path.islink(os.path.join(place, name)))
        for name in (*files, *links):
            yield os.path.join(place, name)


def _file(path: str, *, contents: bool) -> File | None:
    try:
        info = os.lstat(path)
        digest, kind = "", "other"
        if stat.S_ISLNK(info.st_mode):
            kind, digest = "link", hashlib.sha256(os.readlink(path).encode()).hexdigest()
        elif stat.S_ISREG(info.st_mode):
            kind = "file"
            if contents and info.st_size <= LARGEST_HASHED:
                with open(path, "rb") as file:
                    digest = hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return None  # gone meanwhile, or nobody may read it
    return File(kind, info.st_size, info.st_mtime_ns, stat.S_IMODE(info.st_mode), digest)


def differences(before: Listing, after: Listing) -> list[str]:
    """What changed, a few words each: files added, removed and changed, by path."""
    changed = []
    for path in sorted({*before, *after}):
        old, new = before.get(path), after.get(path)
        if old is None:
            changed.append(f"{path} was added")
        elif new is None:
            changed.append(f"{path} was removed")
        elif _differ(path, old, new):
            changed.append(f"{path} was changed")
    return changed


def _differ(path: str, old: File, new: File) -> bool:
    if (old.kind, old.size, old.mode) != (new.kind, new.size, new.mode):
        return True
    if old.sha256 and not new.sha256 and old.changed != new.changed:
        new = _file(path, contents=True) or new  # touched, perhaps, and still the same
    if old.sha256 and new.sha256:
        return old.sha256 != new.sha256
    return old.changed != new.changed


def top(listing: Listing, folder: Path) -> set[str]:
    """The names of what is in a folder, by a listing."""
    base = f"{folder}{os.sep}"
    return {path.removeprefix(base).split(os.sep)[0] for path in listing if path.startswith(base)}


def compiled(path: str) -> bool:
    """Whether a path is that of bytecode, which any program that runs the environment may write."""
    return f"{os.sep}{COMPILED}{os.sep}" in path


def digest(
    listing: Listing, sites: Iterable[Path], packages: Mapping[str, str], python: str
) -> str:
    """What an environment is, in one digest that does not depend on where and when it was made.

    A package that was edited in place makes another environment.  How a package was installed, the
    package of this harness and compiled modules make none.
    """
    total = hashlib.sha256(f"python {python}\n".encode())
    for name, version in sorted(packages.items()):
        if name != OURS.replace("_", "-"):
            total.update(f"{name} {version}\n".encode())
    for number, site in enumerate(path.resolve() for path in sites):
        base = f"{site}{os.sep}"
        for path in sorted(path for path in listing if path.startswith(base)):
            inner = path.removeprefix(base)
            first = inner.split(os.sep)[0]
            if first == OURS or first.endswith(NOT_ITSELF) or compiled(path):
                continue
            file = listing[path]
            total.update(f"{number} {inner} {file.sha256 or file.size}\n".encode())
    return total.hexdigest()


def write(path: Path, listing: Listing) -> None:
    """Keeps a listing for the processes of a run."""
    rows = {
        name: [file.kind, file.size, file.changed, file.mode, file.sha256]
        for name, file in listing.items()
    }
    write_atomically(path, json.dumps(rows))


def read(path: Path) -> Listing:
    """A listing that was kept."""
    rows = json.loads(path.read_text(encoding="utf-8"))
    return {name: File(*row) for name, row in rows.items()}
