"""Models and DeepSpeed's engines as scenarios use and look at them."""

from __future__ import annotations

from typing import Any


def loss_of(model: Any, batch: dict[str, Any]) -> Any:
    """The language-model loss of a batch, padding left out."""
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    return model(**batch, labels=labels).loss


def generate(model: Any, batch: dict[str, Any], new_tokens: int) -> Any:
    """Greedy generation; all ranks make as many steps, as sharded parameters need."""
    import torch

    with torch.no_grad():
        return model.generate(
            **batch,
            do_sample=False,
            min_new_tokens=new_tokens,
            max_new_tokens=new_tokens,
            output_scores=True,
            return_dict_in_generate=True,
        )


def hooks_of(engine: Any) -> dict[str, list[str]]:
    """The forward hooks of every module, by name: DeepSpeed's gather and release parameters."""
    return {
        name: sorted(
            getattr(hook, "__qualname__", type(hook).__name__)
            for hooks in (module._forward_pre_hooks, module._forward_hooks)
            for hook in hooks.values()
        )
        for name, module in engine.module.named_modules()
    }


def all_sharded(model: Any) -> bool:
    """Whether this rank holds none of the model's parameters as a whole."""
    return all(parameter.numel() == 0 for parameter in model.parameters())


def all_whole(model: Any) -> bool:
    """Whether this rank holds every parameter of the model as a whole."""
    return all(parameter.numel() != 0 for parameter in model.parameters())


def left_whole(engine: Any, batch: dict[str, Any]) -> int:
    """How many parameters a forward pass leaves whole on this rank, where ZeRO-3 shards them."""
    import torch

    with torch.no_grad():
        loss_of(engine, batch)
    if engine.zero_optimization_stage() != 3:
        return 0
    return sum(parameter.numel() != 0 for parameter in engine.module.parameters())
