"""online-dpo-ref-none: Online DPO with PEFT asks DeepSpeed for an engine around no model.

With a ``peft_config`` and no ``ref_model`` the trainer needs no second model: the policy with its
adapters disabled is the reference.  TRL 0.11.0 to 0.12.2 hand that absent model to
``deepspeed.initialize`` all the same (huggingface/trl#2410); XPO and Nash-MD inherit it.

The post-condition is what the reference is for: its logits equal those of the base model on the
very same tokens, while the policy's, whose adapters are drawn at random here, do not.  Variants
with ``steps: 1`` judge the calls that the trainer itself made in its training step; the others
stop as soon as the engine is up and make the two calls themselves.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trl_compat.runtime import data, strategies, trainers, weights
from trl_compat.runtime.context import Rank


@dataclass
class Calls:
    """Forward calls of one role: the inputs as given and the logits that came out."""

    made: list[tuple[tuple[Any, ...], dict[str, Any], Any]] = field(default_factory=list)

    def add(self, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        self.made.append((args, kwargs, output.logits.detach().float()))

    def match(self, base: Any) -> list[bool]:
        """Per call: whether the base model gives the same logits wherever there is a token."""
        import torch

        same = []
        for args, kwargs, logits in self.made:
            with torch.no_grad():
                expected = base(*args, **kwargs).logits.float()
            tokens = kwargs["attention_mask"].bool()
            same.append(torch.allclose(logits[tokens], expected[tokens], rtol=1e-4, atol=1e-4))
        return same


class Stop(Exception):
    """Raised by our callback when everything is prepared and no step has been made."""


def longest(completions: list[str], **_: Any) -> list[float]:
    """A reward function: the length of each completion."""
    return [float(len(completion)) for completion in completions]


def reward(rank: Rank, trainer_class: Any, tokenizer: Any) -> dict[str, Any]:
    """Something that rewards: a function from TRL 0.23 on, a small model before.

    Judges are no way through the releases: refused up to 0.11.4, removed in 1.1.0.
    """
    from transformers import AutoModelForSequenceClassification

    if trainers.takes(trainer_class, "reward_funcs"):
        return {"reward_funcs": [longest]}
    model = AutoModelForSequenceClassification.from_pretrained(rank.spec.model_dir, num_labels=1)
    return trainers.accepted(trainer_class, reward_model=model, reward_processing_class=tokenizer)


def base_model(rank: Rank) -> Any:
    """The untouched model of the file, whole on every rank.

    To be called before DeepSpeed is configured: afterwards ``from_pretrained`` would shard it.
    """
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(rank.spec.model_dir).to(rank.device).eval()


def build_trainer(rank: Rank) -> Any:
    """A trainer with ``peft_config`` and without ``ref_model``, in any release that takes both."""
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer

    trainer_class, config_class = trainers.find(rank.condition("trainer"))
    if not trainers.takes(trainer_class, "peft_config"):
        rank.not_applicable(
            "Online DPO takes no peft_config yet, a ref_model is required", since="0.11.0"
        )
    tokenizer = AutoTokenizer.from_pretrained(rank.spec.model_dir, padding_side="left")
    rewarding = reward(rank, trainer_class, tokenizer)
    config = config_class(
        output_dir=str(rank.folder / "out"),
        **strategies.deepspeed_argument(rank),
        **trainers.quiet_arguments(config_class, max_steps=1, max_new_tokens=4),
    )
    policy = AutoModelForCausalLM.from_pretrained(rank.spec.model_dir)
    weights.assert_loaded(rank, policy, "policy")
    return trainer_class(
        model=policy,
        args=config,
        train_dataset=data.prompt_dataset(),
        # Adapters that do nothing, the default, would make any reference look right.
        peft_config=LoraConfig(
            r=4,
            lora_alpha=8,
            target_modules=["q_proj", "v_proj"],
            init_lora_weights=False,
            task_type="CAUSAL_LM",
        ),
        **trainers.accepted(trainer_class, tokenizer=tokenizer, processing_class=tokenizer),
        **rewarding,
    )


def watch(trainer: Any) -> tuple[Calls, Calls]:
    """Records what the policy and the reference are asked and answer, from now on."""
    import torch

    policy, reference = Calls(), Calls()
    model = trainer.accelerator.unwrap_model(trainer.model)

    def policy_called(module: Any, args: Any, kwargs: Any, output: Any) -> None:
        if any(getattr(part, "disable_adapters", False) is True for part in module.modules()):
            reference.add(args, kwargs, output)
        elif torch.is_grad_enabled():  # generation runs without
            policy.add(args, kwargs, output)

    def reference_called(module: Any, args: Any, kwargs: Any, output: Any) -> None:
        reference.add(args, kwargs, output)

    model.register_forward_hook(policy_called, with_kwargs=True)
    if trainer.ref_model is not None:
        second = getattr(trainer.ref_model, "module", trainer.ref_model)
        second.register_forward_hook(reference_called, with_kwargs=True)
    return policy, reference


def prepare_only(trainer: Any) -> None:
    """Runs ``train()`` up to the first step, which is left out."""
    from transformers import TrainerCallback

    class StopBeforeTheFirstStep(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            raise Stop

    trainer.add_callback(StopBeforeTheFirstStep())
    try:
        trainer.train()
    except Stop:
        return


def call_both(rank: Rank, trainer: Any) -> None:
    """Asks the policy as the trainer does: as it is, then with its adapters disabled."""
    import torch

    batch = trainer.processing_class if hasattr(trainer, "processing_class") else trainer.tokenizer
    batch = batch(list(data.PROMPTS[:2]), padding=True, return_tensors="pt").to(rank.device)
    inputs = {"attention_mask": batch["attention_mask"]}
    trainer.model_wrapped(batch["input_ids"], **inputs)
    model = trainer.accelerator.unwrap_model(trainer.model)
    with torch.no_grad(), model.disable_adapter():
        trainer.model_wrapped(batch["input_ids"], **inputs)


def adapters_and_base(trainer: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The policy's tensors: those of the adapters, and the others by their names in the file."""
    adapters, base = {}, {}
    for name, tensor in weights.full_state(trainer.accelerator.unwrap_model(trainer.model)).items():
        if "lora_" in name:
            adapters[name] = tensor
        else:
            base[name.replace("base_model.model.", "", 1).replace(".base_layer", "")] = tensor
    return adapters, base


