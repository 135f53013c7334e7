"""From an interpreter to a stack in place: what is installed there, and whether it can be used.

What cannot be used is refused in one sentence: an environment without torch, a package of which
only a part is there, one that cannot be imported.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.utils import canonicalize_name
from pydantic import ValidationError

from trl_compat.errors import BadInput
from trl_compat.packages import PACKAGES, REQUIRED_BY_TRL
from trl_compat.stacks import sources
from trl_compat.stacks.in_place import asking, listing
from trl_compat.stacks.in_place.asking import Interpreter
from trl_compat.stacks.in_place.record import InPlace
from trl_compat.stacks.matrix import Stack
from trl_compat.stacks.sources import Source
from trl_compat.stacks.sources.source import HOW_TO_PIN

REQUIRED = (*REQUIRED_BY_TRL, "trl")
FOLDER = "in-place"


@dataclass(frozen=True)
class Found:
    """An environment, ready to be run.

    Attributes:
        name: of its stack; the same packages with the same files have the same name.
        files: how many files it has.
        notes: what a reader should know about its versions, in sentences.
    """

    name: str
    stack: Stack
    record: InPlace
    interpreter: Interpreter
    files: int
    notes: tuple[str, ...] = ()


def examine(python: Path, state: Path) -> Found:
    """The environment of an interpreter as a stack.

    Args:
        python: the interpreter.
        state: a folder of ours for its listing and its compiled modules.

    Raises:
        BadInput: no cell can run there; says why.
    """
    interpreter = asking.ask(python)
    _refuse_inside(state, interpreter)
    named = f"--python {python}"
    try:
        source = sources.installed(interpreter.python, required=None)
    except BadInput as error:
        hint = "install a release there, or a commit by its address (git+https://...@<commit>)"
        raise BadInput(str(error).replace(HOW_TO_PIN, hint)) from None
    if missing := [package for package in REQUIRED if not _has(source, package)]:
        *others, last = missing
        what = f"{', '.join(others)} and {last} are" if others else f"{last} is"
        raise BadInput(
            f"{named}: {what} not installed there; name the interpreter of an environment with "
            "torch, TRL, transformers and accelerate"
        )
    installed = _distributions(interpreter)
    for package in PACKAGES:
        if package in installed:
            _refuse_partial(named, package, installed[package])
    files = listing.of(interpreter.folders)
    packages = {**source.versions, **source.commits}
    digest = listing.digest(files, interpreter.sites, packages, interpreter.version)
    # Compiled modules are those of one place, and the same packages may stand at another, too.
    place = hashlib.sha256(f"{interpreter.python} {digest}".encode()).hexdigest()[:12]
    folder = state / FOLDER / place
    listing.write(folder / "files.json", files)
    record = InPlace(
        python=interpreter.python,
        sha256=digest,
        packages=dict(sorted(packages.items())),
        folders=interpreter.folders,
        sites=interpreter.sites,
        readable=_outermost(_readable(interpreter, installed.values(), files)),
        listing=folder / "files.json",
        bytecode=folder / "bytecode",
    )
    return Found(
        name=_name(source, digest),
        stack=_stack(named, source, record, installed.values()),
        record=record,
        interpreter=interpreter,
        files=len(files),
        notes=source.notes,
    )


def _refuse_inside(state: Path, interpreter: Interpreter) -> None:
    """Refuses to write into the environment."""
    for folder in (*interpreter.folders, interpreter.prefix.resolve()):
        virtual = folder != interpreter.prefix.resolve() or (folder / "pyvenv.cfg").is_file()
        if virtual and folder in (state, *state.parents):
            raise BadInput(
                f"the results would be written into the environment ({folder}), which must not "
                "change; name another folder: --reports FOLDER"
            )


def _has(source: Source, package: str) -> bool:
    return package in source.versions or package in source.commits


def _distributions(interpreter: Interpreter) -> dict[str, Distribution]:
    """What is installed, by canonical name; the first on the path is the one that is imported."""
    found: dict[str, Distribution] = {}
    for distribution in distributions(path=[str(path) for path in interpreter.path]):
        if name := distribution.metadata["Name"]:
            found.setdefault(str(canonicalize_name(name)), distribution)
    return found


def _refuse_partial(named: str, package: str, distribution: Distribution) -> None:
    """Refuses a package whose modules are not there, or not all of them.

    Which there should be stands in its RECORD.  What an installer of another kind has left without
    one is seen when the package is imported.
    """
    modules = [
        file
        for file in distribution.files or ()
        if file.suffix in (".py", ".so") and file.parts[0] not in ("..", "bin")
    ]
    missing = [file for file in modules if not Path(str(file.locate())).exists()]
    if not missing:
        return
    version = distribution.version
    what = (
        "none of its modules is there"
        if len(missing) == len(modules)
        else f"{len(missing)} of its {len(modules)} modules are missing, {missing[0]} among them"
    )
    raise BadInput(
        f"{named}: {package} {version} is only half installed: {what}; reinstall it there"
    )


def _readable(
    interpreter: Interpreter, installed: Iterable[Distribution], files: listing.Listing
) -> Iterator[Path]:
    """What cells must reach that is not below the folders of the interpreter itself.

    Packages installed from a folder (``pip install -e``) lie anywhere, and so do the files of an
    installer that makes links.
    """
    yield from interpreter.path
    for distribution in installed:
        if folder := _source_folder(distribution):
            yield folder
    for path, file in files.items():
        if file.kind == "link":
            real = Path(os.path.realpath(path))
            yield real if real.is_dir() else real.parent


def _outermost(paths: Iterable[Path]) -> tuple[Path, ...]:
    """The folders that are in no other, without those that hold the user's home as well."""
    home = Path.home()
    found = {path for path in paths if path != home and path not in home.parents}
    return tuple(sorted(path for path in found if not any(p in found for p in path.parents)))


def _source_folder(distribution: Distribution) -> Path | None:
    """The folder that a package was installed from, if it is still used from there."""
    try:
        told = json.loads(distribution.read_text("direct_url.json") or "{}")
        url = urlsplit(told["url"])
        if url.scheme == "file" and told.get("dir_info", {}).get("editable"):
            return Path(unquote(url.path))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    return None


def _stack(named: str, source: Source, record: InPlace, installed: Iterable[Distribution]) -> Stack:
    versions = {p: source.versions.get(p) or source.commits.get(p, "") for p in PACKAGES}
    try:
        return Stack.model_validate(
            {
                "as_of": _last_installed(installed),
                "python": source.python,
                "in_place": record,
                **{package: version for package, version in versions.items() if version},
            }
        )
    except ValidationError as error:
        said = str(error.errors()[0]["msg"]).removeprefix("Value error, ")
        raise BadInput(f"{named}: {said}") from None


def _last_installed(installed: Iterable[Distribution]) -> datetime.date:
    """The day on which a package was last installed there: it stays while nothing changes."""
    latest = 0.0
    for distribution in installed:
        folder = getattr(distribution, "_path", None)
        if folder is not None:
            latest = max(latest, os.stat(folder).st_mtime)
    return datetime.datetime.fromtimestamp(latest, datetime.UTC).date()


def _name(source: Source, digest: str) -> str:
    """A name that tells the release of TRL, and one environment from another."""
    commit = source.commit("trl")
    trl = f"git-{commit[:9]}" if commit else source.versions["trl"]
    return f"installed-trl-{re.sub(r'[^a-z0-9.+-]', '-', trl.lower())[:30]}-{digest[:8]}"
