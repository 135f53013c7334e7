"""What a trainer is, and what it asks for: strategy, precision, learning rate, a short epoch."""

from __future__ import annotations

import contextlib
import logging
import traceback
import warnings
from collections.abc import Iterator
from importlib import metadata
from typing import Any

from . import comparing, tensors
from .recording import replaced
from .snapshot import chain
from .verdict import NOT_CHECKED, OK, VIOLATED, Check

_PACKAGES = ("trl", "transformers", "deepspeed", "accelerate", "peft", "torch")


def described(trainer: Any) -> dict[str, Any]:
    """Trainer, strategy, ranks, accumulation, precision, versions."""
    setup = {
        "trainer": type(trainer).__name__,
        "strategy": strategy(trainer),
        "ranks": tensors.rank_and_world()[1],
        "accumulation": trainer.args.gradient_accumulation_steps,
        "precision": tolerance(trainer).name,
    }
    for package in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            setup[package] = metadata.version(package)
    return setup


def strategy(trainer: Any) -> str:
    """How the model is distributed, in words."""
    wrapped = trainer.model_wrapped
    if type(wrapped).__name__ == "DeepSpeedEngine":
        stage = wrapped.zero_optimization_stage()
        offload = any(getattr(one, "cpu_offload", False) for one in chain(trainer.optimizer))
        offload = offload or any(
            getattr(one, "offload_optimizer", False) for one in chain(trainer.optimizer)
        )
        return f"DeepSpeed ZeRO-{stage}" + (" with optimizer offload" if offload else "")
    if tensors.fsdp1(wrapped):
        return "FSDP1"
    if any(hasattr(one, "full_tensor") for one in wrapped.parameters()):
        return "FSDP2"
    return "DDP" if type(wrapped).__name__ == "DistributedDataParallel" else "one process"


def tolerance(trainer: Any) -> comparing.Tolerance:
    """What the precision of training allows."""
    import torch

    halves = (torch.float16, torch.bfloat16)
    config = getattr(trainer.model_wrapped, "_config", None)
    lowered = str(getattr(trainer.accelerator, "mixed_precision", "no")) != "no"
    lowered = lowered or any(
        getattr(config, f"{name}_enabled", False) for name in ("float16", "fp16", "bfloat16")
    )
    lowered = lowered or any(
        one.dtype in halves
        for one in tensors.inner(trainer.model_wrapped).parameters()
        if one.requires_grad
    )
    if lowered:
        return comparing.HALF
    return comparing.CUDA if trainer.args.device.type != "cpu" else comparing.FLOAT32


def scales_losses(trainer: Any) -> bool:
    """Whether steps are skipped when float16 overflows."""
    return "16" in str(getattr(trainer.accelerator, "mixed_precision", "")) or any(
        getattr(one, "loss_scaler", None) is not None for one in chain(trainer.optimizer)[:-1]
    )


def unsupported(trainer: Any) -> str:
    """Why nothing of this trainer can be checked, or an empty text."""
    base = chain(trainer.optimizer)[-1]
    if "lomo" in type(base).__name__.lower():
        return "LOMO updates weights during the backward pass: there is no gradient to look at"
    if not hasattr(base, "param_groups") or not hasattr(base, "state"):
        return f"{type(base).__name__} has no parameter groups"
    if getattr(trainer.args, "n_gpu", 1) > 1:
        return "torch.nn.DataParallel: start one process for each GPU"
    parallel = getattr(trainer.accelerator, "parallelism_config", None)
    for axis in ("tp_size", "cp_size", "sp_size"):
        if (getattr(parallel, axis, 1) or 1) > 1:
            return "tensor, context and sequence parallelism are not known to this check"
    if any(getattr(one, "swap_optimizer", False) for one in chain(trainer.optimizer)):
        return "optimizer offload to NVMe cannot be put back"
    return ""


