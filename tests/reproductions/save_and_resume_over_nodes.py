"""Saving and resuming under ZeRO-3 over several machines, with shared and with node-local folders.

It belongs to no advisory: ``trl-compat nodes`` runs it, by an elastic agent on each node.  In the
phase ``save`` SFT trains to the end and leaves a checkpoint on the way; in the phase ``resume``
fresh processes go on from that checkpoint.  Post-conditions: what was saved equals what was
trained, tensor by tensor, on every node that should have it; the resumed run starts at the step and
with the weights of the checkpoint, and ends with the weights of the run that was not interrupted.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from trl_compat.runtime import data, strategies, trainers, weights
from trl_compat.runtime.context import Rank

SAVED_AT, LAST = 2, 4


def configuration(rank: Rank, checkpoints: Path) -> Any:
    """The arguments of both phases; the learning rate falls, so that it has to be resumed too."""
    from trl import SFTConfig

    return SFTConfig(
        output_dir=str(checkpoints),
        deepspeed=strategies.deepspeed_config(3),
        **trainers.quiet_arguments(
            SFTConfig,
            dataset_text_field="text",
            max_length=32,
            max_seq_length=32,
            lr_scheduler_type="linear",
            max_steps=LAST,
            save_strategy="steps",
            save_steps=SAVED_AT,
            save_on_each_node=bool(rank.condition("save_on_each_node")),
        ),
    )


def build_trainer(rank: Rank, checkpoints: Path, callback: Any) -> Any:
    """SFT on a few short texts, one batch per rank and step."""
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl import SFTTrainer

    rows = 2 * rank.world_size * LAST
    texts = [f"{data.PROMPTS[n % len(data.PROMPTS)]} {n}" for n in range(rows)]
    tokenizer = AutoTokenizer.from_pretrained(rank.spec.model_dir)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    return SFTTrainer(
        model=rank.spec.model_dir,
        args=configuration(rank, checkpoints),
        train_dataset=Dataset.from_dict({"text": texts}),
        callbacks=[callback],
        **trainers.accepted(SFTTrainer, processing_class=tokenizer, tokenizer=tokenizer),
    )


def keeper_of_states(states: dict[int, Any]) -> Any:
    """A callback that keeps the whole weights when training begins and after each step to save."""
    from transformers import TrainerCallback

    class Keeper(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            states[state.global_step] = weights.full_state(given["model"])

        def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            if state.global_step in (SAVED_AT, LAST):
                states[state.global_step] = weights.full_state(given["model"])

    return Keeper()


def files(folder: Path) -> list[str]:
    """What this node holds in a folder."""
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def what_is_saved(trained: Any, folder: Path) -> str:
    """What this node holds of the saved model, in words."""
    found = weights.saved_state(folder)
    if not found:
        return "no weights"
    return weights.difference(trained, found) or "whole, as trained"


def assert_equal(rank: Rank, name: str, expected: Any, found: Any, label: str) -> None:
    wrong = weights.difference(expected, found)
    rank.check(name, not wrong, f"{label}: {wrong}")


def save(rank: Rank, checkpoints: Path, kept: Path) -> None:
    """Trains to the end, with a checkpoint on the way."""
    import torch

    states: dict[int, Any] = {}
    trainer = build_trainer(rank, checkpoints, keeper_of_states(states))
    weights.assert_loaded(rank, trainer.model, "the model")
    trainer.train()
    strategies.assert_engine(rank, trainer.model_wrapped)
    assert_moved(rank, states)
    torch.save(states, kept / f"rank{rank.rank}.pt")
    final = checkpoints / "final"
    trainer.save_model(str(final))
    torch.distributed.barrier()
    saved = checkpoints / f"checkpoint-{SAVED_AT}"
    rank.observe("checkpoint", files(saved))
    if rank.condition("write_latest") and not (saved / "latest").exists():
        (saved / "latest").write_text(f"global_step{SAVED_AT}", encoding="ascii")
    rank.observe("final", what_is_saved(states[LAST], final))
    # The first node holds the whole weights; what the others hold is told and not judged.
    if rank.condition("weights_on_every_node") or os.environ.get("GROUP_RANK") == "0":
        assert_equal(
            rank, "saved-weights", states[LAST], weights.saved_state(final), "the saved model"
        )


def assert_moved(rank: Rank, states: dict[int, Any]) -> None:
    """Precondition: training changed the weights before and after the checkpoint."""
    still = [
        f"{before} to {after}"
        for before, after in ((0, SAVED_AT), (SAVED_AT, LAST))
        if not weights.difference(states[before], states[after])
    ]
    rank.precondition("trained", not still, f"no weight changed from step {still}")


def resume(rank: Rank, checkpoints: Path, kept: Path) -> None:
    """Goes on from the checkpoint, in fresh processes."""
    import torch

    known = kept / f"rank{rank.rank}.pt"
    rank.precondition(
        "same-node", known.is_file(), f"rank {rank.rank} was on another node when it was saved"
    )
    whole = torch.load(str(known), weights_only=True)
    states: dict[int, Any] = {}
    trainer = build_trainer(rank, checkpoints, keeper_of_states(states))
    trainer.train(resume_from_checkpoint=str(checkpoints / f"checkpoint-{SAVED_AT}"))
    strategies.assert_engine(rank, trainer.model_wrapped)
    first = min(states)
    rank.check("resumed-at-step", first == SAVED_AT, f"it began at step {first}, not {SAVED_AT}")
    assert_equal(rank, "resumed-weights", whole[SAVED_AT], states[first], "what was loaded")
    assert_equal(
        rank, "uninterrupted-weights", whole[LAST], states[LAST], "the end of the resumed run"
    )


def scenario(rank: Rank) -> None:
    checkpoints, kept = Path(rank.condition("checkpoints")), Path(rank.condition("kept"))
    rank.observe("node", int(os.environ.get("GROUP_RANK", "0")))
    phase = {"save": save, "resume": resume}[rank.condition("phase")]
    phase(rank, checkpoints, kept)
