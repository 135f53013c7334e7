"""ranks: a step on several ranks has the gradient that one rank has on the same rows.

The rows differ in length, so the ranks' shares of the tokens do: a mean of the ranks' means is not
the mean over all tokens.
"""

from __future__ import annotations

from trl_compat.runtime import measuring, sft, steps
from trl_compat.runtime.context import Rank


def scenario(rank: Rank) -> None:
    step = steps.take(rank, sft.trainer(rank))
    batches = measuring.everyones(rank, step.batches)
    sft.assert_rows(rank, batches)
    measuring.judged(
        rank, "ranks", lambda: measuring.comparison(step.change, sft.parts(rank, batches))
    )
