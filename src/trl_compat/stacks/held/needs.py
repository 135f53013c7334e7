"""What stacks will download and hold, known before anything is built.

Only stacks whose environment is not there yet are asked for.  uv itself says which of their
packages its cache lacks.  A stack that has no lock yet counts with its build of torch, which is
nearly all of it; the figures are then a lower bound, and say so.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from packaging.version import InvalidVersion, Version

from trl_compat.errors import BadInput, HarnessError
from trl_compat.stacks.environments import (
    EnvironmentFailed,
    cache,
    damage,
    interpreters,
    locks,
    resolving,
    settings,
)
from trl_compat.stacks.environments.interpreters import Interpreter
from trl_compat.stacks.environments.lock_text import Entry, entries
from trl_compat.stacks.environments.uv import ONLY_WHEELS, uv_said
from trl_compat.stacks.environments.without_wheels import KNOWN
from trl_compat.stacks.held import torch_builds, uv_cache, wheel_sizes
from trl_compat.stacks.held.render import counted, size
from trl_compat.stacks.held.wheel_sizes import WheelSize
from trl_compat.stacks.matrix import GIT, Stack

# What an environment takes for itself, mostly compiled modules: 77 to 126 MB were measured.
OF_ITS_OWN = 130 * 10**6
# What builds and cells write meanwhile, and what no figure here contains.
MARGIN = 2 * 10**9
CALLS_AT_A_TIME = 4
UNCACHED = re.compile(r"Identified uncached distribution: ([\w.-]+)==(\S+)")
DOWNLOADS = re.compile(r"Would download (\d+) packages?")
HOW = (
    "make room with 'trl-compat cache prune --uv --yes', or select less (--stack NAME, "
    "--profile smoke)"
)


@dataclass(frozen=True)
class Missing:
    """A stack without an environment, and the packages that it will have, as far as is known."""

    name: str
    interpreter: Interpreter
    packages: tuple[Entry, ...]
    complete: bool


@dataclass(frozen=True)
class Needs:
    """What environments need that are to be built.

    Attributes:
        stacks: their stacks.
        torch: the builds of torch that are downloaded.
        download: bytes.
        cache: bytes that uv's cache will hold more.
        environments: bytes that the environments hold for themselves: all of them where files
            cannot be linked from the cache.
        uncertain: something that is downloaded has no known size; all figures are lower bounds.
        copies_uncertain: something that is copied has none; ``environments`` is a lower bound.
    """

    stacks: tuple[str, ...]
    torch: tuple[str, ...]
    download: int
    cache: int
    environments: int
    uncertain: bool = False
    copies_uncertain: bool = False

    @property
    def total(self) -> int:
        """Bytes on the disk."""
        return self.cache + self.environments

    def sentence(self, free: int) -> str:
        """What is announced."""
        if self.download:
            source = f"{'at least ' * self.uncertain}{size(self.download)} to download"
            source += f" (torch {', '.join(self.torch)})" if self.torch else ""
        elif self.uncertain:
            source = "what is downloaded is not known yet"
        else:
            source = "every package is in uv's cache"
        held = f"{self.at_least}{size(self.total)} on disk, {size(free)} free"
        return f"{counted(self.stacks, 'environment')} to build: {source}; {held}"

    @property
    def at_least(self) -> str:
        """These words, where the bytes on disk are a lower bound."""
        return "at least " if self.uncertain or self.copies_uncertain else ""


@dataclass
class _Sum:
    """Figures that are being added up."""

    download: int = 0
    unpacked: int = 0
    uncertain: bool = False
    torch: dict[str, None] = field(default_factory=dict)
    by_pin: dict[str, int] = field(default_factory=dict)

    def add(self, pin: str, found: WheelSize) -> None:
        name, _, version = pin.partition("==")
        if name == "torch":
            self.torch[version] = None
        self.uncertain |= found.download is None or found.unpacked is None
        self.download += found.download or 0
        # What a wheel holds unpacked is never less than what was packed.
        self.by_pin[pin] = found.unpacked or found.download or 0
        self.unpacked += self.by_pin[pin]


def check(stacks: Mapping[str, Stack]) -> str:
    """What building the environments of these stacks takes, in a sentence.

    Returns:
        The sentence; empty where all of them are built.

    Raises:
        BadInput: the disk has less room than that.
    """
    lacking = list(missing(stacks))
    if not lacking:
        return ""
    of_uv, ours = uv_cache.folder() or cache.root(), cache.root() / "environments"
    linked = _linked(of_uv, ours)
    needed = needs(lacking, linked=linked)
    if linked or _device(of_uv) == _device(ours):
        places = {ours: needed.total}
    else:
        places = {of_uv: needed.cache, ours: needed.environments}
    for folder, least in places.items():
        if least + MARGIN > (free := _free(folder)):
            raise BadInput(
                f"the disk has too little room: building {counted(lacking, 'environment')} takes "
                f"{needed.at_least}{size(least)} and {size(MARGIN)} to work with, {size(free)} are "
                f"free in {_existing(folder)}; {HOW}"
            )
    return needed.sentence(_free(ours))


def missing(stacks: Mapping[str, Stack]) -> Iterator[Missing]:
    """The stacks whose environment is not there; without the packages of builds from source."""
    environments = cache.root() / "environments"
    unlocked: dict[tuple[str, str], Missing] = {}
    for name, stack in stacks.items():
        try:
            interpreter = interpreters.find(stack.python)
            digest = locks.kept(stack, interpreter)
            if digest and (environments / f"{name}-{digest[:12]}" / "lock.txt").is_file():
                continue
            if not digest and locks.refused(stack, interpreter):
                continue
            lock = locks.kept_lock(stack, interpreter)
        except (EnvironmentFailed, BadInput):
            continue  # said when its turn comes
        if lock is not None:
            found = tuple(e for e in entries(lock.text) if not e.url and e.name not in KNOWN)
            yield Missing(name, interpreter, found, complete=True)
            continue
        key = (stack.torch, interpreter.path)
        if key not in unlocked:
            unlocked[key] = Missing(name, interpreter, _of_torch(stack, interpreter), False)
        yield Missing(name, interpreter, unlocked[key].packages, complete=False)


def _of_torch(stack: Stack, interpreter: Interpreter) -> tuple[Entry, ...]:
    """A build of torch with its packages; nothing where that cannot be told now."""
    if GIT.fullmatch(stack.torch):
        return ()
    wanted = [f"torch=={stack.torch}"]
    try:  # without hashes: uv would read a file in a folder for its own
        text = resolving.compile_requirements(wanted, stack.as_of, interpreter, ONLY_WHEELS)
    except (EnvironmentFailed, HarnessError):
        return ()
    return tuple(entries(text))


def needs(lacking: Sequence[Missing], *, linked: bool) -> Needs:
    """What the environments of these stacks need.

    Args:
        lacking: the stacks.
        linked: environments get their files from uv's cache by links.
    """
    figures = _Sum(uncertain=not all(one.complete for one in lacking))
    by_interpreter: dict[Interpreter, dict[str, Entry]] = {}
    for one in lacking:
        wanted = by_interpreter.setdefault(one.interpreter, {})
        for entry in one.packages:
            wanted.setdefault(_pin(entry), entry)
    for interpreter, wanted in by_interpreter.items():
        uncached: dict[str, Entry] = {}
        for found in _asked(batches(list(wanted.values())), interpreter):
            if found is None:
                figures.uncertain = True
            else:
                uncached |= {pin: wanted[pin] for pin in found if pin in wanted}
        for batch in batches(list(uncached.values())):
            sizes = wheel_sizes.measure(batch, interpreter)
            for entry in batch:
                figures.add(_pin(entry), sizes.get(_pin(entry), WheelSize()))
    copies, unknown = (0, False) if linked else _copies(lacking, figures.by_pin)
    return Needs(
        stacks=tuple(one.name for one in lacking),
        torch=tuple(sorted(figures.torch, key=_by_version)),
        download=figures.download,
        cache=figures.unpacked,
        environments=len(lacking) * OF_ITS_OWN + copies,
        uncertain=figures.uncertain,
        copies_uncertain=unknown,
    )


def batches(wanted: Sequence[Entry]) -> list[list[Entry]]:
    """Packages in groups that have each package once, as one call of uv takes them."""
    groups: list[list[Entry]] = []
    count: dict[str, int] = {}
    for entry in wanted:
        number = count.get(entry.name, 0)
        count[entry.name] = number + 1
        if number == len(groups):
            groups.append([])
        groups[number].append(entry)
    return groups


def _asked(
    groups: Sequence[Sequence[Entry]], interpreter: Interpreter
) -> Iterable[list[str] | None]:
    """What uv says of each group, several at a time: a call mostly waits."""
    with ThreadPoolExecutor(CALLS_AT_A_TIME) as threads:
        return list(threads.map(lambda group: _uncached(group, interpreter), groups))


def _uncached(wanted: Sequence[Entry], interpreter: Interpreter) -> list[str] | None:
    """The ``name==version`` that uv would have to download; None where it does not say."""
    with tempfile.TemporaryDirectory(prefix="trl-compat-plan-") as nowhere:
        command = ["pip", "install", "--dry-run", "--verbose", "--no-deps", *ONLY_WHEELS]
        command += ["--python", interpreter.path, "--target", nowhere]
        # Without a lock there are none.
        command += ["--require-hashes"] * all(entry.hashes for entry in wanted)
        try:
            _, said = uv_said([*command, "-r", "-"], text="".join(entry.text for entry in wanted))
        except (EnvironmentFailed, HarnessError):
            return None
    found = [f"{name}=={version}" for name, version in UNCACHED.findall(said)]
    told = DOWNLOADS.search(said)
    return found if len(found) == (int(told[1]) if told else 0) else None


def _copies(lacking: Sequence[Missing], fresh: Mapping[str, int]) -> tuple[int, bool]:
    """Bytes of environments that get copies; what is cached is measured where it is installed."""
    known = dict(fresh)
    for folder in sorted((cache.root() / "environments").glob("*/lock.txt")):
        if damage.distributions(folder.parent) - set(known):
            known = torch_builds.sizes(folder.parent) | known
    pins = [_pin(entry) for one in lacking for entry in one.packages]
    return sum(known.get(pin, 0) for pin in pins), not known.keys() >= set(pins)


def _pin(entry: Entry) -> str:
    return f"{entry.name}=={entry.version}"


def _by_version(text: str) -> tuple[int, Version, str]:
    try:
        return (0, Version(text), text)
    except InvalidVersion:
        return (1, Version("0"), text)


def _linked(of_uv: Path, ours: Path) -> bool:
    """Whether an environment's files take no room beside those in uv's cache."""
    mode = os.environ.get("UV_LINK_MODE") or settings.link_mode(os.environ)
    return mode != "copy" and _device(of_uv) == _device(ours)


def _existing(folder: Path) -> Path:
    return next((p for p in (folder, *folder.parents) if p.exists()), Path("/"))


def _device(folder: Path) -> int:
    return _existing(folder).stat().st_dev


def _free(folder: Path) -> int:
    return shutil.disk_usage(_existing(folder)).free
