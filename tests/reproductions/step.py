"""step: the weights after some steps are those of AdamW as its paper writes it.

Three steps with the optimizer that the trainer makes itself.  ``adam_epsilon`` is far above the
errors of float32, which Adam's division would make large otherwise.
"""

from __future__ import annotations

from typing import Any

from trl_compat.runtime import measuring, sft, steps
from trl_compat.runtime.context import Rank

STEPS, RATE, EPSILON = 3, 1e-2, 1e-3
BETAS = (0.9, 0.999)


def reference(rank: Rank, batches: list[list[dict[str, Any]]]) -> measuring.Tensors:
    """The weights after the steps, in float64, by the formulas of Adam without weight decay."""
    import torch

    model = measuring.twin(rank)
    named = dict(model.named_parameters())
    first = {name: torch.zeros_like(p) for name, p in named.items()}
    second = {name: torch.zeros_like(p) for name, p in named.items()}
    for step in range(1, STEPS + 1):
        seen = [of_rank[step - 1] for of_rank in batches]
        total = sum(map(sft.labelled, seen))
        loss = sum(sft.losses(model, batch).sum() for batch in seen) / total
        slopes = measuring.gradient(model, loss)
        for name in named:
            slope = slopes[name]
            first[name] = BETAS[0] * first[name] + (1 - BETAS[0]) * slope
            second[name] = BETAS[1] * second[name] + (1 - BETAS[1]) * slope**2
            mean = first[name] / (1 - BETAS[0] ** step)
            spread = (second[name] / (1 - BETAS[1] ** step)).sqrt()
            with torch.no_grad():
                named[name] -= RATE * mean / (spread + EPSILON)
    every = model.named_parameters(remove_duplicate=False)  # a tied one has two names
    return {name: p.detach() for name, p in every}


def compared(rank: Rank, taken: steps.Steps, batches: Any) -> dict[str, Any]:
    """How the weights after the steps stand to the reference."""
    right = measuring.change(taken.before, reference(rank, batches))
    change = taken.change
    still = [n for n in sorted(change) if right[n].norm() > 0 and change[n].norm() == 0]
    return {
        "relative_error": measuring.rounded(
            measuring.distance(right, change) / measuring.size(right)
        ),
        "projection": measuring.projection(right, change),
        "unmoved": len(still),
    }


def scenario(rank: Rank) -> None:
    trainer = sft.trainer(
        rank, STEPS, learning_rate=RATE, adam_epsilon=EPSILON, optim="adamw_torch"
    )
    taken = steps.take(rank, trainer, STEPS, optimizer=None)
    batches = measuring.everyones(rank, taken.batches)
    sft.assert_rows(rank, batches)
    measuring.judged(rank, "step", lambda: compared(rank, taken, batches))
