"""What the harness's cache holds, thing by thing; reads only.

A file or folder that no version of the harness puts there is named and nothing else.
"""

from __future__ import annotations

import enum
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trl_compat.stacks.environments import build, damage
from trl_compat.stacks.environments.lock_text import packages_of
from trl_compat.stacks.held import torch_builds, uv_cache
from trl_compat.stacks.held.counting import Ledger, Size
from trl_compat.stacks.held.uv_cache import UvCache


class Kind(enum.StrEnum):
    """What something in the cache is; ``plural`` is its word in lists."""

    plural: str

    def __new__(cls, value: str, plural: str) -> Kind:  # noqa: D102
        member = str.__new__(cls, value)
        member._value_ = value
        member.plural = plural
        return member

    ENVIRONMENT = "environment", "environments"
    TOOLS = "build-tools", "environments with build tools"
    WHEEL = "wheel", "wheels built from source"
    CLONE = "git-clone", "git clones"
    LOCK = "lock", "locks"
    BYTECODE = "bytecode", "compiled modules that environments share"
    DAMAGED = "damaged", "damaged environments that a run still used"
    OTHER = "not-recognized", "not recognized"


# Folder of the cache: what is in it.
FOLDERS = {
    "environments": Kind.ENVIRONMENT,
    "build": Kind.TOOLS,
    "wheels": Kind.WHEEL,
    "git": Kind.CLONE,
    "locks": Kind.LOCK,
    "bytecode": Kind.BYTECODE,
    "damaged": Kind.DAMAGED,
}
# What lies beside them, and is no more than a few bytes.
BESIDE = re.compile(r".*\.lock|last-traceback.*|traceback.*")
ENVIRONMENT = re.compile(r"(?P<stack>.+)-(?P<lock>[0-9a-f]{12})")
WHEEL = re.compile(r"(?P<name>.+?)-(?P<label>[^-]+)-py[\d.]+-[0-9a-f]{12}")


@dataclass(frozen=True)
class Thing:
    """One thing in the cache.

    Attributes:
        stack: of an environment: the stack that it was made for; ``lock`` its digest's beginning.
        packages: what is in an environment; of a wheel, its package and release or commit.
        used: when an environment was last used, in seconds since 1970.
        problem: why it is not what its place says; it is left alone.
    """

    kind: Kind
    path: Path
    size: Size = field(default_factory=Size)
    stack: str = ""
    lock: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)
    used: float | None = None
    problem: str = ""

    @property
    def name(self) -> str:
        """Its folder's name."""
        return self.path.name


@dataclass(frozen=True)
class TorchBuild:
    """A build of torch with what comes with it, and the environments that have it."""

    version: str
    size: int
    stacks: tuple[str, ...]


@dataclass(frozen=True)
class Inventory:
    """All that is held; ``total`` counts each file once."""

    root: Path
    things: tuple[Thing, ...]
    builds: tuple[TorchBuild, ...]
    uv: UvCache | None
    total: int

    def of(self, kind: Kind) -> tuple[Thing, ...]:
        """The things of a kind."""
        return tuple(thing for thing in self.things if thing.kind is kind)


def take(root: Path, uv_folder: Path | None, progress: Callable[[str], object] = str) -> Inventory:
    """Looks through the cache, and through uv's.

    Args:
        root: the harness's cache.
        uv_folder: uv's; None where it cannot be told.
        progress: is told what is measured next.
    """
    ledger = Ledger()
    things = []
    for thing in found(root):
        progress(thing.name)
        things.append(_with_size(thing, ledger))
    uv = None
    if uv_folder is not None and uv_folder.is_dir():
        progress("uv's cache")
        uv = uv_cache.look(uv_folder, ledger)
    return Inventory(root, tuple(things), tuple(_builds(things)), uv, ledger.total)


def found(root: Path) -> Iterator[Thing]:
    """Everything in the cache, not measured."""
    for top in _entries(root):
        kind = FOLDERS.get(top.name)
        if kind is None or top.is_symlink() or not top.is_dir():
            if not BESIDE.fullmatch(top.name):
                yield Thing(Kind.OTHER, top, problem="the harness puts nothing of that name here")
            continue
        if kind in (Kind.LOCK, Kind.BYTECODE):
            if any(_entries(top)):
                yield Thing(kind, top)
            continue
        for path in _entries(top):
            if not BESIDE.fullmatch(path.name):
                yield _look(kind, path)


def _look(kind: Kind, path: Path) -> Thing:
    if path.is_symlink() or not path.is_dir():
        return Thing(Kind.OTHER, path, problem="a folder is expected here")
    match kind:
        case Kind.ENVIRONMENT:
            return _environment(path)
        case Kind.TOOLS:
            return Thing(kind, path, packages=_installed(path))
        case Kind.WHEEL if named := WHEEL.fullmatch(path.name):
            return Thing(kind, path, packages={named["name"]: named["label"]})
        case Kind.WHEEL:
            return Thing(Kind.OTHER, path, problem="not a wheel that the harness built")
        case _:
            return Thing(kind, path)


def _environment(path: Path) -> Thing:
    named = ENVIRONMENT.fullmatch(path.name)
    if named is None:
        return Thing(Kind.OTHER, path, problem="its name is not that of an environment")
    try:
        data = (path / "lock.txt").read_bytes()
        packages = packages_of(data.decode("utf-8"))
    except (OSError, UnicodeDecodeError):
        why = "it has no readable lock.txt: it was not completed, or is being built"
        return Thing(Kind.OTHER, path, problem=why)
    if not hashlib.sha256(data).hexdigest().startswith(named["lock"]):
        return Thing(Kind.OTHER, path, problem="its lock.txt is not the one that it was made from")
    used = None
    for name in (build.IN_USE, "lock.txt"):
        try:
            used = max(used or 0.0, (path / name).stat().st_mtime)
        except OSError:
            continue
    return Thing(
        Kind.ENVIRONMENT,
        path,
        stack=named["stack"],
        lock=named["lock"],
        packages=packages,
        used=used,
    )


def _installed(folder: Path) -> dict[str, str]:
    return {name: version for name, version, _ in damage.dist_infos(folder)}


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder / name for name in os.listdir(folder))
    except OSError:
        return []


def _with_size(thing: Thing, ledger: Ledger) -> Thing:
    return Thing(**{**vars(thing), "size": ledger.measure(thing.path)})


def _builds(things: list[Thing]) -> Iterator[TorchBuild]:
    """The builds of torch in environments, the largest first."""
    by_version: dict[str, list[Thing]] = {}
    for thing in things:
        if thing.kind is Kind.ENVIRONMENT and (version := thing.packages.get("torch")):
            by_version.setdefault(version, []).append(thing)
    made = []
    for version, users in by_version.items():
        pins: dict[str, int] = {}
        for user in users:
            of_build = torch_builds.build_of(user.packages)
            wanted = {f"{n}=={v}" for n, v in of_build.items()} - set(pins)
            if wanted:
                all_sizes = torch_builds.sizes(user.path)
                pins |= {pin: all_sizes.get(pin, 0) for pin in wanted}
        stacks = dict.fromkeys(user.stack for user in users)
        made.append(TorchBuild(version, sum(pins.values()), tuple(stacks)))
    yield from sorted(made, key=lambda one: -one.size)
