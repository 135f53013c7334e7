"""What a step did to the weights, compared with the gradient that it should have followed.

The optimizer is SGD with learning rate 1, so the change of the weights is the gradient that the
optimizer was given, whatever engine has reduced, partitioned or offloaded it on the way.  The
reference is computed by rank 0 alone: a twin of the model in float64, one micro-batch after the
other, with a loss that is written here and not taken from the stack.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import weights
from .context import Rank

Tensors = dict[str, Any]  # by name of the parameter
SMALLEST_ERROR = 1e-5  # what is nearer to the reference than this is chance of the summation


def sgd(parameters: Any) -> Any:
    """The optimizer whose step is the gradient itself."""
    import torch

    return torch.optim.SGD(parameters, lr=1.0)


def twin(rank: Rank, folder: Path | None = None) -> Any:
    """The cell's model, or that in a folder, in float64 on the CPU, of this process alone."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.integrations import deepspeed

    # A configuration of ZeRO-3 that is still in force would shard it over all ranks.
    in_force = getattr(deepspeed, "_hf_deepspeed_config_weak_ref", None)
    deepspeed.unset_hf_deepspeed_config()
    try:
        model = AutoModelForCausalLM.from_pretrained(folder or rank.spec.model_dir)
    finally:
        deepspeed._hf_deepspeed_config_weak_ref = in_force
    return model.to("cpu", torch.float64).eval()