def assert_reference(rank: Rank, base: Any, policy: Calls, reference: Calls) -> None:
    """Post-condition: the reference answers like the base model, the policy does not."""
    same = reference.match(base)
    rank.check("reference-asked", same, "the reference was not asked for anything")
    rank.check("reference", all(same), "reference logits are not those of the base model")
    same = policy.match(base)
    rank.check("policy-asked", same, "the policy was not asked for anything")
    rank.check("policy", not any(same), "policy logits are those of the base model")


def scenario(rank: Rank) -> None:
    import torch
    from peft import PeftModel

    base = base_model(rank)
    trainer = build_trainer(rank)
    rank.observe("reference", type(trainer.ref_model).__name__)
    policy, reference = watch(trainer)
    before, _ = adapters_and_base(trainer)
    if rank.condition("steps"):
        trainer.train()
        strategies.assert_engine(rank, trainer.model_wrapped)
        after, kept = adapters_and_base(trainer)
        idle = [name for name in before if torch.equal(before[name], after[name])]
        rank.check("adapters-trained", before and not idle, "adapter tensors are unchanged")
    else:
        prepare_only(trainer)
        strategies.assert_engine(rank, trainer.model_wrapped)
        rank.check("no-second-model", trainer.ref_model is None, "a reference model was made")
        call_both(rank, trainer)
        _, kept = adapters_and_base(trainer)
    module = getattr(trainer.model_wrapped, "module", None)
    rank.check("wraps-peft", isinstance(module, PeftModel), "the engine wraps no PEFT model")
    assert_reference(rank, base, policy, reference)
    wrong = weights.difference(weights.saved_state(Path(rank.spec.model_dir)), kept)
    rank.check("base-tensors", not wrong, f"base tensors are not those of the file: {wrong}")


def wrap_before_the_trainer() -> str:
    """Wrong fix: applies the adapters oneself and gives the trainer no ``peft_config``."""
    from peft import get_peft_model

    trainer_class, _ = trainers.find("Online DPO")
    init = trainer_class.__init__

    @functools.wraps(init)
    def init_with_peft_model(self: Any, **given: Any) -> None:
        given["model"] = get_peft_model(given["model"], given.pop("peft_config"))
        init(self, **given)

    trainer_class.__init__ = init_with_peft_model
    return "applied: the policy is wrapped by PEFT before the trainer sees it"


def guard_where_defined() -> str:
    """Wrong fix: guards ``prepare_deepspeed`` in the module that defines it."""
    from trl.trainer import utils

    trainers.find("Online DPO")  # as in a script, whose first lines import the trainer
    prepare = utils.prepare_deepspeed

    def guarded(model: Any, *args: Any, **kwargs: Any) -> Any:
        return None if model is None else prepare(model, *args, **kwargs)

    utils.prepare_deepspeed = guarded
    return "applied: trl.trainer.utils.prepare_deepspeed passes None through"
