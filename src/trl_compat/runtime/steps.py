"""Optimizer steps of a real trainer, with what went in and what they did to the weights.

The trainer is TRL's or transformers' own.  For one step that shows the gradient it is given SGD
with learning rate 1 in the place where it makes its optimizer, no clipping, no warm-up and no
weight decay; each batch that its collator makes is kept, as that is what the reference has to be
computed from.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import measuring, stand_ins, strategies, trainers
from .context import Rank, at_least

ROWS = 2  # of a micro-batch, unless a fix asks for others


@dataclass
class Steps:
    """What one or several steps were.

    Attributes:
        batches: what the collator made on this rank, in order.
        before, after: the weights, whole.
        logs: what the trainer logged.
    """

    batches: list[dict[str, Any]] = field(default_factory=list)
    before: measuring.Tensors = field(default_factory=dict)
    after: measuring.Tensors = field(default_factory=dict)
    logs: list[dict[str, Any]] = field(default_factory=list)

    @property
    def change(self) -> measuring.Tensors:
        """What was taken from the weights."""
        return measuring.change(self.before, self.after)


def arguments(rank: Rank, config: Any, **more: Any) -> dict[str, Any]:
    """Arguments of a config class for one step that measures the gradient, with more or others."""
    strategies.configure_fsdp(rank)
    if kind := rank.condition("fsdp_state_dict_type"):
        os.environ["FSDP_STATE_DICT_TYPE"] = kind
    asked = {
        "output_dir": str(rank.folder / "out"),
        "per_device_train_batch_size": rank.condition("per_device_train_batch_size", ROWS),
        "gradient_accumulation_steps": rank.condition("gradient_accumulation_steps", 1),
        "learning_rate": 1.0,
        "max_steps": 1,
        "max_grad_norm": 0.0,
        "weight_decay": 0.0,
        "warmup_steps": 0,
        **more,
    }
    option = "average_tokens_across_devices"
    if (across := rank.condition(option)) is not None:
        if not trainers.takes(config, option):
            rank.not_applicable(f"TrainingArguments has no {option}", since="transformers 4.47.0")
        asked[option] = across
    return {**trainers.quiet_arguments(config, **asked), **deepspeed(rank)}


def deepspeed(rank: Rank) -> dict[str, Any]:
    """``{"deepspeed": config}`` with the variant's settings, or nothing without DeepSpeed."""
    given = strategies.deepspeed_argument(rank)
    if given:
        config = given["deepspeed"]
        if rank.condition("clipping") != "unnamed":
            config["gradient_clipping"] = "auto"  # what max_grad_norm says
        if rank.condition("offload_optimizer", "none") != "none":
            config["zero_optimization"]["offload_optimizer"] = {"device": "cpu"}
        if (gather := rank.condition("gather_16bit_weights")) is not None:
            config["zero_optimization"]["stage3_gather_16bit_weights_on_model_save"] = gather
    return given


def rows_of_a_step(rank: Rank) -> int:
    """How many rows one step takes on all ranks together."""
    rows = rank.condition("per_device_train_batch_size", ROWS)
    return int(rows * rank.condition("gradient_accumulation_steps", 1) * rank.world_size)


def model_of(rank: Rank, folder: Path | None = None) -> Any:
    """The tiny model, or that of a folder, in float32: every release loads it so if asked to."""
    import torch
    from transformers import AutoModelForCausalLM

    place = folder or rank.spec.model_dir
    return AutoModelForCausalLM.from_pretrained(place, torch_dtype=torch.float32)


@contextlib.contextmanager
def fsdp(rank: Rank) -> Any:
    """FSDP where the variant has it: on CPU ranks its state is forced."""
    version = rank.condition("fsdp_version")
    if version == 2 and not (at_least("accelerate", "1.6.0") and at_least("torch", "2.6.0")):
        rank.not_applicable("no FSDP2 in this stack", since="accelerate 1.6.0 and torch 2.6.0")
    if version == 2 and rank.spec.device == "cpu" and not at_least("torch", "2.7.0"):
        rank.not_applicable("the backward pass of FSDP2 raises on CPU ranks", until="torch 2.6")
    with contextlib.ExitStack() as stack:
        if version is not None:
            stack.enter_context(stand_ins.forced_fsdp_state(rank))
        yield


def take(
    rank: Rank,
    trainer: Any,
    count: int = 1,
    optimizer: Callable[[Any], Any] | None = measuring.sgd,
    resume: Path | None = None,
) -> Steps:
    """Trains, and says what the steps were.

    Args:
        count: at which step the trainer's arguments let it end.
        optimizer: makes the optimizer of the parameters; None leaves that to the trainer.
        resume: the checkpoint from which to go on.
    """
    from transformers import TrainerCallback

    steps = Steps()
    collate = trainer.data_collator

    def kept(rows: Sequence[Any]) -> Any:
        batch = collate(rows)
        steps.batches.append({n: v.clone() if hasattr(v, "clone") else v for n, v in batch.items()})
        return batch

    def create_optimizer(*_args: Any, **_kwargs: Any) -> Any:
        assert optimizer is not None
        if trainer.optimizer is None:
            chosen = [p for p in trainer.model.parameters() if p.requires_grad]
            trainer.optimizer = optimizer(chosen)
        return trainer.optimizer

    class Watch(TrainerCallback):  # type: ignore[misc]  # transformers is untyped here
        def on_train_begin(self, *_args: Any, **_kwargs: Any) -> None:
            assert_wrapped(rank, trainer)
            steps.before = measuring.whole(trainer)

        def on_log(self, *args: Any, logs: Any = None, **_kwargs: Any) -> None:
            steps.logs.append(dict(logs or {}))

    trainer.data_collator = kept
    if optimizer is not None:
        trainer.create_optimizer = create_optimizer
    trainer.add_callback(Watch())
    trainer.train(resume_from_checkpoint=str(resume) if resume else None)
    steps.after = measuring.whole(trainer)
    taken = trainer.state.global_step
    rank.precondition("steps", taken == count, f"{taken} steps were taken, not {count}")
    if resume is not None:
        return steps  # what was skipped went through the collator as well
    wanted = count * rank.condition("gradient_accumulation_steps", 1)
    made = len(steps.batches)
    rank.precondition(
        "micro-batches", made >= wanted, f"{made} micro-batches were made of {wanted}"
    )
    steps.batches = steps.batches[:wanted]
    return steps


def assert_wrapped(rank: Rank, trainer: Any) -> None:
    """Precondition: the strategy that the variant names is the one that is used."""
    if rank.condition("fsdp_version") is not None:
        strategies.assert_fsdp(rank, trainer.accelerator)
    else:
        strategies.assert_engine(rank, trainer.model_wrapped)