def frozen_adapters(root: Any) -> list[str]:
    """Tensors of the active adapters that do not require a gradient."""
    if not hasattr(root, "peft_config"):
        return []
    active = getattr(root, "active_adapters", None) or ["default"]
    names = tuple(active) if isinstance(active, (list, tuple)) else (active,)
    return [
        tensor
        for tensor, trained in tensors.trainable(root).items()
        if not trained and any(f".{name}." in f"{tensor}." for name in names)
    ]


def clipping(trainer: Any) -> float:
    """The norm to which gradients are clipped; 0 for not at all."""
    if type(trainer.model_wrapped).__name__ == "DeepSpeedEngine":
        return float(trainer.model_wrapped.gradient_clipping() or 0.0)
    return float(trainer.args.max_grad_norm or 0.0)


def learning_rate(trainer: Any, base: Any, made_by_trainer: bool, scheduled: bool) -> Check | None:
    """Whether the optimizer's learning rate is that of the arguments and their schedule.

    An optimizer that was handed to the trainer may have another one on purpose.
    """
    if getattr(trainer, "optimizer_cls_and_kwargs", None) is not None:
        return None
    asked = float(trainer.args.learning_rate)
    started = {float(group.get("initial_lr", group["lr"])) for group in base.param_groups}
    numbers = {"asked": asked, "initial": max(started)}
    schedulers = chain(trainer.lr_scheduler, "scheduler")
    lambdas = getattr(schedulers[-1], "lr_lambdas", None)
    if asked not in started and len(started) == 1:
        message = "the optimizer does not start from the learning rate of the arguments"
        outcome = VIOLATED if made_by_trainer else NOT_CHECKED
        return Check("settings", outcome, message, numbers)
    if lambdas and scheduled and not trainer.state.global_step:
        factor = float(lambdas[0](0))
        now = float(base.param_groups[0]["lr"])
        numbers = {"asked": asked, "factor": factor, "now": now}
        start = float(base.param_groups[0].get("initial_lr", asked))
        if abs(now - start * factor) > 1e-6 * max(start, 1e-12):
            message = "the learning rate of the first step is not that of the schedule"
            return Check("settings", VIOLATED, message, numbers)
    return Check("settings", OK, "the learning rate is that of the arguments", numbers)


def not_zero(trainer: Any, base: Any) -> None:
    """Gives the optimizer a learning rate if warm-up starts from 0: else nothing would move."""
    for group in base.param_groups:
        if not float(group["lr"]):
            group["lr"] = float(group.get("initial_lr") or trainer.args.learning_rate or 1e-3)


@contextlib.contextmanager
def short_epoch(trainer: Any) -> Iterator[bool]:
    """In this block an epoch is one whole window and a shorter one, where samples allow it.

    Only with transformers' own sampler: others (GRPO's) count on the length of the whole dataset.

    Yields:
        Whether the epoch was shortened so.
    """
    dataset, args = trainer.train_dataset, trainer.args
    window = args.gradient_accumulation_steps
    world = tensors.rank_and_world()[1]
    rest = max(1, window // 2)
    rows = args.train_batch_size * world * (window + rest)
    own = type(trainer)._get_train_sampler.__module__ == "transformers.trainer"
    sized = hasattr(dataset, "select") and hasattr(dataset, "__len__")
    if window == 1 or not own or not sized or len(dataset) <= rows:
        yield bool(window > 1 and own and sized and len(dataset) % (rows // (window + rest) or 1))
        return
    with replaced(trainer, "train_dataset", dataset.select(range(rows))):
        yield True


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """In this block neither the trainer's log lines nor its warnings are shown."""
    loggers = [logging.getLogger(name) for name in ("transformers", "trl", "accelerate")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels):
            logger.setLevel(level)


def raised(error: Exception) -> str:
    """An exception in one line, with the place that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {frames[-1].filename.rsplit('/', 1)[-1]}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{where}: {str(error)[:200]}"
