"""Fix for ``zero3-gloo-unwaited-allgather``: wait for every all-gather, not the last only.

For anybody who trains or tests ZeRO-3 on CPU ranks with DeepSpeed up to 0.19.7::

    from trl_compat.fixes import zero3_gloo_unwaited_allgather

    zero3_gloo_unwaited_allgather.apply()
"""

from __future__ import annotations

from trl_compat.runtime.gathering import wait_for_every_handle


def apply() -> str:
    """Makes DeepSpeed's ``all_gather_into_tensor`` return when the data has arrived.

    Returns:
        What was done, in one sentence.
    """
    return wait_for_every_handle()
