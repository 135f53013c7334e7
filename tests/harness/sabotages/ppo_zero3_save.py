"""Sabotages of ppo-zero3-save: training that does nothing, and checkpoints spoilt on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .declaration import breaks
from .spoiling import no_learning_rate, upon

VARIANT = "zero3-gathered"
TENSOR = "model.layers.0.mlp.up_proj.weight"


def rewrite(rank: Any, reproduction: Any, change: Callable[[dict[str, Any], Any], None]) -> None:
    """After saving, ``change`` gets the tensors and their folder; what it leaves is written."""

    def change_file(_: Any, trainer: Any, folder: Any) -> None:
        from safetensors.torch import load_file, save_file

        if rank.main:
            path = folder / "model.safetensors"
            tensors = load_file(str(path))
            change(tensors, folder)
            save_file(tensors, str(path), metadata={"format": "pt"})

    upon(reproduction, "save_by_hand", change_file)


@breaks("trained", within="scenario", variant=VARIANT)
def steps_that_do_nothing(rank: Any, reproduction: Any) -> None:
    no_learning_rate()


@breaks("saved-tensors", within="assert_checkpoint", variant=VARIANT)
def one_byte_changed(rank: Any, reproduction: Any) -> None:
    def change(_: Any, trainer: Any, folder: Any) -> None:
        if rank.main:
            path = folder / "model.safetensors"
            content = bytearray(path.read_bytes())
            content[-1] ^= 1
            path.write_bytes(bytes(content))

    upon(reproduction, "save_by_hand", change)


@breaks("saved-tensors", within="assert_checkpoint", variant=VARIANT)
def a_tensor_left_out(rank: Any, reproduction: Any) -> None:
    def leave_out(tensors: dict[str, Any], folder: Any) -> None:
        del tensors[TENSOR]

    rewrite(rank, reproduction, leave_out)


@breaks("saved-tensors", within="assert_checkpoint", variant=VARIANT)
def a_tensor_empty(rank: Any, reproduction: Any) -> None:
    def empty(tensors: dict[str, Any], folder: Any) -> None:
        tensors[TENSOR] = tensors[TENSOR].new_empty(0)

    rewrite(rank, reproduction, empty)


@breaks("reloaded", within="assert_checkpoint", variant=VARIANT)
def a_tensor_where_nobody_looks(rank: Any, reproduction: Any) -> None:
    def move(tensors: dict[str, Any], folder: Any) -> None:
        from safetensors.torch import save_file

        save_file({TENSOR: tensors.pop(TENSOR)}, str(folder / "beside.safetensors"))

    rewrite(rank, reproduction, move)
