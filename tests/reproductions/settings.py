"""settings: what a script asks for is what takes effect.

The script asks for a gradient norm below that of the step; SGD with learning rate 1 then moves the
weights by exactly that.  With ``clipping: unnamed`` only the trainer's arguments ask for it: the
configuration of DeepSpeed has no ``gradient_clipping``.
"""

from __future__ import annotations

from typing import Any

from trl_compat.runtime import measuring, sft, steps
from trl_compat.runtime.context import Rank

ASKED = 0.01  # far below the norm of any step here


def compared(rank: Rank, taken: steps.Steps, batches: Any) -> dict[str, Any]:
    """The length of the step beside what was asked, and beside a step without clipping."""
    whole = measuring.comparison(taken.change, sft.parts(rank, batches))
    length = measuring.size(taken.change)
    return {
        "step": round(length, 5),
        "asked": ASKED,
        "projection": whole["projection"],
        "relative_error": measuring.rounded(abs(length / ASKED - 1)),
    }


def scenario(rank: Rank) -> None:
    taken = steps.take(rank, sft.trainer(rank, max_grad_norm=ASKED))
    batches = measuring.everyones(rank, taken.batches)
    sft.assert_rows(rank, batches)
    measuring.judged(rank, "settings", lambda: compared(rank, taken, batches))
