"""ppo-zero3-save: PPO trains under ZeRO-3 and dies, or would write nonsense, when it saves.

The trainer hands the bare policy to ``Trainer.save_model`` in the place of the DeepSpeed engine
(huggingface/trl#2122, #2885).  The scenario trains one batch of episodes and saves; the
post-condition is the saved checkpoint itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trl_compat.runtime import ppo, strategies, trainers, weights
from trl_compat.runtime.context import Rank


def build_trainer(rank: Rank) -> Any:
    """A PPO trainer around four copies of the tiny model, in any release that has one."""
    from transformers import (
        AutoModelForCausalLM,
        AutoModelForSequenceClassification,
        AutoTokenizer,
    )

    trainer_class, config_class = trainers.find("PPO")
    scorer = scorer_checkpoint(rank)
    strategies.configure_by_environment(rank)
    config = config_class(
        output_dir=str(rank.folder / "out"),
        **trainers.quiet_arguments(
            config_class,
            **ppo.one_batch(rank),
            save_strategy="steps" if rank.condition("save") == "checkpoint" else "no",
            save_steps=1,
        ),
    )
    tokenizer = AutoTokenizer.from_pretrained(rank.spec.model_dir, padding_side="left")
    policy, reference = (
        AutoModelForCausalLM.from_pretrained(rank.spec.model_dir) for _ in range(2)
    )
    reward, value = (AutoModelForSequenceClassification.from_pretrained(scorer) for _ in range(2))
    weights.assert_loaded(rank, policy, "policy")
    weights.assert_loaded(rank, reference, "reference model")
    weights.assert_loaded(rank, reward, "reward model", scorer)
    weights.assert_loaded(rank, value, "value model", scorer)
    return ppo.trainer(
        rank,
        trainer_class,
        config,
        tokenizer,
        policy=policy,
        reference=reference,
        reward=reward,
        value=value,
    )


def scorer_checkpoint(rank: Rank) -> Path:
    """A reward model on disk, made from the tiny model with a head of its own.

    Users load trained ones; a head that the file lacks is left uninitialised under ``zero.Init`` by
    some releases and would make losses random.
    """
    from transformers import AutoModelForSequenceClassification

    folder = rank.folder / f"scorer{rank.rank}"
    model = AutoModelForSequenceClassification.from_pretrained(rank.spec.model_dir, num_labels=1)
    model.save_pretrained(folder)
    return folder


def policy_state(trainer: Any) -> dict[str, Any]:
    """The trained policy's tensors, gathered from the engine on every rank."""
    wrapper = getattr(trainer.model, "module", trainer.model)
    return weights.full_state(wrapper.policy)


def assert_checkpoint(rank: Rank, folder: Path, trained: dict[str, Any]) -> None:
    """Post-condition: the files hold the trained policy, tensor by tensor, and can be loaded."""
    from transformers import AutoModelForCausalLM
    from transformers.integrations.deepspeed import unset_hf_deepspeed_config

    if not rank.main:
        return
    wrong = weights.difference(trained, weights.saved_state(folder))
    rank.check("saved-tensors", not wrong, f"saved checkpoint is not the trained policy: {wrong}")
    unset_hf_deepspeed_config()  # else this rank alone would enter zero.Init and wait for others
    reloaded = AutoModelForCausalLM.from_pretrained(folder)
    wrong = weights.difference(trained, weights.full_state(reloaded))
    rank.check("reloaded", not wrong, f"reloaded model is not the trained policy: {wrong}")


def save_by_hand(trainer: Any, folder: Path) -> None:
    """Saves what all ranks gather from the engine: right, whatever the trainer does."""
    gathered = trainer.accelerator.get_state_dict(trainer.model)
    if trainer.accelerator.is_main_process:
        policy = trainer.accelerator.unwrap_model(trainer.model).policy
        part = {name[7:]: value for name, value in gathered.items() if name.startswith("policy.")}
        policy.save_pretrained(str(folder), state_dict=part)


def ungathered_save_pretrained() -> str:
    """The short fix that articles recommend: swap the model and call ``save_pretrained``."""
    trainer_class, _ = trainers.find("PPO")

    def save_model(self: Any, output_dir: str, _internal_call: bool = False) -> None:
        if self.args.should_save:
            self.accelerator.unwrap_model(self.model).policy.save_pretrained(output_dir)

    trainer_class.save_model = save_model
    return "applied: save_model is policy.save_pretrained"


def scenario(rank: Rank) -> None:
    trainer = build_trainer(rank)
    strategies.assert_engine(rank, trainer.model)
    before = policy_state(trainer)
    trainer.train()
    trained = policy_state(trainer)
    rank.check("trained", weights.difference(before, trained), "training changed no tensor")
    folder = rank.folder / "saved"
    match rank.condition("save"):
        case "trainer":
            trainer.save_model(str(folder))
        case "checkpoint":  # written inside train()
            (folder,) = (rank.folder / "out").glob("checkpoint-*")
        case "gathered":  # the control: the same training, saved without the trainer
            save_by_hand(trainer, folder)
    assert_checkpoint(rank, folder, trained)
