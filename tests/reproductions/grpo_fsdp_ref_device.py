"""grpo-fsdp-ref-device: under FSDP, GRPO leaves its reference model whole, on the CPU.

The trainer prepares the reference with ``evaluation_mode=True``; under FSDP accelerate then neither
moves a model nor shards it (huggingface/trl#3348).  From 0.18.0 the trainer wraps it itself, until
0.28.0 with FSDP1's wrapper even where FSDP2 was asked for.  The scenario constructs the trainer and
looks at the reference model: is it on the accelerator's device, is it sharded, and does it still
compute what the model on file computes?
"""

from __future__ import annotations

import contextlib
from typing import Any

from trl_compat.runtime import data, stand_ins, strategies, trainers
from trl_compat.runtime.context import Rank, at_least


def length_reward(completions: list[Any], **_: Any) -> list[float]:
    """A reward that needs no model."""
    return [float(len(completion)) for completion in completions]


def build_trainer(rank: Rank) -> Any:
    """A GRPO trainer on the tiny model's path, with a reference model in every release."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    trainer_class, config_class = trainers.find("GRPO")
    strategies.configure_fsdp(rank)
    config = config_class(
        output_dir=str(rank.folder / "out"),
        **trainers.quiet_arguments(
            config_class,
            beta=0.04,  # 0.0, the default from 0.19.0, means no reference model
            num_generations=2,
            max_prompt_length=16,
            max_completion_length=4,
            use_vllm=False,
            sync_ref_model=True,  # the callback must follow the reference model wherever it goes
            model_init_kwargs={"device_map": None},  # "auto", from 0.27.0, is no distributed choice
        ),
    )
    reward: dict[str, Any] = {"reward_funcs": length_reward}
    if not trainers.takes(trainer_class, "reward_funcs"):  # the first days of GRPO, no release
        # with a layer less than the policy: accelerate compares models of one length while clipping
        reward = {
            "reward_model": AutoModelForSequenceClassification.from_pretrained(
                rank.spec.model_dir, num_labels=1, num_hidden_layers=1
            )
        }
    return trainer_class(
        model=rank.spec.model_dir,
        **reward,
        args=config,
        train_dataset=data.prompt_dataset(),
        processing_class=AutoTokenizer.from_pretrained(rank.spec.model_dir, padding_side="left"),
    )


def plain_model(rank: Rank) -> Any:
    """The model on file, undistributed, on this rank's device."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(rank.spec.model_dir).to(rank.device).eval()


def row(rank: Rank) -> Any:
    """One fixed row of tokens."""
    import torch

    return torch.arange(6, 18, device=rank.device).unsqueeze(0)


def logits(rank: Rank, model: Any) -> Any:
    """What a model computes for the row of tokens; every rank must call it.

    Without the cache for generation: trainers switch it off, and then attention adds in another
    order (transformers 4.56: a difference of 2.5e-6).
    """
    import torch

    with torch.no_grad():
        return model(input_ids=row(rank), use_cache=False).logits


def assert_placed(rank: Rank, reference: Any, device: Any) -> None:
    """Post-condition: no parameter of the reference lies elsewhere than on the device."""
    elsewhere = {str(p.device) for p in reference.parameters() if p.device.type != device.type}
    rank.observe("reference_devices", sorted({str(p.device) for p in reference.parameters()}))
    rank.check(
        "reference-on-device",
        not elsewhere,
        "the reference model was neither moved to the accelerator's device nor sharded on it",
    )


