"""Sabotages of saved: what is on disk is not what was trained, and nothing was trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trl_compat.runtime.context import replace

from .declaration import breaks


@breaks("saved", within="measuring.judged", variant="sft-ddp-model", stack="newest")
def a_tensor_is_cast(rank: Any, reproduction: Any) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    compared = reproduction.compared

    def after_a_cast(rank: Any, taken: Any, folder: Path) -> Any:
        path = folder / "model.safetensors"
        tensors = load_file(str(path))
        name = next(iter(tensors))
        tensors[name] = tensors[name].to(torch.bfloat16).to(tensors[name].dtype)
        save_file(tensors, str(path), metadata={"format": "pt"})
        return compared(rank, taken, folder)

    reproduction.compared = after_a_cast


@breaks("trained", within="scenario", variant="sft-ddp-model", stack="newest")
def nothing_is_trained(rank: Any, reproduction: Any) -> None:
    import torch

    def stand_still(self: Any, closure: Any = None) -> None:
        pass

    replace(torch.optim.SGD, "step", stand_still)
