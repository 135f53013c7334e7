"""The failures, and their variants, that are relevant to the user."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trl_compat.advisories import Catalogue, Reproduction
from trl_compat.errors import BadInput
from trl_compat.stacks.matrix import Selector, Stack
from trl_compat.usage.strategies import STRATEGIES, known
from trl_compat.usage.vocabulary import Vocabulary


@dataclass(frozen=True)
class Usage:
    """What the user says to use; empty means everything."""

    trainers: tuple[str, ...] = ()
    strategies: tuple[str, ...] = ()

    def covers(self, conditions: Mapping[str, Any]) -> bool:
        """Whether a variant of these conditions concerns the user.

        A variant without a trainer of its own concerns every trainer.
        """
        trainer = conditions.get("trainer")
        if self.trainers and trainer is not None and trainer not in self.trainers:
            return False
        return not self.strategies or any(
            all(conditions.get(name) == value for name, value in STRATEGIES[strategy].items())
            for strategy in self.strategies
        )

    def names(self, conditions: Mapping[str, Any]) -> bool:
        """Whether the user says by name that the trainer of these conditions is in use."""
        return conditions.get("trainer") in self.trainers and self.covers(conditions)


def usage(catalogue: Catalogue, trainers: Sequence[str], strategies: Sequence[str]) -> Usage:
    """The usage that a command line names; ``online-dpo`` and ``OnlineDPOTrainer`` are one.

    Raises:
        BadInput: a trainer that does not exist, or that no reproduction has; an unknown strategy.
    """
    there = _trainers(catalogue)
    words = Vocabulary({"trainer": frozenset(there)})
    named = [name for text in trainers for name in words.read("trainer", text, "--trainer")]
    if strangers := [str(name) for name in named if name not in there]:
        there_are = ", ".join(sorted(there))
        raise BadInput(
            f"--trainer {strangers[0]}: no known failure concerns it; available: {there_are}"
        )
    return Usage(tuple(dict.fromkeys(map(str, named))), known(strategies))


def blocks(
    catalogue: Catalogue,
    failures: Sequence[str],
    wanted: Usage,
    models: tuple[str, ...],
    stacks: Mapping[str, Stack],
) -> Iterator[Selector]:
    """The cells that a gate runs, as a profile's blocks, stack by stack.

    A stack without DeepSpeed or PEFT has nothing to run where these are needed.
    """
    for name, stack in stacks.items():
        for failure in failures:
            reproduction = catalogue.reproduction(failure)
            variants = tuple(
                variant
                for variant in relevant_variants(reproduction, wanted)
                if not lacking(stack, reproduction.conditions_of(variant))
            )
            if variants:
                yield Selector(
                    stacks=(name,), failures=(failure,), models=models, variants=variants
                )


def relevant_variants(reproduction: Reproduction, wanted: Usage) -> tuple[str, ...]:
    """The variants of a failure that concern a usage.

    They are those that the advisory runs by default; for a trainer that has none of these, the
    others of that trainer.
    """
    default = reproduction.default or tuple(reproduction.variants)
    covered = {reproduction.conditions_of(variant).get("trainer") for variant in default}

    def offered(variant: str) -> bool:
        trainer = reproduction.conditions_of(variant).get("trainer")
        return variant in default or (trainer in wanted.trainers and trainer not in covered)

    return tuple(
        variant
        for variant in reproduction.variants
        if offered(variant) and wanted.covers(reproduction.conditions_of(variant))
    )


def lacking(stack: Stack, conditions: Mapping[str, Any]) -> str:
    """The package that these conditions need and the stack does not have; empty if none."""
    if conditions.get("strategy") == "deepspeed" and not stack.deepspeed:
        return "DeepSpeed"
    return "PEFT" if conditions.get("peft") and not stack.peft else ""


def _trainers(catalogue: Catalogue) -> set[str]:
    found = set()
    for failure in catalogue.subjects:
        reproduction = catalogue.reproduction(failure)
        for variant in reproduction.variants:
            trainer = reproduction.conditions_of(variant).get("trainer")
            if trainer is not None:
                found.add(str(trainer))
    return found
