"""Tensors of a model, gathered from all ranks or read from a checkpoint, and how they compare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .context import Rank


def full_state(module: Any) -> dict[str, Any]:
    """All parameters of a module as whole CPU tensors; every rank must call it.

    Works for plain and DDP modules and for ZeRO-3, whose parameters are gathered one by one.
    """
    import torch

    state = {}
    for name, parameter in module.named_parameters():
        if hasattr(parameter, "ds_id"):
            import deepspeed

            with deepspeed.zero.GatheredParameters([parameter]):
                state[name] = parameter.detach().cpu().clone()
        else:
            state[name] = parameter.detach().cpu().clone()
    assert all(isinstance(tensor, torch.Tensor) for tensor in state.values())
    return state


def saved_state(folder: Path) -> dict[str, Any]:
    """All tensors of the checkpoint files in a folder (safetensors or pickled), by name."""
    import torch
    from safetensors.torch import load_file

    state: dict[str, Any] = {}
    for path in sorted(folder.glob("*.safetensors")):
        state.update(load_file(str(path)))
    for path in sorted(folder.glob("pytorch_model*.bin")):
        state.update(torch.load(str(path), map_location="cpu", weights_only=True))
    return state


def difference(expected: dict[str, Any], found: dict[str, Any]) -> str:
    """What is wrong with the found tensors, in one sentence; empty when nothing is.

    A tied output embedding may be left out of a file, as ``save_pretrained`` does.
    """
    import torch

    missing = sorted(set(expected) - set(found) - {"lm_head.weight"})
    unknown = sorted(set(found) - set(expected) - {"lm_head.weight"})
    if missing:
        return f"{len(missing)} of {len(expected)} tensors missing, first {missing[0]}"
    if unknown:
        return f"{len(unknown)} unknown tensors, first {unknown[0]}"
    empty = [name for name in expected if name in found and found[name].numel() == 0]
    if empty:
        return f"{len(empty)} of {len(expected)} tensors empty, first {empty[0]}"
    for name in sorted(set(expected) & set(found)):
        a, b = expected[name], found[name]
        if a.shape != b.shape:
            return f"{name} has shape {tuple(b.shape)} instead of {tuple(a.shape)}"
        if not torch.equal(a.float(), b.float()):
            gap = (a.float() - b.float()).abs().max().item()
            return f"{name} differs by up to {gap:.3g}"
    return ""


def assert_loaded(rank: Rank, module: Any, label: str, folder: Path | None = None) -> None:
    """Precondition: what a model holds after loading equals its file, tensor by tensor.

    ZeRO-3 on gloo has corrupted weights while loading them (``zero3-gloo-unwaited-allgather``), so
    every ZeRO-3 cell looks.
    """
    if rank.condition("zero_stage") != 3:
        return
    on_file = saved_state(folder or Path(rank.spec.model_dir))
    held = {
        name: tensor
        for name, tensor in full_state(module).items()
        if name in on_file  # heads that the file does not have are drawn at random
    }
    wrong = difference({name: on_file[name] for name in held}, held)
    rank.precondition("loaded-weights", not wrong and held, f"{label}: {wrong or 'nothing held'}")
