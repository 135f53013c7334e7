"""Commands to paste that run a cell again, in the form in which this run was started.

A run started by nox prints nox commands; a run started by ``trl-compat`` prints the name or path by
which the shell finds it.  Paths are relative below the current folder, start with ``~`` below the
user's home, and are absolute otherwise; they are quoted.  The noxfile imports this module, so it
uses only the standard library.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# The words by which the user called nox, set by the noxfile for what its sessions run.
STARTED_BY = "TRL_COMPAT_STARTED_BY"
# The words that start the zip application, set by the application itself.
PROGRAM = "TRL_COMPAT_PROGRAM"


@dataclass(frozen=True)
class Again:
    """How the cells of a run are run again: what stands before and behind the cell's own options.

    Attributes:
        start: the words that start a run of the matrix, as text for a shell.
        more: options that every cell of this run needs, as text for a shell.
        torchrun: the ranks were to be started by plain ``torchrun``.
        one_stack: the command knows one stack only, and takes no name of one.
    """

    start: str = "nox -s matrix --"
    more: str = ""
    torchrun: bool = False
    one_stack: bool = False

    def line(self, options: Sequence[str], *, torchrun: bool = False) -> str:
        """One line for a shell."""
        words = [self.start, shlex.join(options), self.more]
        if torchrun or self.torchrun:
            words.append("--torchrun")
        return " ".join(filter(None, words))


PLAINLY = Again()


def start(command: str, root: Path, env: Mapping[str, str] = os.environ) -> str:
    """The words that start another run of a command: ``nox -s matrix --``, ``trl-compat matrix``.

    Args:
        command: the subcommand, which nox has as a session.
        root: the project.
        env: where the noxfile has left its word.
    """
    if by_nox := env.get(STARTED_BY):
        return f"{by_nox} -s {command} --"
    words = [_own_program(env)]
    if root.resolve() != Path.cwd():
        words += ["--project", shown(root)]
    return " ".join([*words, command])


def this_command(env: Mapping[str, str] = os.environ) -> str:
    """The line that started this very run."""
    words = sys.argv[1:]
    if by_nox := env.get(STARTED_BY):
        return " ".join([by_nox, "-s", words[0], "--", *map(word, words[1:])])
    return " ".join([_own_program(env), *map(word, words)])


def _own_program(env: Mapping[str, str]) -> str:
    return env.get(PROGRAM) or program(Path(sys.argv[0]), "trl-compat")


def nox_words(called: str, invoked_from: str) -> str:
    """How the user called nox, for whoever stands where the user stood; asked by the noxfile.

    Args:
        called: the first of nox's own arguments.
        invoked_from: the user's folder; the current one is by now that of the noxfile.
    """
    base = Path(invoked_from)
    if Path(called).name == "__main__.py":
        words = [program(Path(sys.executable), "python", base), "-m", "nox"]
    else:
        words = [program(Path(called), "nox", base)]
    if Path.cwd() != base.resolve():
        words += ["-f", shown(Path.cwd() / "noxfile.py", base)]
    return " ".join(words)


def program(path: Path, name: str, base: Path | None = None) -> str:
    """A program by its name if a shell finds the same one by it, else by its path."""
    base = base or Path.cwd()
    found = shutil.which(name)
    if found is not None and (base / path).exists() and os.path.samefile(found, base / path):
        return name
    told = shown(path, base)
    return told if "/" in told else f"./{told}"


def shown(path: Path, base: Path | None = None) -> str:
    """A path as text for a shell in the folder ``base``, by default the current one."""
    base = base or Path.cwd()
    path = Path(os.path.abspath(base / path))
    if path.is_relative_to(base):
        text = str(path.relative_to(base))
        return shlex.quote(f"./{text}" if text.startswith("-") else text)
    return word(str(path))


def word(text: str) -> str:
    """A word as text for a shell, without the name of the user's home folder."""
    home = os.path.expanduser("~")
    option, equals, value = text.partition("=")
    if option.startswith("--") and equals and value.startswith(f"{home}/"):
        return f"{shlex.quote(option)} {word(value)}"  # no shell expands a ~ behind a =
    if text == home != "/":
        return "~"
    if home != "/" and text.startswith(f"{home}/"):
        return f"~/{shlex.quote(text.removeprefix(f'{home}/'))}"
    return shlex.quote(text)
