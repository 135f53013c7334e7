"""Locks and requirements of users, converted into locks that :mod:`.locks` can keep.

A complete source (a lock, a freeze, an environment) is used exactly: every version, and its hashes
if it has them.  Only missing hashes are looked up; nothing is resolved.  Incomplete requirements
are resolved as an installer would do it, without changing any pin.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from trl_compat.errors import BadInput
from trl_compat.files import reading
from trl_compat.stacks.environments import NoWheel, Unresolvable, git_sources, sdists
from trl_compat.stacks.environments.interpreters import Interpreter
from trl_compat.stacks.environments.lock_text import HASH, Entry, entries, is_hash, packages_of
from trl_compat.stacks.environments.locks import Lock, lock_of
from trl_compat.stacks.environments.resolving import Resolution
from trl_compat.stacks.environments.source_build import Commit
from trl_compat.stacks.environments.uv import ONLY_WHEELS, uv_said
from trl_compat.stacks.environments.without_wheels import KNOWN, Allowed
from trl_compat.stacks.matrix import GIT

ENTRY = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)(?:[^\n]*\\\n)*[^\n]*", re.M)
YANKED = re.compile(r"`(?P<what>[^`]+)` is yanked(?: \(reason: \"(?P<why>.*)\"\))?")

Hashes = Mapping[tuple[str, str], Sequence[str]]
"""The hashes that a lock has, by canonical name and version."""


@dataclass(frozen=True)
class ImportedLock:
    """A lock made from what a user brought.

    Attributes:
        yanked: releases in it that their publisher withdrew, each with the reason.
    """

    lock: Lock
    yanked: tuple[str, ...] = ()


def keep(
    pins: Sequence[str], hashes: Hashes, interpreter: Interpreter, allowed: Allowed
) -> ImportedLock:
    """The lock of exactly these pins.

    Raises:
        Unresolvable: one of them does not exist, or may not be built (BuildRefused).
        Unavailable: an index or a repository cannot be reached.
    """
    by_name = {_name(pin): pin for pin in pins}
    from_source = [name for name in by_name if name in KNOWN or Requirement(by_name[name]).url]
    for name in from_source:  # all of them before the first is fetched
        if url := Requirement(by_name[name]).url:
            allowed.check(name, f"{name} comes from git ({url})", known=False)
    command = ["pip", "compile", "-", "--no-deps", "--generate-hashes", "--no-header"]
    command += ["--no-annotate", *ONLY_WHEELS, "--python", interpreter.path]
    while True:
        wheels = [pin for name, pin in by_name.items() if name not in from_source]
        try:
            text, said = uv_said(command, text="".join(f"{pin}\n" for pin in wheels))
            break
        except NoWheel as error:
            name = canonicalize_name(error.package)
            if name in from_source or name not in by_name:
                raise
            release = by_name[name].replace("==", " ")
            allowed.check(name, f"{release} has no wheel for this machine")
            from_source.append(name)
    found = {entry.name: _with_hashes(entry, hashes) for entry in entries(text)}
    found |= {name: _source_entry(by_name[name], hashes) for name in from_source}
    yanked = (m["what"] + (f" ({m['why']})" if m["why"] else "") for m in YANKED.finditer(said))
    return ImportedLock(lock_of("".join(found[name] for name in sorted(found))), tuple(yanked))


def _with_hashes(entry: Entry, hashes: Hashes) -> str:
    """An entry with the hashes that its user's lock has, else those of the index."""
    own = list(hashes.get((entry.name, entry.version), ()))
    if not own and entry.hashes:
        return entry.text
    # uv names none for a file in a folder that it has not looked into.
    own = own or list(_hashes_of(sdists.files_of([f"{entry.name}=={entry.version}"])[entry.name]))
    return _entry(entry.name, entry.version, own)


def _source_entry(pin: str, hashes: Hashes) -> str:
    """The entry of what is to be built: its source's own hash, or its commit by its whole name."""
    requirement, name = Requirement(pin), _name(pin)
    if requirement.url:
        found = GIT.fullmatch(requirement.url)
        if found is None:
            raise Unresolvable(f"{pin}: only git+https://...@<commit> can be installed here")
        commit = git_sources.full_commit(found["url"], found["commit"])
        return Commit(name, found["url"], commit).entry
    (version,) = (one.version for one in requirement.specifier)
    if own := hashes.get((name, version)):
        return _entry(name, version, own)
    return sdists.entry_of(sdists.find(name, version))


def _entry(name: str, version: str, hashes: Sequence[str]) -> str:
    return " \\\n".join([f"{name}=={version}", *(f"    --hash={h}" for h in hashes)]) + "\n"


def _hashes_of(package: Mapping[str, Any]) -> Iterator[str]:
    for file in (*package.get("wheels", ()), package.get("sdist", {})):
        yield from (f"{kind}:{value}" for kind, value in file.get("hashes", {}).items())


def resolve(
    requirements: Sequence[str],
    as_of: datetime.date,
    interpreter: Interpreter,
    allowed: Allowed,
) -> ImportedLock:
    """The lock of requirements as an installer would take them on a day.

    Raises:
        Unresolvable: there is no such stack; the text is the resolver's reason.
        Unavailable: an index or a repository cannot be reached.
    """
    text = Resolution(requirements, as_of, interpreter, allowed).text()
    packages = packages_of(text)
    pins = [f"{n}=={v}" for n, v in packages.items() if not v.startswith("git+")]
    pins += [f"{n} @ {v}" for n, v in packages.items() if v.startswith("git+")]
    return keep(pins, {}, interpreter, allowed)


def _name(pin: str) -> str:
    return str(canonicalize_name(Requirement(pin).name))


def hashes_in(path: Path) -> Hashes:
    """The hashes in a lock file of any of the formats that :mod:`trl_compat.stacks.sources` reads.

    Raises:
        BadInput: one of them is none.
    """
    if path.suffix not in (".toml", ".lock"):
        text = reading.text_of(path)
        found = [(m["name"], m["version"], HASH.findall(m[0])) for m in ENTRY.finditer(text)]
    else:
        document = reading.toml_of(path)
        listed = document.get("package") or document.get("packages") or []
        try:
            found = [(p["name"], p.get("version", ""), list(_file_hashes(p))) for p in listed]
        except (AttributeError, KeyError, TypeError):
            raise BadInput(f"{path}: its hashes are misplaced; lock again") from None
    every: dict[tuple[str, str], list[str]] = {
        (canonicalize_name(n), v): sorted(set(hashes)) for n, v, hashes in found if hashes
    }
    for (name, version), ones in every.items():
        if wrong := next((one for one in ones if not is_hash(one)), None):
            raise BadInput(f"{path}: {name} {version}: '{wrong[:80]}' is not a hash; lock again")
    return every


def _file_hashes(package: Mapping[str, Any]) -> Iterator[str]:
    """uv and Poetry write ``hash``, PEP 751 writes ``hashes``, by kind."""
    for file in (package.get("sdist", {}), *package.get("wheels", ()), *package.get("files", ())):
        if "hash" in file:
            yield str(file["hash"])
        yield from (f"{kind}:{value}" for kind, value in file.get("hashes", {}).items())
