"""Environments of stacks: built from the lock, hard-linked from one cache, kept, never changed.

A damaged one is rebuilt.  The old one is moved aside first: other runs may be using it, and they
should detect the damage (:func:`wrong_with`) instead of losing their files.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import Version

from trl_compat.errors import HarnessError
from trl_compat.stacks.environments import NoWheel, cache, damage, locks, sdists, source_build
from trl_compat.stacks.environments.damage import Depth, Made
from trl_compat.stacks.environments.interpreters import Interpreter
from trl_compat.stacks.environments.lock_text import Entry, entries
from trl_compat.stacks.environments.source_build import Commit, Source, Target
from trl_compat.stacks.environments.uv import ONLY_WHEELS, uv
from trl_compat.stacks.environments.without_wheels import KNOWN, Allowed
from trl_compat.stacks.matrix import GIT, Stack

IN_USE = "in-use"


@dataclass(frozen=True)
class Environment:
    """A ready stack.

    Attributes:
        python: its interpreter.
        lock: what is in it.
        bytecode: a folder for its compiled Python modules, links to those in the cache.
        made: what it was when it was made.
        instance: tells it from another one that was made from the same lock at the same place.
    """

    python: Path
    lock: locks.Lock
    bytecode: Path
    made: Made
    instance: str

    @property
    def folder(self) -> Path:
        """All of it."""
        return self.python.parents[1]

    @property
    def sites(self) -> tuple[Path, ...]:
        """The folders that packages are in."""
        return tuple(sorted(self.folder.glob("lib/python*/site-packages")))

    @property
    def readable(self) -> tuple[Path, ...]:
        """What cells read of it elsewhere: nothing."""
        return ()

    @property
    def mend(self) -> str:
        """What to do when it is damaged."""
        return "run the same command again to rebuild it"

    def genuine(self, site: Path, hashes: dict[str, str]) -> dict[str, str]:
        """All of them: an environment of ours is compared with them before it is used."""
        return hashes

    def wrong(self, depth: Depth) -> str:
        """See :func:`wrong_with`."""
        return wrong_with(self, depth)


def ensure(name: str, stack: Stack) -> Environment:
    """The environment of a stack, from the cache if it is undamaged, or made now.

    Raises:
        Unresolvable: there is no such stack.
        Unavailable: an interpreter, index or repository is out of reach.
    """
    interpreter = locks.interpreter_of(stack)
    lock = locks.resolve(stack, interpreter)
    folder = cache.folder("environments") / f"{name}-{lock.sha256[:12]}"
    with cache.lock_file(folder), cache.machine_errors():
        _remove_strays(folder.parent)
        found = _at(folder, lock)
        if found is None or wrong_with(found, Depth.SIZES):
            put_aside(folder)
            make(folder, lock, stack, interpreter)
            damage.note(folder)
            cache.write(folder / "lock.txt", lock.text)  # last: with it the environment is complete
            found = _at(folder, lock)
        if found is None:
            raise HarnessError(f"the environment of {name} disappeared right after it was built")
        _use(folder)
    return found


def _remove_strays(environments: Path) -> None:
    """Removes files that no run of ours puts beside environments; cells once could write there."""
    for left in environments.iterdir():
        if left.suffix != ".lock" and (left.is_symlink() or not left.is_dir()):
            left.unlink(missing_ok=True)


def wrong_with(environment: Environment, depth: Depth) -> str:
    """What is wrong with an environment, in words; empty if it is as it was made."""
    if _instance(environment.folder) not in ("", environment.instance):
        return "another run found it damaged and rebuilt it"
    found = damage.find(environment.folder, environment.made, depth)
    if not found and _at(environment.folder, environment.lock) is None:
        found = ["its lock.txt is missing or has changed"]
    return damage.sentence(found) if found else ""


def _at(folder: Path, lock: locks.Lock) -> Environment | None:
    """The environment in a folder; None if none of this lock is complete there."""
    try:
        if (folder / "lock.txt").read_text(encoding="utf-8") != lock.text:
            return None
        instance = _instance(folder)
    except (OSError, UnicodeDecodeError):
        return None
    made = damage.noted(folder) or Made(_pins(lock))
    return Environment(folder / "bin" / "python", lock, folder / "pycache", made, instance)


def _instance(folder: Path) -> str:
    try:
        state = (folder / "lock.txt").stat()
    except OSError:
        return ""
    return f"{state.st_ino}-{state.st_mtime_ns}"


def _pins(lock: locks.Lock) -> frozenset[str]:
    """What a lock says of an environment that has no notes; a commit has any version."""
    return frozenset(
        f"{name}=={'' if version.startswith('git+') else version}"
        for name, version in lock.packages.items()
    )


_in_use: dict[Path, int] = {}


def _use(folder: Path) -> None:
    """Lets other runs know that this process uses an environment, and since when."""
    if folder not in _in_use:
        descriptor = os.open(folder / IN_USE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        os.utime(descriptor)
        _in_use[folder] = descriptor


def put_aside(folder: Path) -> None:
    """Takes away what is at an environment's place; it is removed when no run uses it any more."""
    aside = cache.folder("damaged")
    if folder.exists():
        folder.rename(aside / f"{folder.name}-{uuid.uuid4().hex[:8]}")
    if (descriptor := _in_use.pop(folder, None)) is not None:
        os.close(descriptor)
    for left in aside.iterdir():
        try:
            descriptor = os.open(left / IN_USE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError:
            shutil.rmtree(left, ignore_errors=True)
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)
        except OSError:
            pass  # a run uses it that has not noticed yet
        finally:
            os.close(descriptor)


