"""logps: DPO's log-probabilities are those of the model on each sequence alone.

What the trainer logs of the first step, ``logps/chosen`` and ``logps/rejected``, is the mean over
the pairs of the step; it is compared with the same mean of a twin of the model in float64, which
sees one sequence after the other without any padding.
"""

from __future__ import annotations

from pathlib import Path

from trl_compat.runtime import dpo, measuring, steps
from trl_compat.runtime.context import Rank

SIDES = ("chosen", "rejected")


def scenario(rank: Rank) -> None:
    step = steps.take(rank, dpo.trainer(rank, Path(rank.spec.model_dir)))
    batches = measuring.everyones(rank, step.batches)
    dpo.assert_rows(rank, batches)
    logged = [dpo.logged(rank, step, f"logps/{side}") for side in SIDES]

    def measure() -> dict[str, float]:
        import torch

        model = measuring.twin(rank)
        found = {}
        for number, side in enumerate(SIDES):
            rows = [s for of_rank in batches for b in of_rank for s in dpo.sequences(b)[number]]
            with torch.no_grad():
                right = sum(dpo.logp(model, row).item() for row in rows) / len(rows)
            found[f"{side}_error"] = measuring.rounded(abs(logged[number] - right))
            found[f"{side}_ratio"] = round(logged[number] / right, 4)
        return found

    measuring.judged(rank, "logps", measure)
