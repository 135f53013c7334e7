"""What an interpreter says of itself: its version, its folders, where it imports from.

It is asked without the user's variables and own packages (``-E -s``), as cells run without them,
and writes no bytecode.  Nothing of its packages is imported.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from trl_compat.errors import BadInput
from trl_compat.machine import commands
from trl_compat.stacks.exact_version import check_python

# Works on every Python since 2.7, so that one that is too old can be named as such.
ASK = """
import json, sys, sysconfig
stdlib = [sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib")]
print(json.dumps(["%d.%d.%d" % sys.version_info[:3], sys.executable, sys.prefix, stdlib, sys.path]))
"""
LIMIT = 60.0


@dataclass(frozen=True)
class Interpreter:
    """An interpreter with its environment.

    Attributes:
        python: its path, links not followed: behind a link is another environment.
        version: e.g. ``3.11.7``.
        prefix: the folder of its environment.
        stdlib: the folders of its standard library.
        path: where it imports from, as far as that is there.
    """

    python: Path
    version: str
    prefix: Path
    stdlib: tuple[Path, ...]
    path: tuple[Path, ...]

    @property
    def sites(self) -> tuple[Path, ...]:
        """The folders that packages are in."""
        outside = (folder for folder in self.path if not self._of_stdlib(folder))
        return tuple(folder for folder in outside if folder.is_dir())

    def _of_stdlib(self, folder: Path) -> bool:
        if folder.name in ("site-packages", "dist-packages"):
            return False  # below the standard library in most installations
        return any(folder == own or own in folder.parents for own in self.stdlib)

    @property
    def folders(self) -> tuple[Path, ...]:
        """What belongs to it, no folder inside another: its packages and its own programs.

        The standard library belongs to the installation behind it, which others use as well.
        """
        settings = self.prefix / "pyvenv.cfg"
        own = settings.is_file() or (self.prefix / "conda-meta").is_dir()
        wanted = [*self.sites, *([settings, self.prefix / "bin"] if own else [])]
        there = dict.fromkeys(path.resolve() for path in wanted if path.exists())
        return tuple(p for p in there if not any(other in p.parents for other in there))


def ask(python: Path) -> Interpreter:
    """The interpreter of that path, or of that name on the path.

    Raises:
        BadInput: it is no interpreter, or no cell can run on its Python.
    """
    if python.is_dir():
        inside = python / "bin" / "python"
        hint = f"; name its interpreter: {inside}" if inside.exists() else ""
        raise BadInput(f"--python {python}: a folder, not an interpreter{hint}")
    named = shutil.which(python) if len(python.parts) == 1 else None
    command = [str(named or python), "-B", "-E", "-s", "-c", ASK]
    try:
        done = commands.run(command, limit=LIMIT)
        done.check_returncode()
        # What is installed there may print something of its own before.
        version, program, prefix, stdlib, path = json.loads(done.stdout.strip().rpartition("\n")[2])
        Version(version)
        known = Interpreter(
            python=Path(program),
            version=version,
            prefix=Path(prefix),
            stdlib=tuple(dict.fromkeys(map(Path, stdlib))),
            path=tuple(_there(path)),
        )
    except FileNotFoundError:
        raise BadInput(f"--python {python}: no such file") from None
    except (
        OSError,
        ValueError,
        TypeError,
        RecursionError,
        InvalidVersion,
        subprocess.SubprocessError,
    ):
        raise BadInput(f"--python {python}: not a working Python interpreter") from None
    try:
        check_python(version)
    except ValueError as error:
        raise BadInput(f"--python {python}: {error}") from None
    return known


def _there(path: list[str]) -> Iterator[Path]:
    """Where it imports from, once each; the first entry of ``-c`` is the current folder."""
    yield from dict.fromkeys(Path(entry) for entry in path if entry and Path(entry).exists())