def assert_sharded(rank: Rank, reference: Any, whole: Any) -> None:
    """Post-condition: FSDP of the variant's version holds the reference, a share on each rank."""
    version = rank.condition("fsdp_version")
    if version == 2:
        from torch.distributed.fsdp import FSDPModule as Sharded
        from torch.distributed.tensor import DTensor

        by_tensor = all(isinstance(p, DTensor) for p in reference.parameters())
        local = sum(p.to_local().numel() for p in reference.parameters()) if by_tensor else -1
    else:
        from torch.distributed.fsdp import FullyShardedDataParallel as Sharded

        local = sum(parameter.numel() for parameter in reference.parameters())
    total = sum(parameter.numel() for parameter in whole.parameters())
    rank.observe("reference_class", type(reference).__name__)
    rank.observe("reference_elements", {"local": local, "total": total})
    rank.check(
        "reference-wrapped",
        isinstance(reference, Sharded),
        f"FSDP{version} does not hold the reference model: all of it is on every rank",
    )
    # a quarter on top for padding and for rows that do not divide by the number of ranks
    rank.check(
        "reference-sharded",
        0 < local * rank.world_size <= 1.25 * total,
        f"this rank holds {local} of the reference model's {total} elements, no fair share",
    )


def assert_same_model(rank: Rank, trainer: Any, whole: Any) -> None:
    """Post-condition: the reference computes what the model on file does, in evaluation mode."""
    import torch

    reference = trainer.ref_model
    rank.check("evaluation-mode", not reference.training, "the reference model is in training mode")
    expected, found = logits(rank, whole), logits(rank, reference)
    rank.check(
        "reference-logits",
        torch.allclose(expected, found, rtol=1e-5, atol=1e-6),
        "the reference model computes other logits than the model on file",
    )


def assert_callback(rank: Rank, trainer: Any) -> None:
    """Post-condition: what synchronises the reference model has the one that is used."""
    holders = [
        callback
        for callback in trainer.callback_handler.callbacks
        if type(callback).__name__ == "SyncRefModelCallback"
    ]
    if trainers.takes(type(trainer.args), "sync_ref_model"):
        rank.check(
            "synchronised-reference",
            [holder.ref_model for holder in holders] == [trainer.ref_model],
            "SyncRefModelCallback holds another reference model than the trainer",
        )


def assert_clipping(rank: Rank, trainer: Any) -> None:
    """Post-condition: the policy's gradients can be clipped, as every training step does.

    accelerate looks for the policy among the models that it has prepared and compares their
    parameters; a reference model among them that is sharded as the policy is ends the search with
    an exception.  A step of training would show it too, but generation under FSDP dies before.
    """
    accelerator = trainer.accelerator
    policy = accelerator.prepare(trainer.model)
    logits_of_policy = policy(input_ids=row(rank)).logits
    logits_of_policy.logsumexp(-1).mean().backward()
    norm = accelerator.clip_grad_norm_(policy.parameters(), 1.0)
    rank.check("clipped-gradients", float(norm) > 0, "the policy has no gradients to clip")


def scenario(rank: Rank) -> None:
    version, facet = rank.condition("fsdp_version"), rank.condition("facet")
    trainers.find("GRPO")
    if version == 2 and not (at_least("accelerate", "1.6.0") and at_least("torch", "2.6.0")):
        rank.not_applicable("no FSDP2 in this stack", since="accelerate 1.6.0 and torch 2.6.0")
    with contextlib.ExitStack() as stack:
        if version is not None:
            stack.enter_context(stand_ins.forced_fsdp_state(rank))
        far = stack.enter_context(stand_ins.far_device(rank)) if facet == "device" else None
        trainer = build_trainer(rank)
    strategies.assert_fsdp(rank, trainer.accelerator)
    rank.precondition("reference", trainer.ref_model is not None, "there is no reference model")
    assert_callback(rank, trainer)
    assert_placed(rank, trainer.ref_model, far or trainer.accelerator.device)
    if far is not None:
        return  # nothing can be computed on meta
    whole = plain_model(rank)
    if facet == "sharding":
        assert_sharded(rank, trainer.ref_model, whole)
    assert_same_model(rank, trainer, whole)
    if version == 1:  # FSDP2 shards a policy together with its optimizer only
        assert_clipping(rank, trainer)
    if version is None:
        # The instrument itself: without FSDP the same accelerator does move a model that is far.
        with stand_ins.far_device(rank) as far:
            moved = trainer.accelerator.prepare_model(plain_model(rank), evaluation_mode=True)
            assert_placed(rank, moved, far or trainer.accelerator.device)
