"""What TRL's GRPO trainer computes its loss from, seen while it trains.

From TRL 0.15.0 on ``compute_loss`` is given the ids of prompts and completions.  In 0.14.0 it is
given the rows of the dataset and generates the completions itself: there they are taken from
``generate``, in the form that later releases have.
"""

from __future__ import annotations

from typing import Any

from ..context import at_least

Batch = dict[str, Any]  # what the loss is computed from
NAMES = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask")


def generates_in_the_loss() -> bool:
    """Whether ``compute_loss`` generates the completions, a group for each of its rows."""
    return not at_least("trl", "0.15.0")


def watched(made: Any, generations: int) -> list[Batch]:
    """What a trainer computes its loss from, a batch each; it is filled while it trains.

    Args:
        generations: how many completions a prompt has.
    """
    seen: list[Batch] = []
    if generates_in_the_loss():
        watch_generation(made, generations, seen)
    else:
        watch_loss(made, seen)
    return seen


def watch_loss(made: Any, seen: list[Batch]) -> None:
    """Keeps what ``compute_loss`` is given."""
    compute = made.compute_loss

    def keep_then_compute(model: Any, inputs: Any, *args: Any, **options: Any) -> Any:
        seen.append({name: inputs[name].detach().cpu().clone() for name in NAMES})
        return compute(model, inputs, *args, **options)

    made.compute_loss = keep_then_compute


def watch_generation(made: Any, generations: int, seen: list[Batch]) -> None:
    """Keeps what the model generates, with a mask that ends with the first EOS."""
    generate = made.model.generate
    eos = made.processing_class.eos_token_id

    def generate_then_keep(input_ids: Any, attention_mask: Any, **options: Any) -> Any:
        whole = generate(input_ids, attention_mask=attention_mask, **options)
        own = whole[:, input_ids.shape[1] :]
        ended = (own == eos).cumsum(1) - (own == eos).long()  # how many EOS come before
        prompts = (input_ids, attention_mask)
        repeated = [tensor.repeat_interleave(generations, 0) for tensor in prompts]
        found = (*repeated, own, (ended == 0).long())
        seen.append({n: t.detach().cpu().clone() for n, t in zip(NAMES, found, strict=True)})
        return whole

    made.model.generate = generate_then_keep
