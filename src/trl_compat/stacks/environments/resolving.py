"""From requirements to the text of a lock: uv resolves, reading metadata of wheels only.

A package without wheels is built first (:mod:`.source_build`), if that is allowed, and offered to
uv as a wheel.  The lock then names its source, which anybody can verify: the hash of the source
package, or the commit.
"""

from __future__ import annotations

import contextlib
import datetime
import re
from collections.abc import Sequence
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

from trl_compat.shipped import releases
from trl_compat.stacks.environments import NoWheel, Unresolvable, git_sources, sdists, source_build
from trl_compat.stacks.environments.interpreters import Interpreter
from trl_compat.stacks.environments.lock_text import entries, packages_of
from trl_compat.stacks.environments.source_build import Commit, Source, Target
from trl_compat.stacks.environments.uv import ONLY_WHEELS, find_links, uv
from trl_compat.stacks.environments.without_wheels import KNOWN, Allowed
from trl_compat.stacks.matrix import GIT

VERSION_WITHOUT_WHEEL = r"\b{name}==(?P<version>[^\s,]+) has no "


class Resolution:
    """One set of requirements on its way to a lock.

    Args:
        requirements: as pip takes them; from git only ``name @ git+https://...@<commit>``.
        as_of: the day (inclusive) whose releases are taken.
        allowed: what may be built.
        torch: the build of torch that is taken; if not given, what the requirements lead to.
    """

    def __init__(
        self,
        requirements: Sequence[str],
        as_of: datetime.date,
        interpreter: Interpreter,
        allowed: Allowed,
        torch: str = "",
    ) -> None:
        self._lines = list(requirements)
        self._as_of, self._interpreter, self._allowed = as_of, interpreter, allowed
        self._torch = torch
        self._built: dict[str, tuple[Source, Path]] = {}

    def text(self) -> str:
        """The lock.

        Raises:
            Unresolvable: there is no such stack, or what it needs may not be built.
            Unavailable: an index or a repository cannot be reached.
        """
        # Those whose metadata is known only after a build come last: they may need torch.
        for line in [line for line in self._lines if Requirement(line).url]:
            self._take_commit(line)
        for name in [_name(line) for line in self._lines if _name(line) in KNOWN]:
            self._take_release(name)
        return self._with_sources(self._compiled())

    def _compiled(self) -> str:
        """What uv makes of the lines; a package without a wheel is built if it may be."""
        while True:
            folders = [wheel.parent for _, wheel in self._built.values()]
            options = ["--generate-hashes", *ONLY_WHEELS, *find_links(folders)]
            pins = [f"{n}=={_version_of(wheel)}" for n, (_, wheel) in self._built.items()]
            open_ = [line for line in self._lines if _name(line) not in self._built]
            wanted = [*open_, *pins, *([f"torch=={self._torch}"] if self._torch else [])]
            try:
                return self._compile(wanted, options)
            except NoWheel as error:
                name = str(canonicalize_name(error.package))
                if name in self._built:
                    raise
                found = re.search(VERSION_WITHOUT_WHEEL.format(name=re.escape(name)), str(error))
                release = f"{name} {found['version']}" if found else name
                self._allowed.check(name, f"{release} has no wheel for this machine")
                self._take_release(name, found["version"] if found else "")

    def _take_commit(self, line: str) -> None:
        """Builds a package from git; nothing is fetched that may not be built."""
        requirement = Requirement(line)
        name, found = _name(line), GIT.fullmatch(requirement.url or "")
        if found is None:
            raise Unresolvable(f"{line}: only git+https://...@<commit> can be built")
        self._allowed.check(name, f"{name} comes from git ({requirement.url})", known=False)
        commit = git_sources.full_commit(found["url"], found["commit"])
        self._build(Commit(name, found["url"], commit))

    def _take_release(self, name: str, version: str = "") -> None:
        """Builds a release: the wanted one, or the newest that its requirements allow."""
        if name not in self._built:
            lines = [line for line in self._lines if _name(line) == name] or [name]
            version = version or self._chosen(lines)[name]
            self._build(sdists.find(name, version))

    def _build(self, source: Source) -> None:
        target = Target(self._interpreter, self._torch_to_build_for, self._as_of)
        self._built[source.name] = (source, source_build.wheel(source, target))

    def _torch_to_build_for(self) -> str:
        """The torch of the lock to be, which what is wanted besides builds settles."""
        if self._torch:
            return self._torch
        rest = [line for line in self._lines if not Requirement(line).url]
        rest = [line for line in rest if _name(line) not in {*KNOWN, *self._built}]
        try:
            text = self._compile(rest, ONLY_WHEELS)
            self._torch = packages_of(text).get("torch", "")
        except NoWheel:
            pass  # one of them has to be built itself
        if not self._torch:
            lines = [line for line in rest if _name(line) == "torch"] or ["torch"]
            self._torch = self._chosen(lines)["torch"]
        return self._torch

    def _chosen(self, lines: Sequence[str]) -> dict[str, str]:
        """The releases that requirements mean; without dependencies nothing has to be built."""
        return packages_of(self._compile(lines, ["--no-deps"]))

    def _compile(self, lines: Sequence[str], options: Sequence[str]) -> str:
        return compile_requirements(lines, self._as_of, self._interpreter, options)

    def _with_sources(self, text: str) -> str:
        """The lock in which what was built stands as its source."""
        sources = {
            name: source.entry if isinstance(source, Commit) else sdists.entry_of(source)
            for name, (source, _) in self._built.items()
        }
        return "".join(sources.get(entry.name, entry.text) for entry in entries(text))


