"""How a sabotage says which check it breaks and in which cell; standard library only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

Spoil = Callable[[Any, Any], None]
"""Takes the rank and the module of the reproduction, and changes what the scenario will find."""


@dataclass(frozen=True)
class Sabotage:
    """A function that breaks what one check guards.

    Attributes:
        function: its name in the module that declares it.
        check: the name under which the check is registered when it fails.
        within: the function that makes the check; ``module.function`` for checks of the runtime.
        variant: of the failure's reproduction; with ``stack`` and ``fix`` a cell that passes.
        fix: name of the fix that the cell needs to pass, or None.
    """

    function: str
    check: str
    within: str
    variant: str
    stack: str
    fix: str | None


def breaks(
    check: str, *, within: str, variant: str, stack: str = "trl-1.12.0", fix: str | None = None
) -> Callable[[Spoil], Spoil]:
    """Declares a sabotage; see :class:`Sabotage`."""

    def declare(spoil: Spoil) -> Spoil:
        vars(spoil)["sabotage"] = Sabotage(spoil.__name__, check, within, variant, stack, fix)
        return spoil

    return declare


def declared(module: ModuleType) -> list[Sabotage]:
    """The sabotages of a module, in their order."""
    return [found for value in vars(module).values() if (found := _of(value))]


def _of(value: object) -> Sabotage | None:
    found = getattr(value, "sabotage", None)
    return found if isinstance(found, Sabotage) else None
