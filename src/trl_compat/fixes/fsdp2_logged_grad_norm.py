"""The minimal fix of ``fsdp2-logged-grad-norm``: the parts of the norm are combined.

torch before 2.10 returns the norm of FSDP2's gradients as a DTensor, of which ``.item()`` is the
part of the own rank.
"""

from __future__ import annotations

from typing import Any


def apply() -> str:
    """Makes accelerate return the whole norm of the gradients; says what it did."""
    from accelerate import Accelerator

    clip: Any = Accelerator.clip_grad_norm_
    if getattr(clip, "combines", False):
        return "already applied"

    def clip_and_combine(*args: Any, **options: Any) -> Any:
        norm = clip(*args, **options)
        return norm.full_tensor() if hasattr(norm, "full_tensor") else norm

    vars(clip_and_combine)["combines"] = True
    Accelerator.clip_grad_norm_ = clip_and_combine
    return "accelerate returns the whole norm of the gradients"
