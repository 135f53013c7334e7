"""The two sides of a gate: from the user's words to a stack with a kept lock.

A side is the name of a stack, ``current``, a lock or requirements file, or requirements.  Anything
that is not a stack of the matrix becomes one here, named after the digest of its lock, so that the
same lock is the same stack and its results are reused.
"""

from __future__ import annotations

import datetime
import hashlib
import platform
import re
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from trl_compat.errors import BadInput
from trl_compat.files import reading
from trl_compat.packages import PACKAGES, REQUIRED_BY_TRL
from trl_compat.stacks import sources
from trl_compat.stacks.environments import (
    BuildRefused,
    Unavailable,
    Unresolvable,
    WrongFile,
    cache,
    interpreters,
    locks,
    user_locks,
)
from trl_compat.stacks.environments.without_wheels import Allowed
from trl_compat.stacks.exact_version import check_python
from trl_compat.stacks.matrix import GIT, Matrix, Stack
from trl_compat.stacks.sources import Source
from trl_compat.text.nearest import unknown_name

CURRENT = "current"
THIS_PYTHON = ".".join(platform.python_version_tuple()[:2])
FILE = re.compile(r"[^\s=<>~!]*[/\\][^\s=<>~!]*|[^\s=<>~!]*\.(?:txt|lock|toml|in|cfg|ya?ml)", re.I)
NO_SUCH_RELEASE = re.compile(
    r"Because (?P<what>there (?:is|are) no versions? of \S+"
    r"|\S+ was not found in the package registry) and you require"
)


class NoSuchStack(Exception):
    """The packages of a side exist, but cannot be installed together; the text is the reason."""


@dataclass(frozen=True)
class GateSide:
    """One side of a gate.

    Attributes:
        given: what the user wrote.
        name: of the stack.
        lock: everything in it.
        notes: what a reader should know about it, in sentences.
        yanked: releases in it that their publisher withdrew, with the reason.
    """

    given: str
    name: str
    stack: Stack
    lock: locks.Lock
    notes: tuple[str, ...] = ()
    yanked: tuple[str, ...] = ()


@dataclass(frozen=True)
class SideOptions:
    """How sides that are no stacks of the matrix are made.

    Attributes:
        folder: where their locks are kept.
        python: of which version, e.g. ``3.12``.
        as_of: the day whose releases requirements are resolved with.
        current: the interpreter whose packages ``current`` means.
        build: the packages that may be built from their source, which runs their code, besides
            those that are known to have no wheels.
    """

    folder: Path
    python: str
    as_of: datetime.date
    current: Path | None = None
    build: frozenset[str] = frozenset()

    @property
    def allowed(self) -> Allowed:
        """What may be built."""
        return Allowed(self.build)


def side(text: str, table: Matrix, asked: SideOptions) -> GateSide:
    """The side that a text means.

    Raises:
        BadInput: it means nothing, names what does not exist, or a source is out of reach.
        NoSuchStack: its packages cannot be installed together.
    """
    try:
        if text in table.stacks:
            stack = table.stacks[text]
            return GateSide(text, text, stack, locks.resolve(stack, locks.interpreter_of(stack)))
        if text == CURRENT:
            return _of_source(text, sources.installed(asked.current), asked)
        if _is_there(text) or (FILE.fullmatch(text) and "://" not in text):
            return _of_source(text, sources.read(text), asked)
        return _of_requirements(text, _requirements(text, table), asked)
    except Unavailable as error:
        raise BadInput(f"{text}: a source cannot be reached: {error}") from None
    except WrongFile as error:
        raise BadInput(f"{text}: {error}") from None
    except BuildRefused as error:
        raise BadInput(
            f"{text}: {error}; if you trust it, allow the build: --build {error.package}"
        ) from None
    except Unresolvable as error:
        if unknown_release := NO_SUCH_RELEASE.search(str(error)):
            what = unknown_release["what"]
            raise BadInput(
                f"{text}: {what} on the package indexes configured for pip or uv"
            ) from None
        raise NoSuchStack(str(error)) from None


def _is_there(text: str) -> bool:
    """Whether there is a file of that name; a long text is none that a file can have."""
    try:
        return Path(text).exists() and not Path(text).is_dir()
    except (OSError, ValueError):
        return False


def _of_source(text: str, source: Source, asked: SideOptions) -> GateSide:
    """A side from what someone has: as it is if it is complete, else resolved."""
    notes = list(source.notes)
    python = asked.python
    if source.python is not None:
        python = ".".join(source.python.split(".")[:2])
    elif python != THIS_PYTHON:
        notes.append(
            f"its markers were evaluated for Python {THIS_PYTHON}; it is installed for {python}"
        )
    interpreter = _interpreter(text, python)
    _refuse_archives(text, source)
    notes += [
        f"{p} is installed from the index, not from {url}" for p, url in source.archives.items()
    ]
    pins = [f"{name}=={version}" for name, version in source.versions.items()]
    pins += [f"{name} @ {url}" for name, url in source.commits.items()]
    foreign = [url for url in source.commits.values() if not GIT.fullmatch(url)]
    if foreign:
        raise BadInput(f"{text}: {foreign[0]}: only git+https://...@<commit> can be installed here")
    hashes = user_locks.hashes_in(source.path) if source.path else {}
    # Where there are hashes, pip wants all of them: such a file is complete.
    if (source.complete or hashes) and not source.unpinned:
        kept = user_locks.keep(_installable(pins), hashes, interpreter, asked.allowed)
        # Its day is only that of the tools that build DeepSpeed: they must know its torch.
        day = max(asked.as_of, datetime.date.today())
        return _side(text, kept, asked, python, day, notes)
    if source.path is not None and (extras := _extras_in(source.path)):
        raise BadInput(
            f"{text}: it is not a complete lock and requires extras ({', '.join(extras)}); lock it "
            f"first: uv pip compile {text} -o requirements.lock, then use that file"
        )
    wanted = [*pins, *(f"{name}{range_}" for name, range_ in source.unpinned.items())]
    notes.append(f"not a complete lock: resolved as of {asked.as_of}")
    resolved = user_locks.resolve(wanted, asked.as_of, interpreter, asked.allowed)
    return _side(text, resolved, asked, python, asked.as_of, notes)


