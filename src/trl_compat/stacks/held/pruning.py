"""What of the cache can be removed, why, and removing it.

Nothing that a run uses is removed: an environment's place is locked first, and the lock that its
users hold is asked for.  uv's cache belongs to the user, too: it is touched only on request, and
then only entries of builds of torch that no environment, ours or another's, is linked to.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
import re
import shutil
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from trl_compat.errors import BadInput
from trl_compat.stacks.environments import EnvironmentFailed, build, cache, interpreters, locks
from trl_compat.stacks.environments.uv import uv
from trl_compat.stacks.held.counting import Links
from trl_compat.stacks.held.inventory import Inventory, Kind, Thing
from trl_compat.stacks.held.uv_cache import CachedWheel
from trl_compat.stacks.matrix import GIT, Stack
from trl_compat.text.nearest import unknown_name

UNITS = {"h": 1 / 24, "d": 1, "w": 7}


@dataclass(frozen=True)
class Wanted:
    """What a matrix file still needs of the cache.

    Attributes:
        locks: the beginning of each stack's lock digest; empty if that is not known here.
        packages: every ``name==version`` of their locks, and their torch releases.
    """

    locks: Mapping[str, str]
    packages: frozenset[str]


@dataclass(frozen=True)
class Request:
    """What is to be removed.

    Attributes:
        wanted: what the stacks of the matrix need; None where there is no matrix file.
        unused_for: environments that were not used for that long, of any stack.
        stacks: only the environments of these.
        uv: entries of uv's cache, too.
    """

    wanted: Wanted | None
    unused_for: datetime.timedelta | None = None
    stacks: Collection[str] = ()
    uv: bool = False


@dataclass(frozen=True)
class Removal:
    """Something to remove: ``freed`` with everything that stands before it."""

    kind: Kind | None
    what: str
    why: str
    paths: tuple[Path, ...]
    freed: int


def wanted_by(stacks: Mapping[str, Stack]) -> Wanted:
    """What stacks need, from the locks that are kept; resolves nothing."""
    known: dict[str, str] = {}
    packages = set()
    for name, stack in stacks.items():
        packages.add(f"torch=={stack.torch}")
        # The build of a commit is kept under its name.
        for package in ("trl", "transformers", "deepspeed", "accelerate", "peft"):
            value = getattr(stack, package)
            found = GIT.fullmatch(value)
            packages.add(f"{package}=={found['commit'][:9] if found else value}")
        known[name] = ""
        with contextlib.suppress(EnvironmentFailed, BadInput):
            lock = locks.kept_lock(stack, interpreters.find(stack.python))
            if lock is not None:
                known[name] = lock.sha256[:12]
                packages |= {f"{n}=={v}" for n, v in lock.packages.items()}
    return Wanted(known, frozenset(packages))


def age(text: str) -> datetime.timedelta:
    """A time such as ``30d``, ``12h`` or ``2w``.

    Raises:
        BadInput: it is none.
    """
    found = re.fullmatch(r"(\d{1,5})([hdw])", text)
    if found is None:
        raise BadInput(f"'{text}' is not a time such as 30d, 12h or 2w")
    return datetime.timedelta(days=int(found[1]) * UNITS[found[2]])


def plan(held: Inventory, request: Request, now: float) -> list[Removal]:
    """What would be removed, the environments first.

    Raises:
        BadInput: there is no environment of a stack that was named.
    """
    environments = held.of(Kind.ENVIRONMENT)
    names = {thing.stack for thing in environments}
    for name in request.stacks:
        if name not in names:
            raise BadInput(unknown_name("environment", name, sorted(names)))
    links = Links()
    removals: list[Removal] = []
    left = []
    for thing in environments:
        if why := _why(thing, request, now):
            removals.append(_removal(thing, why, links))
        else:
            left.append(thing)
    needed = set(request.wanted.packages if request.wanted else ())
    needed |= {f"{name}=={version}" for one in left for name, version in one.packages.items()}
    if request.wanted is not None and not request.stacks:
        removals += [_removal(t, why, links) for t, why in _unneeded(held, needed)]
    removals += [_removal(t, "it was replaced", links) for t in held.of(Kind.DAMAGED)]
    if request.uv and held.uv is not None:
        removals += _of_uv(held.uv.wheels, needed, links)
    return removals


def _why(thing: Thing, request: Request, now: float) -> str:
    """Why an environment is to be removed; empty if it stays."""
    if request.stacks:
        return "it was named" if thing.stack in request.stacks else ""
    wanted = request.wanted
    if wanted is not None and thing.stack not in wanted.locks:
        return "the matrix has no such stack"
    if wanted is not None and wanted.locks[thing.stack] not in ("", thing.lock):
        return "the stack has another lock now"
    if request.unused_for is not None and thing.used is not None:
        idle = datetime.timedelta(seconds=now - thing.used)
        if idle >= request.unused_for:
            return f"not used for {idle.days} days"
    return ""


def _unneeded(held: Inventory, needed: Collection[str]) -> Iterator[tuple[Thing, str]]:
    """Build tools and wheels of releases that no stack has."""
    releases = {pin.partition("+")[0] for pin in needed}
    for thing in held.of(Kind.TOOLS):
        torch = thing.packages.get("torch")
        if torch and f"torch=={torch.partition('+')[0]}" not in releases:
            yield thing, f"no stack has torch {torch}"
    commits = {pin.rpartition("@")[2][:9] for pin in needed if "git+" in pin}
    for thing in held.of(Kind.WHEEL):
        ((name, label),) = thing.packages.items()
        if f"{name}=={label}" not in needed and label not in commits:
            yield thing, f"no stack has {name} {label}"


def _removal(thing: Thing, why: str, links: Links) -> Removal:
    what = f"{thing.kind} {thing.name}"
    return Removal(thing.kind, what, why, (thing.path,), links.add([thing.path]))


def _of_uv(wheels: Sequence[CachedWheel], needed: Collection[str], links: Links) -> list[Removal]:
    """The builds of torch in uv's cache that nobody needs or is linked to."""
    found = []
    releases = {pin.partition("+")[0] for pin in needed if pin.startswith("torch==")}
    for wheel in wheels:
        if wheel.pin in needed or (wheel.name == "torch" and _release(wheel) in releases):
            continue
        if links.hold_the_rest_of(wheel.archive):
            freed = links.add([wheel.archive])
            paths = (*wheel.entries, wheel.archive)
            why = "no environment has it, and no stack needs it"
            found.append(Removal(None, f"uv's {wheel.name} {wheel.version}", why, paths, freed))
    return found


