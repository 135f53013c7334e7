"""The minimal fix of ``fsdp2-unties-embeddings``: tied embeddings are sharded as one group.

accelerate 1.14.0 gives FSDP2 the input embedding without the output embedding that shares its
weight.  While it prepares a model, the output embedding is added to that group, as 1.15.0 does.
"""

from __future__ import annotations

from typing import Any


def apply() -> str:
    """Makes accelerate shard tied embeddings together; says what it did."""
    import accelerate.accelerator as place
    import torch.distributed.fsdp as fsdp

    prepare: Any = place.fsdp2_prepare_model
    if getattr(prepare, "together", False):
        return "already applied"

    def prepare_together(accelerator: Any, model: Any) -> Any:
        first, last = model.get_input_embeddings(), model.get_output_embeddings()
        tied = last is not None and first.weight is last.weight
        shard = fsdp.fully_shard

        def shard_together(modules: Any, **options: Any) -> Any:
            group = modules if isinstance(modules, list) else [modules]
            if tied and first in group and last not in group:
                modules = [*group, last]
            return shard(modules, **options)

        fsdp.fully_shard = shard_together
        try:
            return prepare(accelerator, model)
        finally:
            fsdp.fully_shard = shard

    vars(prepare_together)["together"] = True
    place.fsdp2_prepare_model = prepare_together
    return "tied embeddings are sharded as one group"
