"""reference: DPO's reference model is the policy before the first step, and stays so.

Before anything is trained both models are the same: the loss is ln 2 and all rewards are 0.  Two
steps with a large learning rate follow; the weights of the reference model are compared with those
in the file before the first and after the last.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

from trl_compat.runtime import dpo, measuring, steps, weights
from trl_compat.runtime.context import Rank, at_least, replace

STEPS = 2
REWARDS = ("rewards/chosen", "rewards/rejected", "rewards/margins")


def distance(rank: Rank, found: measuring.Tensors) -> float:
    """The largest difference of any weight from that in the model's file."""
    file = weights.saved_state(Path(rank.spec.model_dir))
    if not set(found) <= set(file) or not found:
        return 1e9
    gaps = [(found[n].float() - file[n].float()).abs().max().item() for n in found]
    return float(f"{max(gaps):.1e}") if all(map(math.isfinite, gaps)) else 1e9


def load_on_rank_0(rank: Rank) -> list[int]:
    """Lets rank 0 alone read the models' files, as ``fsdp_cpu_ram_efficient_loading`` asks for.

    Memory that nothing has written is NaN meanwhile, so that what is read of it is the same in
    every run.

    Returns:
        The ranks that have read the file, once a model is loaded.
    """
    import torch

    load, readers = steps.model_of, list[int]()

    def loaded(rank: Rank, folder: Path | None = None) -> Any:
        os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] = "true"
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            model = load(rank, folder)
        finally:
            torch.use_deterministic_algorithms(False)
        read = all(not p.is_meta for p in model.parameters()) and not distance(
            rank, {name: p.detach() for name, p in model.named_parameters()}
        )
        readers[:] = [who for who, has in enumerate(measuring.everyones(rank, read)) if has]
        return model

    replace(steps, "model_of", loaded)
    return readers


def scenario(rank: Rank) -> None:
    readers = load_on_rank_0(rank) if rank.condition("cpu_ram_efficient_loading") else []
    given = rank.condition("reference", "given") == "given"
    if not given and rank.condition("zero_stage") == 3 and not at_least("trl", "0.29.0"):
        rank.not_applicable("TRL copies no model that ZeRO-3 shards", since="0.29.0")
    trainer = dpo.trainer(rank, Path(rank.spec.model_dir) if given else None, STEPS)
    start = measuring.whole_model(trainer.ref_model)
    step = steps.take(rank, trainer, STEPS)
    end = measuring.whole_model(trainer.ref_model)
    moved = max(gap.abs().max().item() for gap in step.change.values())
    stood = moved <= 1e-4  # not a number has moved
    rank.precondition("moved", not stood, f"the policy has moved by {moved:.1g} at most")
    dpo.assert_rows(rank, measuring.everyones(rank, step.batches))
    loss = dpo.logged(rank, step, "loss")
    reward = max(abs(dpo.logged(rank, step, name)) for name in REWARDS)
    measuring.judged(
        rank,
        "reference",
        lambda: {
            "loss_error": measuring.rounded(abs(loss - math.log(2))),
            "reward": measuring.rounded(reward),
            "start": distance(rank, start),
            "end": distance(rank, end),
            **({"read_by": measuring.said(readers)} if readers else {}),
        },
    )
