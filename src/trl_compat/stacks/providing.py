"""The environment of a stack, wherever it comes from: built by the harness, or used in place."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from trl_compat.errors import HarnessError
from trl_compat.stacks.environments import EnvironmentFailed, build, interpreters, locks
from trl_compat.stacks.environments.damage import Depth
from trl_compat.stacks.in_place.environment import EnvironmentInPlace
from trl_compat.stacks.matrix import Stack


class Environment(Protocol):
    """A ready stack, as those see it who run cells in it.

    Attributes:
        python: its interpreter.
        lock: what is in it, with the digest by which results of it are kept.
        bytecode: a folder for its compiled Python modules.
        sites: the folders that packages are in.
        readable: what cells read of it beside the folders of its interpreter.
        mend: what to do when something is wrong with it, as the end of a sentence.
    """

    @property
    def python(self) -> Path: ...  # noqa: D102
    @property
    def lock(self) -> locks.Lock: ...  # noqa: D102
    @property
    def bytecode(self) -> Path: ...  # noqa: D102
    @property
    def sites(self) -> tuple[Path, ...]: ...  # noqa: D102
    @property
    def readable(self) -> tuple[Path, ...]: ...  # noqa: D102
    @property
    def mend(self) -> str: ...  # noqa: D102

    def genuine(self, site: Path, hashes: dict[str, str]) -> dict[str, str]:
        """The files of a RECORD, with their hashes, that are as their RECORD says."""

    def wrong(self, depth: Depth) -> str:
        """What is wrong with it, in words; empty if it is as it was when the run began."""


def ensure(name: str, stack: Stack) -> Environment:
    """The environment of a stack, ready to run cells.

    Raises:
        Unresolvable: there is no such stack.
        Unavailable: an interpreter, index or repository is out of reach.
        HarnessError: an environment in place is not what it was when the run began.
    """
    if stack.in_place is not None:
        found = EnvironmentInPlace(stack.in_place)
        if changed := found.wrong(Depth.SIZES):
            raise HarnessError(f"the environment changed during the run ({changed}); {found.mend}")
        return found
    return build.ensure(name, stack)


def answered(stack: Stack) -> str | None:
    """The digest of what a stack is, or of the answer that there is none; resolves nothing."""
    if stack.in_place is not None:
        return stack.in_place.sha256
    try:
        return locks.answered(stack, interpreters.find(stack.python))
    except EnvironmentFailed:
        return None
