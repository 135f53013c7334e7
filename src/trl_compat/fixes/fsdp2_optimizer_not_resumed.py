"""The minimal fix of ``fsdp2-optimizer-not-resumed``: a resumed optimizer has a state to read into.

accelerate before 1.13.0 asks the optimizer itself what there is to read; a new one has nothing.
torch makes the state first, as 1.13.0 lets it do.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any


def apply() -> str:
    """Makes a resumed run read the optimizer's state under FSDP2; says what it did."""
    import transformers.trainer as place
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.state_dict import (
        get_optimizer_state_dict,
        set_optimizer_state_dict,
    )

    load: Any = place.load_fsdp_optimizer
    if getattr(load, "whole", False):
        return "already applied"

    def load_whole(
        plugin: Any,
        accelerator: Any,
        optimizer: Any,
        model: Any,
        folder: str,
        optimizer_index: int = 0,
        **options: Any,
    ) -> Any:
        if plugin.fsdp_version != 2 or "SHARDED" not in str(plugin.state_dict_type):
            return load(plugin, accelerator, optimizer, model, folder, optimizer_index, **options)
        state = {"optimizer": get_optimizer_state_dict(model, optimizer)}
        place_of_state = Path(folder) / f"optimizer_{optimizer_index}"
        checkpoint.load(state, storage_reader=checkpoint.FileSystemReader(place_of_state))
        set_optimizer_state_dict(model, optimizer, state["optimizer"])
        return None

    vars(load_whole)["whole"] = True
    place.load_fsdp_optimizer = load_whole
    return "a resumed optimizer has its state"
