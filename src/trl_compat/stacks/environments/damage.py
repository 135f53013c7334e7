"""What is wrong with an environment, compared with its state after installation.

Environments are built once and never changed, but other programs write to the same disk: a ``pip
install`` into one, a cache cleaner, a full disk.  A cell in a damaged environment gives a wrong
result, so no result is accepted before this module finds no damage.

The depth of the check depends on the time available: distributions and versions from folder names
(a few milliseconds), every file's size by RECORD (two tenths of a second for twenty thousand
files), the content of every Python module (half a second).
"""

from __future__ import annotations

import base64
import csv
import enum
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from packaging.utils import canonicalize_name

from trl_compat.stacks.environments import cache

NOTES = "made.json"
# What uv's `venv` puts there besides packages, in some of its releases.
OF_UV = ("_virtualenv.py", "_virtualenv.pth")


class Depth(enum.IntEnum):
    """How far to look."""

    VERSIONS = 0
    SIZES = 1
    CONTENTS = 2


@dataclass(frozen=True)
class Made:
    """What an environment was when it was made.

    Attributes:
        packages: its distributions as ``name==version``; an empty version stands for any.
        python: the interpreter behind its own.
        settings: its ``pyvenv.cfg``.
        oddities: what was to be said of its files even then: packages overwrite each other's.
    """

    packages: frozenset[str]
    python: str = ""
    settings: str = ""
    oddities: frozenset[str] = frozenset()


@dataclass
class _Claims:
    """What the RECORDs say of one file; one of them is right where packages share it."""

    package: str
    sizes: set[int] = field(default_factory=set)
    hashes: set[str] = field(default_factory=set)


def note(folder: Path) -> None:
    """Writes down what an environment is, right after it was made."""
    made = Made(
        packages=frozenset(distributions(folder)),
        python=os.path.realpath(folder / "bin" / "python"),
        settings=(folder / "pyvenv.cfg").read_text(encoding="utf-8"),
        oddities=frozenset(_of_files(folder, contents=True)),
    )
    text = {
        name: sorted(value) if isinstance(value, frozenset) else value
        for name, value in vars(made).items()
    }
    cache.write(folder / NOTES, json.dumps(text, indent=1) + "\n")


