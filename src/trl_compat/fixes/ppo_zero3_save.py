"""Fix for ``ppo-zero3-save``: PPO under DeepSpeed saves the policy part of what the engine gathers.

TRL 0.10.1 to 1.12.0 (huggingface/trl#2122, #2885).  Use it before the trainer is made::

    from trl_compat.fixes import ppo_zero3_save

    ppo_zero3_save.apply()
"""

from __future__ import annotations

from typing import Any

from trl_compat.runtime import trainers
from trl_compat.runtime.context import NotApplicable, at_least, installed

PREFIX = "policy."


def apply() -> str:
    """Gives the PPO trainer a ``save_model`` and a ``_save`` that work under DeepSpeed.

    Returns:
        What was done, in one sentence.
    """
    version = installed("trl")
    if not at_least("trl", "0.10.0"):
        return f"not needed: TRL {version} gathers from the engine itself"
    try:
        trainer_class, _ = trainers.find("PPO")
    except NotApplicable:
        return f"not needed: TRL {version} has no PPO trainer"
    if getattr(trainer_class, "_saves_through_engine", False):
        return "already applied"
    _patch(trainer_class)
    return f"applied: {trainer_class.__name__} of TRL {version} saves through the engine"


def _patch(trainer_class: Any) -> None:
    from transformers import Trainer

    faulty = trainer_class.save_model
    save = trainer_class._save

    def save_model(self: Any, output_dir: str | None = None, _internal_call: bool = False) -> None:
        if not self.is_deepspeed_enabled or not hasattr(self.model, "zero_optimization_stage"):
            faulty(self, output_dir, _internal_call)
            return
        # Trainer gathers from self.deepspeed, which must stay the engine; 0.10.x never set it.
        self.deepspeed = self.model_wrapped = engine = self.model
        self.model = self.accelerator.unwrap_model(engine).policy
        try:
            Trainer.save_model(self, output_dir, _internal_call)
        finally:
            self.model = engine

    def _save(
        self: Any, output_dir: str | None = None, state_dict: dict[str, Any] | None = None
    ) -> None:
        # Off rank 0 there is no state dict; transformers from 5.23 calls this on every rank.
        if self.is_deepspeed_enabled and state_dict is not None:
            state_dict = {
                name[len(PREFIX) :]: tensor
                for name, tensor in state_dict.items()
                if name.startswith(PREFIX)
            }
        save(self, output_dir, state_dict)

    trainer_class.save_model = save_model
    trainer_class._save = _save
    trainer_class._saves_through_engine = True
