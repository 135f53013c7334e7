"""DeepSpeed's all-gathers on gloo, as released up to 0.19.7: waited for, or not.

A stand-in of every cell on CPU ranks, and the fix of ``zero3-gloo-unwaited-allgather``.
"""

from __future__ import annotations

from typing import Any

from trl_compat.runtime.context import at_least, installed, replace


def wait_for_every_handle() -> str:
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
