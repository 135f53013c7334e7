"""Sabotages of engine: a step that loses something, and cells that do not measure one step."""

from __future__ import annotations

from typing import Any

from .declaration import breaks
from .spoiling import upon


@breaks("engine", within="measuring.judged", variant="zero1-bf16")
def a_micro_batch_of_the_second_step_counts_half(rank: Any, reproduction: Any) -> None:
    def unfair(engine: Any, *_: Any) -> None:
        backward, seen = engine.backward, []

        def halved(loss: Any, *args: Any, **options: Any) -> Any:
            seen.append(loss)
            return backward(loss * 0.5 if len(seen) == 3 else loss, *args, **options)

        engine.backward = halved

    upon(reproduction, "engine_of", unfair)


@breaks("first-step", within="scenario", variant="zero1-bf16")
def the_first_step_moves_the_weights(rank: Any, reproduction: Any) -> None:
    reproduction.set_rate = lambda *_: None


@breaks("dtype", within="engine_of", variant="zero1-bf16")
def the_engine_computes_in_float32(rank: Any, reproduction: Any) -> None:
    configuration = reproduction.configuration
    reproduction.configuration = lambda rank: {**configuration(rank), "bf16": {"enabled": False}}
