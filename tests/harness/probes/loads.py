"""Loads the tiny model under ZeRO-3 forty times and compares it with its file each time."""

from __future__ import annotations

from pathlib import Path

from trl_compat.runtime import strategies, weights
from trl_compat.runtime.context import Rank

LOADS = 40


def scenario(rank: Rank) -> None:
    from deepspeed import comm
    from transformers import AutoModelForCausalLM
    from transformers.integrations.deepspeed import HfDeepSpeedConfig

    comm.init_distributed("gloo")
    config = strategies.deepspeed_config(3)
    config.update(train_micro_batch_size_per_gpu=1, gradient_accumulation_steps=1)
    config["train_batch_size"] = rank.world_size
    keep = HfDeepSpeedConfig(config)
    on_file = weights.saved_state(Path(rank.spec.model_dir))
    wrong = []
    for number in range(LOADS):
        held = weights.full_state(AutoModelForCausalLM.from_pretrained(rank.spec.model_dir))
        if weights.difference({name: on_file[name] for name in held}, held):
            wrong.append(number)
    assert keep is not None
    rank.observe("wrong", wrong)
    rank.check("loads-equal-file", not wrong, f"{len(wrong)} of {LOADS} loads differ from the file")
