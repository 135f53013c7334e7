"""Where each release of TRL has a trainer, and which of our arguments its signature accepts.

This handles changes between releases: classes moved between modules (``PPOv2Trainer`` →
``PPOTrainer`` → ``trl.experimental``), arguments were renamed (``tokenizer`` →
``processing_class``, ``policy`` → ``model``), options were added and removed.  A release without
the trainer makes the cell ``not-applicable``; a release that has it and fails to import it is an
error like any other, and so is a stack without TRL.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .context import NotApplicable, release, release_of


@dataclass(frozen=True)
class Home:
    """Where a trainer lives: first and last release, module, names of trainer and config."""

    since: str
    until: str
    module: str
    trainer: str
    config: str


HOMES: dict[str, tuple[Home, ...]] = {
    "PPO": (
        Home("0.9.2", "0.10.1", "trl.trainer.ppov2_trainer", "PPOv2Trainer", "PPOv2Config"),
        Home("0.11.0", "0.11.4", "trl", "PPOv2Trainer", "PPOv2Config"),
        Home("0.12.0", "0.25.1", "trl", "PPOTrainer", "PPOConfig"),
        Home("0.26.0", "1.12.0", "trl.experimental.ppo", "PPOTrainer", "PPOConfig"),
    ),
    "RLOO": (
        Home("0.9.2", "0.10.1", "trl.trainer.rloo_trainer", "RLOOTrainer", "RLOOConfig"),
        Home("0.11.0", "", "trl", "RLOOTrainer", "RLOOConfig"),
    ),
    "GRPO": (Home("0.14.0", "", "trl", "GRPOTrainer", "GRPOConfig"),),
    "Online DPO": (
        Home("0.10.1", "0.25.1", "trl", "OnlineDPOTrainer", "OnlineDPOConfig"),
        Home("0.26.0", "", "trl.experimental.online_dpo", "OnlineDPOTrainer", "OnlineDPOConfig"),
    ),
    "XPO": (
        Home("0.11.0", "0.25.1", "trl", "XPOTrainer", "XPOConfig"),
        Home("0.26.0", "1.13.0", "trl.experimental.xpo", "XPOTrainer", "XPOConfig"),
    ),
    "Nash-MD": (
        Home("0.11.0", "0.25.1", "trl", "NashMDTrainer", "NashMDConfig"),
        Home("0.26.0", "1.13.0", "trl.experimental.nash_md", "NashMDTrainer", "NashMDConfig"),
    ),
}


def find(name: str) -> tuple[Any, Any]:
    """The trainer class and its config class in the release at hand.

    Raises:
        NotApplicable: this release does not have the trainer.
        NotInstalled: there is no TRL.
        ImportError: it should have it and cannot be imported; a result, not a gap.
    """
    version = release_of("trl")
    homes = HOMES[name]
    for home in homes:
        if version >= release(home.since) and (not home.until or version <= release(home.until)):
            module = importlib.import_module(home.module)
            return getattr(module, home.trainer), getattr(module, home.config)
    if version < release(homes[0].since):
        raise NotApplicable(f"TRL has no {name} trainer yet", since=homes[0].since)
    raise NotApplicable(f"TRL has no {name} trainer any more", until=homes[-1].until)


def takes(callable_: Callable[..., Any], name: str) -> bool:
    """Whether a signature has this argument."""
    return name in inspect.signature(callable_).parameters


def accepted(callable_: Callable[..., Any], **candidates: Any) -> dict[str, Any]:
    """Those of the candidate arguments that the signature takes.

    For options that only quieten or shorten a run.  An option on which a verdict depends is to be
    asked for with :func:`takes` first.
    """
    return {name: value for name, value in candidates.items() if takes(callable_, name)}


def quiet_arguments(config: Callable[..., Any], **candidates: Any) -> dict[str, Any]:
    """Arguments for a config class: short, silent, full precision, nothing saved, plus ours."""
    return accepted(
        config,
        **{
            "per_device_train_batch_size": 2,
            "gradient_accumulation_steps": 1,
            "learning_rate": 1e-3,
            "lr_scheduler_type": "constant",
            "report_to": [],
            "save_strategy": "no",
            "logging_steps": 1,
            "disable_tqdm": True,
            "bf16": False,
            "gradient_checkpointing": False,
            "seed": 7,
            "dataloader_pin_memory": False,
            **candidates,
        },
    )
