"""Fix for grpo-zero3-optimizer: the engine is found for a bare model that is to be unwrapped.

Put into a training script, before training starts::

    from trl_compat.fixes import grpo_zero3_optimizer
    grpo_zero3_optimizer.apply()

Up to TRL 0.15.2, ``unwrap_model_for_generation`` knows only what it is given, and GRPO from
0.15.0 on (and whoever calls it so) gives it the bare model.  The engine is among the models that
the accelerator has prepared; handed that, the function takes ZeRO-3's hooks off and puts them back,
as TRL 0.16.0 has it done (huggingface/trl#2871).
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from trl_compat.runtime.context import at_least, installed

MARK = "_trl_compat_finds_engine"


def engine_of(model: Any, accelerator: Any) -> Any:
    """The prepared engine around a bare model, or the model itself where there is none."""
    for prepared in getattr(accelerator, "_models", ()):
        if getattr(prepared, "module", None) is model and hasattr(prepared, "optimizer"):
            return prepared
    return model


def _keep_old_name_of_registration() -> None:
    # DeepSpeed 0.16.4 renamed the method that add_hooks calls up to TRL 0.15.2 (trl#2962).  A bare
    # model never got that far; the engine does.
    from deepspeed.runtime.zero.parameter_offload import DeepSpeedZeRoOffload

    if not hasattr(DeepSpeedZeRoOffload, "_register_hooks_recursively"):
        DeepSpeedZeRoOffload._register_hooks_recursively = (
            DeepSpeedZeRoOffload._register_deepspeed_module
        )


def apply() -> str:
    """Applies the fix to TRL up to 0.15.2 and says what it did."""
    if at_least("trl", "0.16.0"):
        return f"not needed: TRL {installed('trl')} gives the engine to the function itself"
    from trl.models import utils

    original: Any = getattr(utils, "unwrap_model_for_generation", None)
    if original is None:
        return f"not needed: TRL {installed('trl')} has no unwrap_model_for_generation"
    if getattr(original, MARK, False):
        return "already applied"

    @functools.wraps(original)
    def unwrap_model_for_generation(model: Any, accelerator: Any, *args: Any, **kwargs: Any) -> Any:
        return original(engine_of(model, accelerator), accelerator, *args, **kwargs)

    setattr(unwrap_model_for_generation, MARK, True)
    _keep_old_name_of_registration()
    # Trainers import the function by name; those that are imported later get the new one.
    for name, module in list(sys.modules.items()):
        names = vars(module) if name.partition(".")[0] == "trl" else {}
        if names.get("unwrap_model_for_generation") is original:
            names["unwrap_model_for_generation"] = unwrap_model_for_generation
    return "applied: unwrap_model_for_generation finds the engine of a bare model"
