"""saved: what was saved and is loaded again has the weights that were trained.

``way: save_model`` calls the trainer's ``save_model``; ``way: checkpoint`` lets it write a
checkpoint while it trains.  Both are loaded with ``from_pretrained``, as a user loads them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trl_compat.runtime import measuring, sft, stand_ins, steps
from trl_compat.runtime.context import Rank


def compared(rank: Rank, taken: steps.Steps, folder: Path) -> dict[str, Any]:
    """How the weights of a saved model stand to those that were trained."""
    loaded = measuring.twin(rank, folder)
    found = {name: p.detach() for name, p in loaded.named_parameters()}
    same = {name for name in taken.after if name in found}
    gaps = {name: measuring.distance({name: taken.after[name]}, found) for name in sorted(same)}
    return {
        "relative_error": measuring.rounded(
            sum(gap**2 for gap in gaps.values()) ** 0.5 / measuring.size(taken.change)
        ),
        "missing": len(set(taken.after) - same),
        "different": sum(gap > 0 for gap in gaps.values()),
    }


def scenario(rank: Rank) -> None:
    if rank.condition("fsdp_version") == 1:
        stand_ins.fsdp1_state_on_cpu(rank)
    way = rank.condition("way")
    more: dict[str, Any] = (
        {"save_strategy": "steps", "save_steps": 1} if way == "checkpoint" else {}
    )
    trainer = sft.trainer(rank, **more)
    taken = steps.take(rank, trainer)
    folder = rank.folder / "out" / "checkpoint-1"
    if way == "save_model":
        folder = rank.folder / "saved"
        trainer.save_model(str(folder))
    moved = measuring.size(taken.change)
    rank.precondition("trained", moved > 1e-3, f"the step moved the weights by {moved:.2g}")
    measuring.everyones(rank, None)  # every rank has written its part
    measuring.judged(rank, "saved", lambda: compared(rank, taken, folder))
