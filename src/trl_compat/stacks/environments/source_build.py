"""Every build of a package happens here: from source, in separate steps.

1. The source is fetched and its hash or commit checked; none of its code is run (:mod:`.sdists`,
   :mod:`.git_sources`).
2. A build environment is created with the packages that the source's ``pyproject.toml`` names under
   ``build-system.requires``, from wheels only.
3. :func:`run_build` builds the wheel.  This is the only place where a package's own code runs: it
   is isolated like a cell, with nothing of the user's environment, in private folders and without
   network.
4. One regular file with the expected name is taken as the result and kept, under a key of source,
   torch and interpreter.  uv installs only such wheels.
"""

from __future__ import annotations

import datetime
import hashlib
import os
import shutil
import stat
import subprocess
import tarfile
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from trl_compat.errors import BadInput, HarnessError
from trl_compat.machine import isolation, processes
from trl_compat.stacks.environments import (
    Unresolvable,
    cache,
    damage,
    git_sources,
    sdists,
    uv_errors,
)
from trl_compat.stacks.environments.interpreters import Interpreter
from trl_compat.stacks.environments.sdists import Sdist
from trl_compat.stacks.environments.uv import ONLY_WHEELS, uv
from trl_compat.stacks.environments.without_wheels import KNOWN, Recipe

# PEP 518: what a source without a `build-system` table is built with.
DEFAULT_REQUIRES = ("setuptools>=40.8.0", "wheel")
LARGEST_PYPROJECT = 2**20
LARGEST_WHEEL = 2 * 1024**3
TIME_LIMIT = 30 * 60.0


@dataclass(frozen=True)
class Commit:
    """A package from a git commit, by its whole name."""

    name: str
    url: str
    commit: str

    @property
    def entry(self) -> str:
        """Its entry in a lock."""
        return f"{self.name} @ git+{self.url}@{self.commit}\n"


Source = Sdist | Commit


@dataclass(frozen=True)
class Target:
    """What a wheel is built for.

    Attributes:
        torch: says which build of torch, e.g. ``2.13.0+cpu``; asked only by builds that need one.
        as_of: the day whose build tools are taken.
    """

    interpreter: Interpreter
    torch: Callable[[], str]
    as_of: datetime.date


def wheel(source: Source, target: Target) -> Path:
    """The wheel of a source, from the cache or built now, alone in its folder.

    Raises:
        Unresolvable: its build fails, or makes something else than its wheel.
        Unavailable: the source or a build tool is out of reach.
        WrongFile: the source is not the one whose hash is wanted.
    """
    recipe = KNOWN.get(source.name, Recipe(why=""))
    torch = target.torch() if recipe.needs_torch else ""
    folder = _folder(source, target.interpreter, torch)
    with cache.lock_file(folder), cache.machine_errors():
        if (kept := _kept(folder)) is not None:
            return kept
        with tempfile.TemporaryDirectory(
            prefix="trl-compat-build-", ignore_cleanup_errors=True
        ) as work:
            for name in ("source", "home", "tmp", "out"):
                (Path(work) / name).mkdir()
            what = _fetch(source, Path(work) / "source")
            tools = _tools(source, what, recipe)
            if "torch" in {_name(line) for line in tools} and not torch:
                torch = target.torch()
                folder = _folder(source, target.interpreter, torch)
                if (kept := _kept(folder)) is not None:
                    return kept
            tools += [f"torch=={torch}"] if torch else []
            python = _build_environment(source.name, tools, target)
            return _keep(_build(source, what, python, Path(work), recipe, torch), folder)


def _folder(source: Source, interpreter: Interpreter, torch: str) -> Path:
    match source:
        case Sdist():
            origin, label = source.sha256, source.version
        case Commit():
            origin, label = f"{source.url}@{source.commit}", source.commit[:9]
    parts = [source.name, origin, torch, interpreter.tag]
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
    return cache.folder("wheels") / f"{source.name}-{label}-{interpreter.tag}-{key}"