def token_losses(logits: Any, labels: Any) -> Any:
    """The negative log-likelihood of each labelled token, a flat tensor; label -100 has none."""
    wanted = labels[:, 1:]
    chosen = wanted != -100
    logps = logits[:, :-1].log_softmax(-1)
    picked = logps.gather(-1, wanted.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return -picked[chosen]


def gradient(model: Any, loss: Any) -> Tensors:
    """The gradient of a loss with respect to every parameter of a model.

    A tied parameter has its whole gradient under each of its names: a stack may have trained it as
    if there were two.
    """
    import torch

    every = model.named_parameters(remove_duplicate=False)
    named = [(name, p) for name, p in every if p.requires_grad]
    found = torch.autograd.grad(loss, [p for _, p in named], allow_unused=True)
    return {
        name: torch.zeros_like(parameter) if one is None else one.detach()
        for (name, parameter), one in zip(named, found, strict=True)
    }


def change(before: Mapping[str, Any], after: Mapping[str, Any]) -> Tensors:
    """The step: what a weight had before, less what it has after, in float64."""
    import torch

    return {
        name: before[name].to("cpu", torch.float64) - after[name].to("cpu", torch.float64)
        for name in before
    }


def flat(tensors: Mapping[str, Any], names: Sequence[str]) -> Any:
    """Tensors as one vector, in the order of the names."""
    import torch

    return torch.cat([tensors[name].reshape(-1).to(torch.float64) for name in names])


def distance(right: Mapping[str, Any], found: Mapping[str, Any]) -> float:
    """The length of the difference of two sets of tensors, in float64."""
    names = sorted(right)
    return float((flat(found, names) - flat(right, names)).norm())


def size(tensors: Mapping[str, Any]) -> float:
    """The length of a set of tensors, as one vector."""
    return float(flat(tensors, sorted(tensors)).norm())


def projection(right: Mapping[str, Any], found: Mapping[str, Any]) -> float:
    """The part of ``right`` that is in ``found``: 1 if all of it is."""
    names = sorted(right)
    wanted = flat(right, names)
    return round(float(flat(found, names) @ wanted) / float(wanted.norm()) ** 2, 4)


def comparison(step: Tensors, parts: Sequence[Sequence[Tensors]]) -> dict[str, Any]:
    """How a step stands to the gradient that it should have followed.

    Args:
        step: what was taken from the weights.
        parts: by rank and micro-batch, what this micro-batch adds to the right gradient.

    Returns:
        ``projection`` of the step on the right gradient (1 is right), ``relative_error`` of the
        step, ``shares`` with which each micro-batch came into the step (1 is right, 0 lost),
        averaged over the ranks, ``rank_shares`` with which each rank did, and ``unexplained``, the
        part of the step that is a sum of none of them, relative to the right gradient.
    """
    import torch

    names = sorted(step)
    vectors = [[flat(part, names) for part in of_rank] for of_rank in parts]
    every = torch.stack([vector for of_rank in vectors for vector in of_rank])
    right, taken = every.sum(0), flat(step, names)
    fitted = torch.linalg.lstsq(every @ every.T, (every @ taken).unsqueeze(-1), driver="gelsd")
    factors = fitted.solution.squeeze(-1)
    rest = taken - factors @ every
    table = factors.reshape(len(parts), -1)
    size = right.norm().item()
    first = max(names, key=lambda name: (step[name].to(torch.float64) - _sum(parts, name)).norm())
    found = {
        "projection": round((taken @ right).item() / size**2, 4),
        "relative_error": rounded((taken - right).norm().item() / size),
        "shares": said(table.mean(0)),
        "rank_shares": said(table.mean(1)),
        "unexplained": rounded(rest.norm().item() / size),
    }
    if found["relative_error"] > 1e-3:
        found["worst_tensor"] = first
    return found


def _sum(parts: Sequence[Sequence[Tensors]], name: str) -> Any:
    return sum(part[name] for of_rank in parts for part in of_rank)


def said(numbers: Any) -> str:
    """Numbers as text, two decimals each; a zero has no sign."""
    return " ".join(f"{round(float(number), 2) + 0.0:g}" for number in numbers)


def rounded(error: float) -> float:
    """An error to two digits; what is below chance counts as chance, so that runs agree."""
    if not math.isfinite(error):
        return 1e9
    return float(f"{max(error, SMALLEST_ERROR):.1e}")


def judged(rank: Rank, invariant: str, measure: Callable[[], dict[str, Any]]) -> None:
    """Rank 0 measures, every rank keeps the values and registers the same check.

    What is right is said by the condition ``tolerance``: by name, the largest value that is.

    Args:
        invariant: its id, which is the name of the check.
        measure: computes the values; called on rank 0 only.
    """
    import torch.distributed as dist

    box = [measure() if rank.main else None]
    if dist.is_available() and dist.is_initialized():
        dist.broadcast_object_list(box, src=0, device=device_of_group(rank))
    values = box[0] or {}
    rank.observe("measured", values)
    tolerance = rank.condition("tolerance", {})
    right = bool(tolerance) and all(values[name] <= most for name, most in tolerance.items())
    told = ", ".join(f"{name} {value}" for name, value in values.items())
    tolerated = ", ".join(f"{name} up to {most:g}" for name, most in tolerance.items())
    rank.check(invariant, right, f"{told}; tolerated is {tolerated or 'nothing'}")


def device_of_group(rank: Rank) -> Any:
    """Where objects have to be to be sent to the other ranks."""
    import torch

    return torch.device(rank.device if rank.spec.device == "cuda" else "cpu")


def everyones(rank: Rank, mine: Any) -> list[Any]:
    """An object of each rank, by rank; every rank must call it."""
    import torch.distributed as dist

    found: list[Any] = [None] * rank.world_size
    dist.all_gather_object(found, mine)
    return found


def whole(trainer: Any) -> Tensors:
    """All weights that a trainer trains, whole, whatever wraps them; every rank must call it."""
    import torch.distributed.fsdp as fsdp

    wrapped = trainer.model_wrapped
    sharded = isinstance(wrapped, fsdp.FullyShardedDataParallel)
    return whole_model(wrapped if sharded else trainer.model)


def whole_model(module: Any) -> Tensors:
    """All weights of a model, whole, whatever shards them; every rank must call it."""
    import torch.distributed.fsdp as fsdp

    if isinstance(module, fsdp.FullyShardedDataParallel):
        with fsdp.FullyShardedDataParallel.summon_full_params(module, writeback=False):
            return {plain(n): p.detach().cpu().clone() for n, p in module.named_parameters()}
    return {
        plain(name): (p.full_tensor() if hasattr(p, "full_tensor") else p)
        for name, p in weights.full_state(module).items()
    }


def plain(name: str) -> str:
    """A parameter's name in the bare model."""
    return name.replace("_fsdp_wrapped_module.", "").removeprefix("module.")


def state(module: Any) -> Tensors:
    """All weights of a wrapped model, whole, by the names of the bare model."""
    return {
        name.removeprefix("module."): tensor for name, tensor in weights.full_state(module).items()
    }
