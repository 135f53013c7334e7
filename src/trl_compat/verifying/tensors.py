"""The weights of a model under any engine: what this rank holds, and the whole tensors by name.

One process, DDP, DeepSpeed ZeRO 0 to 3, FSDP1 and FSDP2.  Names are those of the model itself,
without what wrappers put before them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

# What wrappers put into names: DDP and engines, FSDP1, torch.compile, activation checkpointing.
_WRAPPERS = ("_fsdp_wrapped_module.", "_orig_mod.", "_checkpoint_wrapped_module.")


def rank_and_world() -> tuple[int, int]:
    """This process's rank and the number of ranks; (0, 1) without a process group."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def from_all_ranks(value: Any) -> list[Any]:
    """One small object of every rank."""
    import torch.distributed as dist

    _, world = rank_and_world()
    if world == 1:
        return [value]
    values: list[Any] = [None] * world
    dist.all_gather_object(values, value)
    return values


def inner(model: Any) -> Any:
    """The module below DDP, a DeepSpeed engine, and torch.compile; FSDP stays."""
    while True:
        below = model.__dict__.get("_modules", {}).get("_orig_mod")
        if below is None and type(model).__name__ in (
            "DistributedDataParallel",
            "DataParallel",
            "DeepSpeedEngine",
            "PipelineEngine",
        ):
            below = model.module
        if below is None:
            return model
        model = below


def clean(name: str) -> str:
    """A parameter's name without what wrappers put into it."""
    for part in _WRAPPERS:
        name = name.replace(part, "")
    return name


def fsdp1(root: Any) -> bool:
    """Whether the root, or a module in it, is wrapped by FSDP1."""
    return any(type(module).__name__ == "FullyShardedDataParallel" for module in root.modules())


@contextlib.contextmanager
def unsharded(root: Any) -> Iterator[None]:
    """Under FSDP1 the parameters are whole in this block; every rank must enter it."""
    if not fsdp1(root):
        yield
        return
    from torch.distributed.fsdp import FullyShardedDataParallel

    with FullyShardedDataParallel.summon_full_params(root, writeback=False):
        yield


def local(tensor: Any) -> Any:
    """The storage of a parameter that this rank holds, to be read and written in place."""
    if hasattr(tensor, "ds_tensor"):  # ZeRO-3: the partition, also of what persists
        return tensor.ds_tensor.data
    if hasattr(tensor, "_local_tensor"):  # FSDP2
        return tensor._local_tensor
    return tensor.data


def held(root: Any) -> list[tuple[str, Any]]:
    """Everything in place that this rank holds of a model: parameters, partitions, buffers."""
    tensors = []
    for name, parameter in root.named_parameters():
        tensors.append((clean(name), local(parameter)))
        if hasattr(parameter, "ds_tensor") and parameter.data.numel() == parameter.ds_numel:
            tensors.append((f"{clean(name)} (gathered)", parameter.data))
    tensors += [(f"{clean(name)} (buffer)", buffer.data) for name, buffer in root.named_buffers()]
    return tensors


def whole(root: Any) -> dict[str, Any]:
    """All parameters as whole tensors on the CPU, copied; every rank must call it."""
    state = {}
    with unsharded(root):
        for name, parameter in root.named_parameters():
            state[clean(name)] = _whole(parameter).detach().cpu().clone()
    return state


def _whole(parameter: Any) -> Any:
    if hasattr(parameter, "ds_id"):
        import deepspeed

        with deepspeed.zero.GatheredParameters([parameter]):
            return parameter.data.clone()
    if hasattr(parameter, "full_tensor"):
        return parameter.full_tensor()
    return parameter.data


def trainable(root: Any) -> dict[str, bool]:
    """Whether each parameter is to be trained, by name."""
    with unsharded(root):
        return {clean(name): parameter.requires_grad for name, parameter in root.named_parameters()}