def _release(wheel: CachedWheel) -> str:
    return wheel.pin.partition("+")[0]


def remove(
    removals: Sequence[Removal], held: Inventory, said: Callable[[Removal, str], object]
) -> None:
    """Removes what was planned; ``said`` is told of each, with the reason for which it stays.

    Raises:
        BadInput: the cache cannot be written.
    """
    of_uv = False
    for removal in removals:
        if removal.kind is None:
            for entry in removal.paths[:-1]:  # the archive is uv's to remove
                with cache.machine_errors():
                    entry.unlink(missing_ok=True)
            of_uv = True
            said(removal, "")
        else:
            said(removal, _remove(removal.paths[0], held.root))
    if of_uv:
        uv(["cache", "prune"])


def _remove(path: Path, root: Path) -> str:
    """Removes a folder of the cache; why not, if a run uses it."""
    lock = FileLock(f"{path}.lock")
    with cache.machine_errors():
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return "a run is making or checking it"
        try:
            if _used(path):
                return "a run uses it"
            # Moved first, so that nobody finds half of it.
            aside = root / "damaged" / f"{path.name}-{uuid.uuid4().hex[:8]}"
            if path.parent != aside.parent:
                aside.parent.mkdir(exist_ok=True)
                path.rename(aside)
                path = aside
            shutil.rmtree(path)
        except FileNotFoundError:
            return ""  # another one removed it
        finally:
            lock.release()
    return ""


def _used(path: Path) -> bool:
    """Whether a process holds the lock by which runs show that they use an environment."""
    try:
        descriptor = os.open(path / build.IN_USE, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(descriptor)
    return False