def _kept(folder: Path) -> Path | None:
    """The wheel in a folder of the cache, if it is the one that was put there."""
    for path in folder.glob("*.whl"):
        with suppress(OSError, UnicodeDecodeError), path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
            if found == (folder / "sha256").read_text(encoding="ascii").strip():
                return path
    return None


def _keep(made: Path, folder: Path) -> Path:
    """Copies a wheel that a build has made; what it left is not trusted to be a plain file."""
    folder.mkdir(parents=True, exist_ok=True)
    draft, path = folder / "draft", folder / made.name
    digest = hashlib.sha256()
    with (
        os.fdopen(os.open(made, os.O_RDONLY | os.O_NOFOLLOW), "rb") as source,
        draft.open("wb") as file,
    ):
        while chunk := source.read(2**20):
            digest.update(chunk)
            file.write(chunk)
    draft.replace(path)
    cache.write(folder / "sha256", digest.hexdigest() + "\n")
    return path


def _build(
    source: Source, what: Path, python: Path, work: Path, recipe: Recipe, torch: str
) -> Path:
    """Builds a source that lies in a folder of its own, and gives the wheel there."""
    command = [str(python), "-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps"]
    command += ["--no-build-isolation", "--no-cache-dir", "--disable-pip-version-check"]
    command += ["--wheel-dir", str(work / "out"), str(what)]
    env = {
        "PATH": os.pathsep.join([str(python.parent), "/usr/local/bin", "/usr/bin", "/bin"]),
        "HOME": str(work / "home"),
        "TMPDIR": str(work / "tmp"),
        "LANG": "C.UTF-8",
        "PYTHONNOUSERSITE": "1",
        **recipe.env,
    }
    begun = time.monotonic()
    done = run_build(
        command, cwd=work / "tmp", readable=[python.parents[1], work], writable=[work], env=env
    )
    if done.returncode != 0:
        raise _failed(done, _said(source, torch), work, time.monotonic() - begun)
    return _taken(source, work / "out")


def run_build(
    command: Sequence[str],
    *,
    cwd: Path,
    readable: Sequence[Path],
    writable: Sequence[Path],
    env: Mapping[str, str],
) -> subprocess.CompletedProcess[str]:
    """Runs the build of a package: the only code of a source that runs outside of a cell.

    Args:
        command: its interpreter with its arguments.
        cwd: where it runs.
        readable: all that it has to read besides the system and the interpreter.
        writable: all that it has to write; it needs no network.
        env: its whole environment.
    """
    reach = isolation.Reach(
        (*isolation.interpreter_files(Path(command[0])), *readable), tuple(writable)
    )
    return processes.run_contained(command, env=env, cwd=cwd, reach=reach, limit=TIME_LIMIT)


def _failed(
    done: subprocess.CompletedProcess[str], what: str, work: Path, seconds: float
) -> Unresolvable | BadInput | HarnessError:
    """What a build that failed means; its text says why and decides nothing else."""
    if seconds >= TIME_LIMIT:
        return Unresolvable(f"{what} did not finish within {TIME_LIMIT / 60:.0f} minutes")
    if done.returncode < 0:
        killed = uv_errors.signal_name(-done.returncode)
        return HarnessError(f"{what} was killed by {killed}; run the same command again")
    said = done.stdout + done.stderr
    if uv_errors.DISK_FULL.search(said) and _nearly_full(work):
        return BadInput("the disk is full; free some space and run the same command again")
    return Unresolvable(uv_errors.one_line(f"{what}\n{said}"))


def _nearly_full(folder: Path, margin: int = 64 * 2**20) -> bool:
    return shutil.disk_usage(folder).free < margin


def _said(source: Source, torch: str) -> str:
    which = source.version if isinstance(source, Sdist) else f"at {source.commit[:9]}"
    return f"building {source.name} {which}{f' with torch {torch}' if torch else ''}"


def _fetch(source: Source, folder: Path) -> Path:
    match source:
        case Sdist():
            return sdists.fetch(source, folder)
        case Commit():
            git_sources.checkout(source.url, source.commit, folder / source.name)
            return folder / source.name


