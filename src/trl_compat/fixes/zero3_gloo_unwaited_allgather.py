"""Fix for ``zero3-gloo-unwaited-allgather``: wait for every all-gather, not the last only.

For anybody who trains or tests ZeRO-3 on CPU ranks with DeepSpeed up to 0.19.7::

    from trl_compat.fixes import zero3_gloo_unwaited_allgather

    zero3_gloo_unwaited_allgather.apply()
"""

from __future__ import annotations

from typing import Any

from trl_compat.runtime.context import at_least, installed, replace


def apply() -> str:
    """Makes DeepSpeed's ``all_gather_into_tensor`` return when the data has arrived.

    Returns:
        What was done, in one sentence.
    """
    version = installed("deepspeed")
    if at_least("deepspeed", "0.19.8"):
        return f"not needed: DeepSpeed {version} waits for every all-gather"
    from deepspeed import comm
    from deepspeed.comm import comm as comm_module

    start = comm_module.all_gather_into_tensor
    if getattr(start, "_waits", False):
        return "already applied"

    def start_and_wait(*args: Any, **kwargs: Any) -> Any:
        handle = start(*args, **kwargs)
        if handle is not None:
            handle.wait()
        return handle

    start_and_wait._waits = True  # type: ignore[attr-defined]
    # ZeRO-3 looks the function up in the package, DeepSpeed's own wrappers in the module.
    replace(comm, "all_gather_into_tensor", start_and_wait)
    replace(comm_module, "all_gather_into_tensor", start_and_wait)
    return f"applied: DeepSpeed {version} waits for every all-gather"
