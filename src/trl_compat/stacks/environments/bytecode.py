"""Bytecode of packages: compiled once per machine, and shared by hard links by all stacks.

What stands in the store is executed in every stack that has the wheel.  So only the harness writes
there, from sources that have the hash that the wheel's RECORD names, with an interpreter that runs
nothing of the stack (:mod:`.compile_sources`).  Stacks read their bytecode and never write any: a
parent says which sources it had to compile (:func:`add`), and that selects files, no more.

Only what some stack has imported is compiled.  Of a release that is new on this machine, those
modules are compiled before its first import that other releases of the package had needed.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from packaging.utils import canonicalize_name

from trl_compat.errors import HarnessError
from trl_compat.machine import commands
from trl_compat.stacks.environments import cache
from trl_compat.stacks.providing import Environment

COMPILER = Path(__file__).with_name("compile_sources.py")
# So many of a package's releases are asked which modules are imported.
ASKED = 5
# Fewer sources than this are not worth another process.
FEW = 40
ABOUT = (
    "import json, sys, sysconfig; "
    "print(json.dumps([sys.implementation.cache_tag, sys.version, sysconfig.get_path('stdlib')]))"
)


@dataclass(frozen=True)
class Library:
    """A package of a stack, or the standard library: its sources and where their bytecode is kept.

    Attributes:
        name: canonical name.
        root: the folder that its modules' paths are relative to.
        hashes: what RECORD says of each source, by path; nothing for the standard library.
        kept: its folder in the store.
    """

    name: str
    root: str
    hashes: dict[str, str]
    kept: Path


@dataclass(frozen=True)
class Python:
    """What of an interpreter matters for bytecode."""

    tag: str
    version: str
    library: str


def prepare(environment: Environment) -> None:
    """Gives a stack the bytecode of everything that is known to be imported."""
    python = _python(str(environment.python))
    environment.bytecode.mkdir(exist_ok=True)
    for library in _libraries(environment, python):
        wanted = {
            path
            for folder in _releases(library)
            for path in _sources_kept(folder)
            if not library.hashes or path in library.hashes
        }
        _provide(environment, python, {f"{library.root}/{p}": (library, p) for p in wanted})


def add(environment: Environment, sources: Iterable[object]) -> int:
    """Compiles what a parent of the stack had to compile itself; how many modules that gave.

    Args:
        sources: paths, as the parent named them; only sources of the stack's packages count.
    """
    python = _python(str(environment.python))
    libraries = list(_libraries(environment, python))
    found = {}
    for source in sources:
        if isinstance(source, str) and (place := _place(source, libraries)):
            found[source] = place
    return _provide(environment, python, found)


def _place(source: str, libraries: Iterable[Library]) -> tuple[Library, str] | None:
    """The library that a source is of, and its path in there; None if it is of none."""
    if not source.endswith(".py") or os.path.normpath(source) != source:
        return None
    for library in libraries:
        for path in (source, os.path.realpath(source)):
            inside = path.removeprefix(f"{library.root}/")
            if inside == path:
                continue
            if inside in library.hashes or (not library.hashes and _is_standard(inside)):
                return library, inside
    return None


def _is_standard(path: str) -> bool:
    return not {"site-packages", "dist-packages", ".."} & set(PurePosixPath(path).parts)


def _provide(
    environment: Environment, python: Python, sources: dict[str, tuple[Library, str]]
) -> int:
    """Links the bytecode of sources into a stack's folder, after compiling what is not there."""
    jobs = {
        source: (source, library.hashes.get(path, ""), str(library.kept / f"{path}c"))
        for source, (library, path) in sources.items()
    }
    _compile(environment, [job for job in jobs.values() if not os.path.exists(job[2])])
    linked = 0
    made: set[str] = set()
    for source, _, kept in jobs.values():
        folder, _, name = f"{environment.bytecode}{source}".rpartition("/")
        if folder not in made:
            os.makedirs(folder, exist_ok=True)
            made.add(folder)
        linked += _link(kept, f"{folder}/{name.removesuffix('.py')}.{python.tag}.pyc")
    return linked


def _link(kept: str, place: str) -> bool:
    try:
        os.link(kept, place)
    except FileNotFoundError:
        return False  # it cannot be compiled
    except FileExistsError:
        return True
    except OSError:  # a file system without links, or too many of them
        shutil.copy2(kept, place)
    return True


def _compile(environment: Environment, jobs: list[tuple[str, str, str]]) -> None:
    """Compiles sources on as many cores as is worth it."""
    if not jobs:
        return
    shares = max(1, min(os.cpu_count() or 1, len(jobs) // FEW))
    with contextlib.suppress(OSError):  # a source that is gone is found by the compiler
        jobs.sort(key=lambda job: os.path.getsize(job[0]), reverse=True)
    command = [str(environment.python), "-I", "-S", "-B", str(COMPILER)]
    texts = [json.dumps(jobs[n::shares]) for n in range(shares)]
    with ThreadPoolExecutor(shares) as pool, cache.machine_errors():
        for done in pool.map(lambda text: commands.run(command, env={}, text=text), texts):
            if done.returncode:
                said = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
                raise HarnessError(f"compiling a stack's modules failed: {said}")


@functools.cache
def _python(path: str) -> Python:
    done = commands.run([path, "-I", "-S", "-B", "-c", ABOUT], env={})
    if done.returncode:
        raise HarnessError(f"{path} cannot be started: {done.stderr.strip()[-200:]}")
    return Python(*json.loads(done.stdout))


def _libraries(environment: Environment, python: Python) -> Iterator[Library]:
    """The standard library and the packages of a stack."""
    store = cache.folder("bytecode") / python.tag
    state = os.stat(f"{python.library}/os.py")
    standard = f"{python.library} {python.version} {state.st_mtime_ns}"
    yield Library("python", python.library, {}, store / f"python-{_digest(standard)}")
    for site in environment.sites:
        for info in sorted(site.glob("*.dist-info")):
            name, _, version = info.name.removesuffix(".dist-info").partition("-")
            hashes = environment.genuine(site, _hashes(info / "RECORD"))
            if hashes:
                text = "\n".join(f"{path} {value}" for path, value in sorted(hashes.items()))
                name = str(canonicalize_name(name))
                folder = store / f"{name}-{version}-{_digest(text)}"
                yield Library(name, str(site), hashes, folder)


def _hashes(record: Path) -> dict[str, str]:
    """What a RECORD says of the sources below its own folder."""
    found = {}
    with contextlib.suppress(OSError, ValueError, csv.Error):
        for row in csv.reader(record.read_text(encoding="utf-8").splitlines()):
            if len(row) > 1 and row[0].endswith(".py") and row[1] and ".." not in row[0]:
                found[row[0]] = row[1]
    return found


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _releases(library: Library) -> list[Path]:
    """The folders of a library's releases in the store that were added to last, its own first."""
    others = [
        path
        for path in library.kept.parent.glob(f"{library.name}-*-*")
        if path != library.kept and path.name.count("-") == library.name.count("-") + 2
    ]
    others.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    return [library.kept, *others[:ASKED]]


def _sources_kept(folder: Path) -> Iterator[str]:
    """The paths of the sources of which a folder of the store holds the bytecode."""
    for root, _, files in os.walk(folder):
        inside = os.path.relpath(root, folder)
        for name in files:
            if name.endswith(".pyc"):
                yield name[:-1] if inside == "." else f"{inside}/{name[:-1]}"