def _of_requirements(text: str, wanted: list[str], asked: SideOptions) -> GateSide:
    """A side from requirements; what they do not name of the packages under test is added."""
    named = {canonicalize_name(Requirement(line).name) for line in wanted}
    added = [package for package in PACKAGES if package not in named]
    notes = [f"resolved as of {asked.as_of}"]
    if added:
        notes.append(f"{', '.join(added)} not pinned; the resolver chose")
    interpreter = _interpreter(text, asked.python)
    resolved = user_locks.resolve([*wanted, *added], asked.as_of, interpreter, asked.allowed)
    return _side(text, resolved, asked, asked.python, asked.as_of, notes)


def _interpreter(text: str, python: str) -> interpreters.Interpreter:
    """The interpreter of a side.

    Raises:
        BadInput: no cell can run on that Python.
        Unavailable: this machine has none.
    """
    try:
        return interpreters.find(check_python(python))
    except ValueError as error:
        raise BadInput(f"{text}: {error}") from None


def _refuse_archives(text: str, source: Source) -> None:
    """Refuses source packages from elsewhere than an index: what is in them nobody can check."""
    for package, url in source.archives.items():
        if not url.partition("#")[0].partition("?")[0].endswith(".whl"):
            raise BadInput(
                f"{text}: {package} would have to be built from {url}; a gate builds only "
                "releases on an index and commits: use one of these, or a wheel"
            )


def _side(
    text: str,
    made: user_locks.ImportedLock,
    asked: SideOptions,
    python: str,
    as_of: datetime.date,
    notes: list[str],
) -> GateSide:
    lock = made.lock
    versions = {package: lock.packages.get(package, "") for package in PACKAGES}
    if lacking := [package for package in REQUIRED_BY_TRL if not versions[package]]:
        raise BadInput(f"{text}: has TRL but no {' and no '.join(lacking)}, which TRL requires")
    digest = hashlib.sha256(f"{python}\n{lock.text}".encode()).hexdigest()[:12]
    name = f"lock-{digest}"
    path = asked.folder / f"{name}.txt"
    asked.folder.mkdir(parents=True, exist_ok=True)
    cache.write(path, lock.text)
    releases = {
        p: v if v.startswith("git+") else v.partition("+")[0] for p, v in versions.items() if v
    }
    common = {"as_of": as_of, "python": python, "lock": path, "build": sorted(asked.build)}
    stack = Stack.model_validate({**common, **releases})
    absent = [package for package in PACKAGES if not versions[package]]
    if absent:
        notes.append(f"has no {' and no '.join(absent)}: failures that require it are not run")
    return GateSide(text, name, stack, lock, tuple(notes), made.yanked)


def _installable(pins: list[str]) -> list[str]:
    """Without the project itself and the harness, which no index has and no cell needs."""
    return [pin for pin in pins if not pin.startswith("trl-compat==")]


def _extras_in(path: Path) -> list[str]:
    lines = (line.strip() for line in reading.text_of(path).splitlines())
    return [found[0] for line in lines if (found := re.match(r"[\w.-]+\[[\w., -]+\]", line))]


def _requirements(text: str, table: Matrix) -> list[str]:
    """The requirements in a text such as ``trl==0.18.2 transformers<5``.

    Raises:
        BadInput: it is none, or asks for what is not taken here.
    """
    wanted = []
    for word in text.split():
        try:
            requirement = Requirement(word)
        except InvalidRequirement:
            raise BadInput(_nothing(text, table)) from None
        name = canonicalize_name(requirement.name)
        if requirement.url or requirement.extras or requirement.marker:
            raise BadInput(
                f"'{word}': URLs, extras and markers are not supported here; write the stack to a "
                "file and lock it (uv pip compile), then use the lock"
            )
        if not requirement.specifier and name not in PACKAGES:
            raise BadInput(_nothing(text, table))
        wanted.append(word)
    if not wanted:
        raise BadInput("the stack is empty")
    if not {canonicalize_name(Requirement(line).name) for line in wanted} & set(PACKAGES):
        raise BadInput(f"'{text}' names none of {', '.join(PACKAGES)}")
    return wanted


def _nothing(text: str, table: Matrix) -> str:
    return (
        f"'{text}' is neither a file nor 'current' nor requirements such as \"trl==0.18.2 "
        f'transformers<5"; if you meant a stack: {unknown_name("stack", text, table.stacks)}'
    )
