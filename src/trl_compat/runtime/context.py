"""What a scenario receives: the :class:`Rank`, through which it asserts and observes.

Every assertion is registered by name, and a failed one decides the verdict even if the exception is
swallowed, as some trainers and callbacks do.  A scenario that ends without an assertion is vacuous
and is never reported as a pass.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

from .plain import plain, text, type_of
from .spec import CellSpec


class PostConditionFailed(AssertionError):
    """A post-condition of the scenario does not hold: no exception upstream, but a wrong result."""

    def __init__(self, check: str, message: str) -> None:
        super().__init__(message)
        self.where = f"check:{check}"


class NotApplicable(Exception):
    """This release has no such trainer or option.

    Attributes:
        since: first release that has it, or None.
        until: last release that had it, or None.
    """

    def __init__(self, reason: str, *, since: str | None = None, until: str | None = None) -> None:
        span = [f"since {since}"] * bool(since) + [f"until {until}"] * bool(until)
        super().__init__(f"{reason} ({', '.join(span)})" if span else reason)
        self.reason, self.since, self.until = reason, since, until


class ControlFailed(Exception):
    """The scenario met something before the place of interest that makes its verdict worthless."""


class NotInstalled(Exception):
    """A package that is needed to tell releases apart is not installed: nothing can be said."""


def release(version: str) -> tuple[int, ...]:
    """The release segment of a version: ``"0.15.0.dev0+g1"`` → ``(0, 15, 0)``.

    Development versions compare as the release that they lead to, as code of that tree does.
    """
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in match.group().split(".")) if match else ()


def installed(package: str) -> str:
    """The version of a package of the stack, or ``""`` where the stack does not have it."""
    try:
        return metadata.version(package) or ""  # None where the METADATA is gone
    except metadata.PackageNotFoundError:
        return ""


def release_of(package: str) -> tuple[int, ...]:
    """The release of a package that the stack must have.

    Raises:
        NotInstalled: it does not; that is no release before all others, but a damaged stack.
    """
    found = release(installed(package))
    if not found:
        raise NotInstalled(f"{package} is not installed, or its metadata cannot be read")
    return found


def at_least(package: str, version: str) -> bool:
    """Whether the stack has this release of a package or a later one.

    Raises:
        NotInstalled: the stack does not have the package at all.
    """
    return release_of(package) >= release(version)


def replace(owner: Any, name: str, substitute: Any) -> None:
    """Sets an attribute that must exist already: a release that renamed it needs other code.

    Raises:
        AttributeError: there is nothing of that name to replace.
    """
    getattr(owner, name)
    setattr(owner, name, substitute)


# Characters of a name; entries of a register.
NAME, MOST_ENTRIES = 200, 10_000

OnFailure = Callable[[str, str, Exception], None]
"""Called with every failed check before it is raised: kind, name, error."""


class Rank:
    """One rank of a cell: its place in the world, its model, its register of checks.

    Attributes:
        checks: the assertions, in order: name, whether it holds, and what it says if it does not.
        preconditions: the same of what must be so for the verdict to mean anything.
    """

    def __init__(self, spec: CellSpec) -> None:
        self.spec = spec
        self.rank = int(os.environ.get("RANK", "0"))
        self.world_size = int(os.environ.get("WORLD_SIZE", "1"))
        self.local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        self.checks: list[dict[str, Any]] = []
        self.preconditions: list[dict[str, Any]] = []
        self.observations: dict[str, Any] = {}
        self.stand_ins: list[str] = []
        self.on_failure: OnFailure | None = None

    @property
    def main(self) -> bool:
        """Whether this is rank 0."""
        return self.rank == 0

    @property
    def device(self) -> str:
        """The torch device of this rank, ``cpu`` or ``cuda:N``."""
        return f"cuda:{self.local_rank}" if self.spec.device == "cuda" else "cpu"

    @property
    def folder(self) -> Path:
        """Scratch folder that all ranks of the cell share."""
        return Path(self.spec.folder)

    def condition(self, name: str, default: Any = None) -> Any:
        """A setting of the variant, e.g. ``zero_stage``."""
        return self.spec.conditions.get(name, default)

    def check(self, name: str, holds: Any, message: str) -> None:
        """Registers an assertion.

        Raises:
            PostConditionFailed: it does not hold.
        """
        said = self._register(self.checks, name, holds, message)
        if said is not None:
            failed = PostConditionFailed(text(name, NAME), said)
            self._tell("check", name, failed)
            raise failed

    def precondition(self, name: str, holds: Any, message: str) -> None:
        """Something that must be so for the verdict to mean anything (the engine is really on).

        It is no assertion about the failure, so it does not save a scenario from being vacuous.

        Raises:
            ControlFailed: it does not hold.
        """
        said = self._register(self.preconditions, name, holds, message)
        if said is not None:
            failed = ControlFailed(f"{text(name, NAME)}: {said}")
            self._tell("precondition", name, failed)
            raise failed

    def _register(
        self, register: list[dict[str, Any]], name: str, holds: Any, message: str
    ) -> str | None:
        """Puts an entry into a register; its message if it does not hold, else None."""
        said = text(message)
        try:
            true = bool(holds)
        except Exception as error:  # a tensor of several elements, say
            true, said = False, f"{said} (whether it holds cannot be told: {type_of(error)})"
        # A loop may assert the same thing a million times; there is room left for what fails then.
        if len(register) < MOST_ENTRIES + (0 if true else 100):
            register.append({"name": text(name, NAME), "holds": true, "message": said})
        return None if true else said

    def _tell(self, kind: str, name: str, error: Exception) -> None:
        if self.on_failure is not None:
            self.on_failure(kind, text(name, NAME), error)

    def observe(self, name: str, value: Any) -> None:
        """Keeps a value with the cell's evidence, as JSON can hold it now."""
        self.observations[text(name, NAME)] = plain(value)

    def not_applicable(
        self, reason: str, *, since: str | None = None, until: str | None = None
    ) -> NoReturn:
        """Ends the cell: this release has no such thing."""
        raise NotApplicable(reason, since=since, until=until)

    def use_stand_in(self, name: str) -> None:
        """Registers that this cell used a stand-in."""
        if name not in self.stand_ins:
            self.stand_ins.append(name)