def noted(folder: Path) -> Made | None:
    """What was written down of an environment; None if that is not there or cannot be read."""
    try:
        text = json.loads((folder / NOTES).read_text(encoding="utf-8"))
        return Made(
            packages=frozenset(text["packages"]),
            python=str(text["python"]),
            settings=str(text["settings"]),
            oddities=frozenset(text["oddities"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def find(folder: Path, made: Made, depth: Depth) -> list[str]:
    """What is wrong with an environment, the worst first; nothing if it is as it was made."""
    if not folder.is_dir():
        return ["it is missing"]
    found = list(_of_interpreter(folder, made))
    found += _of_versions(distributions(folder), made.packages)
    if depth > Depth.VERSIONS:
        of_files = _of_files(folder, contents=depth is Depth.CONTENTS)
        found += [one for one in of_files if one not in made.oddities]
    return found


def of_tools(folder: Path) -> bool:
    """Whether an environment of build tools has to be made (again)."""
    made = noted(folder)
    return made is None or bool(find(folder, made, Depth.SIZES))


def sentence(found: Iterable[str]) -> str:
    """The first of what was found, and how much more there is."""
    first, *more = found
    return f"{first} (and {len(more)} more)" if more else first


def _of_interpreter(folder: Path, made: Made) -> Iterator[str]:
    python = folder / "bin" / "python"
    if not os.access(python, os.X_OK) or not python.is_file():
        yield "its interpreter is missing"
    elif made.python and os.path.realpath(python) != made.python:
        yield "its interpreter was replaced"
    try:
        settings = (folder / "pyvenv.cfg").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        yield "its pyvenv.cfg is missing"
        return
    if made.settings and settings != made.settings:
        yield "its pyvenv.cfg was changed"
    elif re.search(r"^include-system-site-packages\s*=\s*true", settings, re.M | re.I):
        yield "it includes the packages of its base interpreter"


def _of_versions(found: Iterable[str], made: frozenset[str]) -> Iterator[str]:
    there = {pin.partition("==")[::2] for pin in found}
    wanted = {pin.partition("==")[::2] for pin in made}
    any_version = {name for name, version in wanted if not version}
    wanted = {(n, v) for n, v in wanted if v} | {(n, v) for n, v in there if n in any_version}
    missing, added = sorted(wanted - there), sorted(there - wanted)
    for name, version in missing:
        instead = [v for n, v in added if n == name and v]
        if instead:
            yield f"{name} {' and '.join(instead)} instead of {version}"
        else:
            yield f"{name} {version}: its dist-info is missing"
    yield from (f"{name}: it is missing" for name in sorted(any_version - {n for n, _ in there}))
    replaced = {name for name, _ in missing}
    for name, version in added:
        if name not in replaced:
            yield f"{name} {version} was added"


def _sites(folder: Path) -> list[str]:
    whole = Path(os.path.abspath(folder))
    return [str(path) for path in sorted(whole.glob("lib/python*/site-packages"))]


def _dist_infos(folder: Path) -> Iterator[tuple[str, str, str, str]]:
    """``site-packages``, the dist-info's path, canonical name and version of each distribution."""
    for site in _sites(folder):
        try:
            entries = sorted(os.scandir(site), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            if entry.name.endswith(".dist-info"):
                name, _, version = entry.name.removesuffix(".dist-info").partition("-")
                yield site, entry.path, str(canonicalize_name(name)), version


def dist_infos(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Canonical name, version and dist-info folder of each distribution."""
    for _, path, name, version in _dist_infos(folder):
        yield name, version, path


def distributions(folder: Path) -> set[str]:
    """``name==version`` of what is installed; what has no METADATA is not."""
    return {
        f"{name}=={version}"
        for _, path, name, version in _dist_infos(folder)
        if os.path.isfile(os.path.join(path, "METADATA"))
    }


def _of_files(folder: Path, *, contents: bool) -> Iterator[str]:
    claims: dict[str, _Claims] = {}
    for site, path, name, version in _dist_infos(folder):
        package = f"{name} {version}"
        try:
            _claim(site, path, package, claims)
        except (OSError, ValueError, csv.Error):
            yield f"{package}: its RECORD cannot be read"
    for path, claim in claims.items():
        if wrong := _wrong(path, claim, contents=contents and path.endswith(".py")):
            yield f"{claim.package}: {os.path.relpath(path, folder)} {wrong}"
    for site in _sites(folder):
        for path in _unclaimed(site, claims):
            yield f"{os.path.relpath(path, folder)} belongs to no package"


def _claim(site: str, dist_info: str, package: str, claims: dict[str, _Claims]) -> None:
    """Reads a RECORD; compiled modules are left out, which interpreters write themselves."""
    with open(os.path.join(dist_info, "RECORD"), encoding="utf-8", newline="") as file:
        for row in csv.reader(file):
            if not row or row[0].endswith(".pyc"):
                continue
            path = os.path.join(site, row[0])
            claim = claims.setdefault(os.path.normpath(path), _Claims(package))
            if len(row) > 2 and row[2].isascii() and row[2].isdigit():
                claim.sizes.add(int(row[2]))
            if len(row) > 1 and row[1]:
                claim.hashes.add(row[1])


def _wrong(path: str, claim: _Claims, *, contents: bool) -> str:
    try:
        state = os.stat(path)
    except FileNotFoundError:
        return "is missing"
    except OSError:
        return "cannot be read"
    if not stat.S_ISREG(state.st_mode):
        return "is not a file"
    if not state.st_mode & 0o444 or not os.access(path, os.R_OK):
        return "cannot be read"
    if claim.sizes and state.st_size not in claim.sizes:
        return "has a different size"
    if contents and claim.hashes and not _has_hash(path, claim.hashes):
        return "has different content"
    return ""


def _has_hash(path: str, wanted: Iterable[str]) -> bool:
    """Whether a file has one of the hashes, which RECORD writes as ``sha256=<base64>``."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError:
        return False
    for one in wanted:
        kind, _, value = one.partition("=")
        if kind not in hashlib.algorithms_available:
            return True  # it cannot be told
        digest = base64.urlsafe_b64encode(hashlib.new(kind, data).digest())
        if digest.rstrip(b"=").decode() == value:
            return True
    return False


def _unclaimed(site: str, claims: Mapping[str, object]) -> Iterator[str]:
    for folder, folders, files in os.walk(site):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(files):
            path = os.path.join(folder, name)
            if path not in claims and not (folder == site and name in OF_UV):
                yield path