def check(requirements: Sequence[str], as_of: datetime.date, interpreter: Interpreter) -> None:
    """Asks the resolver about all of a stack that needs no build: quick, and most of the answer.

    Raises:
        Unresolvable: there is no such stack.
        Unavailable: the index cannot be reached.
    """
    lines = [line for line in requirements if not Requirement(line).url]
    with contextlib.suppress(NoWheel):  # what has to be built is not asked now
        rest = [line for line in lines if _name(line) not in KNOWN]
        compile_requirements(rest, as_of, interpreter, ONLY_WHEELS)
    if built := [line for line in lines if _name(line) in KNOWN and not _listed(line, as_of)]:
        compile_requirements(built, as_of, interpreter, ["--no-deps"])


def _listed(line: str, as_of: datetime.date) -> bool:
    """Whether the shipped list has the release that a line pins, as of a day."""
    pinned = re.fullmatch(r"([\w-]+)==([^,\s]+)", line)
    day = releases.known().dates.get(pinned[1], {}).get(pinned[2]) if pinned else None
    return day is not None and datetime.date.fromisoformat(day) <= as_of


def torch_build(version: str, as_of: datetime.date, interpreter: Interpreter) -> str:
    """The build of a torch release that the user's indexes offer: a CPU build if there is one."""
    options = ["--no-deps", *ONLY_WHEELS]
    text = compile_requirements([f"torch=={version}"], as_of, interpreter, options)
    return packages_of(text)["torch"]


def why_not_on(
    requirements: Sequence[str], as_of: datetime.date, python: str, asking: Interpreter
) -> str:
    """Why releases are not for a version of Python, which need not be on this machine.

    Returns:
        The resolver's reason; empty if there is none that can be told without that Python.
    """
    lines = [line for line in requirements if not Requirement(line).url]
    lines = [line for line in lines if _name(line) not in KNOWN]
    options = ["--no-deps", *ONLY_WHEELS, "--python-version", python]
    try:
        compile_requirements(lines, as_of, asking, options)
    except Unresolvable as error:
        return str(error)
    return ""


def compile_requirements(
    requirements: Sequence[str],
    as_of: datetime.date,
    interpreter: Interpreter,
    options: Sequence[str],
) -> str:
    """``uv pip compile`` as of a day (inclusive), without comments."""
    # uv takes a bare date as "up to the end of that day".
    command = ["pip", "compile", "-", "--quiet", "--no-header", "--no-annotate"]
    command += ["--exclude-newer", as_of.isoformat(), "--python", interpreter.path, *options]
    return uv(command, text="\n".join(requirements) + "\n")


def _name(line: str) -> str:
    return str(canonicalize_name(Requirement(line).name))


def _version_of(wheel: Path) -> str:
    return str(parse_wheel_filename(wheel.name)[1])