def _tools(source: Source, what: Path, recipe: Recipe) -> list[str]:
    """What a source is built with, as its ``pyproject.toml`` says, which is data.

    Raises:
        Unresolvable: it cannot be read, or asks for something that is on no index.
    """
    try:
        document = tomllib.loads(_pyproject(what))
        wanted = document.get("build-system", {}).get("requires", DEFAULT_REQUIRES)
        parsed = [Requirement(line) for line in wanted]
    except (
        AttributeError,
        InvalidRequirement,
        OSError,
        RecursionError,
        TypeError,
        ValueError,
        tarfile.TarError,
        zipfile.BadZipFile,
    ) as error:
        raise Unresolvable(f"{source.name}: its pyproject.toml cannot be read ({error})") from None
    if foreign := next((one for one in parsed if one.url), None):
        raise Unresolvable(f"{source.name}: its build requires {foreign}, which is on no index")
    tools = {*map(str, parsed), *recipe.tools, "pip"}
    if "setuptools" in {_name(line) for line in tools}:
        tools.add("wheel")  # its hook asks for that in older releases, and nobody asks the hook
    return sorted(tools)


def _name(line: str) -> str:
    return str(canonicalize_name(Requirement(line).name))


def _pyproject(what: Path) -> str:
    """The text of a source's ``pyproject.toml``; empty without one."""
    data: bytes | None = None
    if what.is_dir():
        path = what / "pyproject.toml"
        if stat.S_ISREG(path.lstat().st_mode if path.is_symlink() or path.exists() else 0):
            with path.open("rb") as file:
                data = file.read(LARGEST_PYPROJECT)
    elif what.suffix == ".zip":
        with zipfile.ZipFile(what) as archive:
            for name in archive.namelist():
                if _is_pyproject(name):
                    with archive.open(name) as file:
                        data = file.read(LARGEST_PYPROJECT)
                    break
    else:
        with tarfile.open(what) as archive:
            for member in archive:
                if member.isreg() and _is_pyproject(member.name):
                    opened = archive.extractfile(member)
                    data = opened.read(LARGEST_PYPROJECT) if opened else None
                    break
    return (data or b"").decode("utf-8")


def _is_pyproject(name: str) -> bool:
    parts = name.split("/")
    return len(parts) == 2 and parts[1] == "pyproject.toml"


def _build_environment(name: str, tools: Sequence[str], target: Target) -> Path:
    """An interpreter with the tools of a build, from wheels only; kept for further builds."""
    parts = [*tools, target.interpreter.tag]
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
    folder = cache.folder("build") / f"{name}-{target.interpreter.tag}-{key}"
    python = folder / "bin" / "python"
    with cache.lock_file(folder):
        if damage.of_tools(folder):
            uv(["venv", "--quiet", "--clear", "--python", target.interpreter.path, str(folder)])
            command = ["pip", "install", "--quiet", *ONLY_WHEELS, "--python", str(python)]
            uv([*command, "--exclude-newer", target.as_of.isoformat(), *tools])
            damage.note(folder)
    return python


def _taken(source: Source, folder: Path) -> Path:
    """The wheel that a build has made.

    Raises:
        Unresolvable: it is something else.
    """
    entries = [entry for entry in os.scandir(folder) if entry.name.endswith(".whl")]
    if len(entries) != 1 or not entries[0].is_file(follow_symlinks=False):
        raise Unresolvable(f"building {source.name} produced {len(entries)} wheels instead of one")
    (entry,) = entries
    try:
        name, version, _, _ = parse_wheel_filename(entry.name)
    except InvalidWheelFilename:
        raise Unresolvable(
            f"building {source.name} produced '{entry.name}', which is not a wheel"
        ) from None
    right = name == source.name and (
        isinstance(source, Commit) or version == Version(source.version)
    )
    if not right:
        raise Unresolvable(f"building {source.name} produced {name} {version} instead")
    if entry.stat(follow_symlinks=False).st_size > LARGEST_WHEEL:
        raise Unresolvable(f"building {source.name} produced a wheel that is too large")
    return Path(entry.path)
