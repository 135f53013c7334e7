"""The minimal fix of ``peft-fsdp1-empty-adapter``: the names of modules without FSDP1's prefix.

PEFT from 0.21.0 on picks the adapter's tensors by the names of its modules.  FSDP1 puts
``_fsdp_wrapped_module.`` inside these names, and takes it out of those in the state dict.
"""

from __future__ import annotations

from typing import Any

PREFIX = "_fsdp_wrapped_module."


def apply() -> str:
    """Makes PEFT take FSDP1's prefix out of the names wherever it stands; says what it did."""
    from peft.tuners import tuners_utils

    names: Any = getattr(tuners_utils, "_get_tuner_state_dict_key_prefixes", None)
    if names is None:
        return "nothing to fix: this PEFT picks tensors by their own names"
    if getattr(names, "without_fsdp", False):
        return "already applied"

    def without_fsdp(*args: Any, **options: Any) -> set[str]:
        return {name.replace(PREFIX, "") for name in names(*args, **options)}

    vars(without_fsdp)["without_fsdp"] = True
    vars(tuners_utils)["_get_tuner_state_dict_key_prefixes"] = without_fsdp
    return "PEFT finds the adapter's tensors in the state dict of FSDP1"
