"""merged: merging gives the logits of base plus adapter, and the saved adapter is the trained one.

Two steps of the SFT trainer with a LoRA adapter: after the first only one of its two factors has
moved.  The right logits are those of a twin in float64 whose weights are those of the model's file
plus the scaled product of the factors, computed here.

With the condition ``modules_to_save`` the output embedding is trained as a whole beside the
adapter.  Then the merged model is saved and loaded as well, as a model that is given to others is:
where the output embedding was tied to the input embedding, the two differ after such a training.
With ``tie_word_embeddings: false`` its configuration says so when it is saved.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trl_compat.runtime import measuring, sft, stand_ins, steps, weights
from trl_compat.runtime.context import Rank, at_least

TAKEN = 2  # optimizer steps
RATE = 1.0  # of SGD: two steps move the adapter far enough to be seen
BASE = "base_model.model."
RANK, ALPHA = 4, 8
WHOLE = ".modules_to_save."  # in the name of a tensor that is trained as a whole
HEAD = "lm_head.weight"


def lora(rank: Rank) -> Any:
    from peft import LoraConfig

    whole = rank.condition("modules_to_save")
    return LoraConfig(
        r=RANK,
        lora_alpha=ALPHA,
        lora_dropout=0.0,
        target_modules=["q_proj", "v_proj"],
        task_type="CAUSAL_LM",
        modules_to_save=[whole] if whole else None,
    )


def fast_sgd(parameters: Any) -> Any:
    import torch

    return torch.optim.SGD(parameters, lr=RATE)


def trained(name: str) -> bool:
    """Whether a tensor of this name belongs to the adapter."""
    return ".lora_" in name or WHOLE in name


def on_file(name: str) -> str:
    """The name that a tensor of the adapter has in its file."""
    return name.replace(".default.", ".").replace(WHOLE, ".")


def adapter(tensors: Mapping[str, Any]) -> measuring.Tensors:
    """The adapter's tensors by name: of which module, and which factor."""
    return {on_file(name): tensor.to("cpu") for name, tensor in tensors.items() if trained(name)}


def base(tensors: Mapping[str, Any]) -> measuring.Tensors:
    """The other tensors, by the names of the bare model."""
    return {
        name.replace(BASE, "", 1)
        .replace(".base_layer.", ".")
        .replace(".original_module.", "."): tensor.to("cpu")
        for name, tensor in tensors.items()
        if not trained(name)
    }


def logits(model: Any) -> Any:
    """What a model says of some tokens, in float64."""
    import torch

    ids = torch.randint(5, 500, (2, 11), generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        return model(input_ids=ids).logits.double()


def by_hand(rank: Rank, factors: Mapping[str, Any]) -> Any:
    """The right model: W + alpha / r * B A, in float64, with the trained output embedding."""
    import torch

    model = measuring.twin(rank)
    if BASE + HEAD in factors:  # a parameter of its own, also where it was tied
        model.lm_head.weight = torch.nn.Parameter(factors[BASE + HEAD].double())
    weights = dict(model.named_parameters())
    with torch.no_grad():
        for name in factors:
            if name.endswith(".lora_A.weight"):
                module = name.removesuffix(".lora_A.weight")
                down, up = factors[name], factors[f"{module}.lora_B.weight"]
                weight = weights[module.replace(BASE, "", 1) + ".weight"]
                weight += ALPHA / RANK * (up.double() @ down.double())
    return model


def with_adapter(rank: Rank, factors: Mapping[str, Any]) -> Any:
    """PEFT's model around the weights of the file, with these factors."""
    import torch
    from peft import get_peft_model

    model = get_peft_model(measuring.twin(rank).float(), lora(rank)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if trained(name):
                parameter.copy_(factors[on_file(name)])
    return model


def loaded(rank: Rank, folder: Path) -> measuring.Tensors:
    """The adapter that ``PeftModel.from_pretrained`` finds in a folder; empty without a file.

    A tensor that is trained as a whole is looked up in the file: one of another size cannot be
    loaded.
    """
    from peft import PeftModel

    if not any((folder / f"adapter_model.{kind}").is_file() for kind in ("safetensors", "bin")):
        return {}
    if rank.condition("modules_to_save"):
        return weights.saved_state(folder)
    model = PeftModel.from_pretrained(measuring.twin(rank).float(), str(folder))
    return adapter(dict(model.named_parameters()))


def wrong(expected: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """The names whose tensors are not equal, or not there."""
    return [
        name
        for name, tensor in expected.items()
        if name not in found
        or found[name].shape != tensor.shape
        or not bool((found[name].float() == tensor.float()).all())
    ]


def compared(rank: Rank, step: steps.Steps, folder: Path) -> dict[str, Any]:
    """The trained adapter, merged and saved, compared with what is right."""
    before, factors = adapter(step.before), adapter(step.after)
    plain = measuring.twin(rank)
    right, without = logits(by_hand(rank, factors)), logits(plain)
    model = with_adapter(rank, factors)
    unmerged = logits(model)
    merged = model.merge_and_unload()
    together = logits(merged)
    effect = (right - without).norm().item()
    lists = {
        "base_changed": wrong(dict(plain.float().named_parameters()), base(step.after)),
        "adapter_still": sorted(set(factors) - set(wrong(factors, before))),
        "saved_wrong": wrong(factors, loaded(rank, folder)),
    }
    found: dict[str, Any] = {
        "adapters": len(factors),
        "effect": measuring.rounded(effect / without.norm().item()),
        "merged_error": measuring.rounded((together - right).norm().item() / effect),
        "unmerged_error": measuring.rounded((unmerged - right).norm().item() / effect),
        **{name: len(names) for name, names in lists.items()},
    }
    if rank.condition("modules_to_save"):
        if not rank.condition("tie_word_embeddings"):
            merged.config.tie_word_embeddings = False
        merged.save_pretrained(rank.folder / "merged")
        again = logits(measuring.twin(rank, rank.folder / "merged").float())
        found["reloaded_error"] = measuring.rounded((again - right).norm().item() / effect)
    first = [f"{name}: {names[0]}" for name, names in lists.items() if names]
    return {**found, "first_wrong": first[0]} if first else found


def scenario(rank: Rank) -> None:
    if rank.condition("fsdp_version") == 2 and not at_least("accelerate", "1.7.0"):
        rank.not_applicable("FSDP2 saves no whole model", since="accelerate 1.7.0")
    if rank.condition("fsdp_version") == 1:
        stand_ins.fsdp1_state_on_cpu(rank)
    trainer = sft.trainer(rank, TAKEN, peft_config=lora(rank), max_steps=TAKEN)
    step = steps.take(rank, trainer, TAKEN, fast_sgd)
    folder = rank.folder / "adapter"
    trainer.save_model(str(folder))
    held = len(adapter(step.after))
    rank.precondition("adapter", held, "the trained model has no adapter")
    wrapped = {"wrapped_as": type(trainer.model_wrapped).__name__}
    measuring.judged(rank, "merged", lambda: {**wrapped, **compared(rank, step, folder)})
