"""Three steps of the stack's own Trainer on fixed data; the losses are observed."""

from __future__ import annotations

from typing import Any

from trl_compat.runtime import data, strategies, trainers, weights
from trl_compat.runtime.context import Rank


def rows(tokenizer: Any) -> list[dict[str, list[int]]]:
    """Eight rows of equal length, so that no padding enters a loss."""
    ids = [tokenizer(text)["input_ids"][:8] for text in data.PROMPTS]
    length = min(map(len, ids))
    return [{"input_ids": i[:length], "labels": i[:length]} for i in ids * 3]


def scenario(rank: Rank) -> None:
    from transformers import (
        AutoModelForCausalLM,
        AutoTokenizer,
        Trainer,
        TrainingArguments,
        default_data_collator,
    )

    arguments = TrainingArguments(
        output_dir=str(rank.folder / "out"),
        **trainers.quiet_arguments(TrainingArguments, max_steps=3, max_grad_norm=1.0),
        **strategies.deepspeed_argument(rank),
    )
    model = AutoModelForCausalLM.from_pretrained(rank.spec.model_dir)
    weights.assert_loaded(rank, model, "model")
    tokenizer = AutoTokenizer.from_pretrained(rank.spec.model_dir)
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=rows(tokenizer),
        data_collator=default_data_collator,
    )
    trainer.train()
    strategies.assert_engine(rank, trainer.model_wrapped)
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    rank.observe("losses", losses)
    rank.check("three-losses", len(losses) == 3, f"{len(losses)} losses were logged")