def make(folder: Path, lock: locks.Lock, stack: Stack, interpreter: Interpreter) -> None:
    """Makes an environment with exactly what is in a lock.

    Raises:
        Unavailable: the index cannot be reached and the packages are not in the cache.
        BuildRefused: one of them has to be built, which the stack does not allow.
    """
    uv(["venv", "--quiet", "--python", interpreter.path, str(folder)])
    target = Target(interpreter, lambda: lock.torch, stack.as_of)
    _install(folder / "bin" / "python", entries(lock.text), target, Allowed.by(stack))
    if wrong := _unlike(folder, lock):
        raise HarnessError(f"{folder.name}: the installed packages differ from its lock: {wrong}")


def _install(python: Path, wanted: Sequence[Entry], target: Target, allowed: Allowed) -> None:
    install = ["pip", "install", "--quiet", "--no-deps", *ONLY_WHEELS, "--python", str(python)]
    by_name = {entry.name: entry for entry in wanted}
    from_source = [e.name for e in wanted if e.url or e.name in KNOWN]
    for name in from_source:
        if by_name[name].url:
            allowed.check(name, f"{name} comes from git ({by_name[name].url})", known=False)
    while True:
        wheels = "".join(entry.text for entry in wanted if entry.name not in from_source)
        try:
            uv([*install, "--require-hashes", "-r", "-"], text=wheels)
            break
        except NoWheel as error:
            name = canonicalize_name(error.package)
            if name in from_source or name not in by_name:
                raise
            what = f"{name} {by_name[name].version} has no wheel for this machine"
            allowed.check(name, what)
            from_source.append(name)
    for name in from_source:
        uv([*install, str(source_build.wheel(_source(by_name[name]), target))])


def _source(entry: Entry) -> Source:
    """What an entry of a lock is built from: its commit, or the file that has its hash."""
    if found := GIT.fullmatch(entry.url):
        return Commit(entry.name, found["url"], found["commit"])
    source = sdists.find(entry.name, entry.version)
    sdists.check_hash(source, entry.hashes)
    return source


def _unlike(folder: Path, lock: locks.Lock) -> str:
    """How what is installed differs from a lock; markers may leave something of it out."""
    installed = dict(pin.split("==") for pin in damage.distributions(folder))
    for entry in entries(lock.text):
        found = installed.pop(entry.name, "")
        if not found and not entry.marker:
            return f"{entry.name} is missing"
        if found and entry.version and Version(found) != Version(entry.version):
            return f"{entry.name} {found} instead of {entry.version}"
    return f"{min(installed)} was added" if installed else ""
