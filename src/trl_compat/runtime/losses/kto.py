"""TRL's KTO trainer on single answers of uneven length, and the right values of its loss.

The loss is that of the paper (arXiv:2402.01306), section 4: with ``r`` the log-ratio of policy and
reference, a desirable answer has ``w (1 - sigmoid(beta (r - z)))`` and an undesirable one
``w (1 - sigmoid(beta (z - r)))``.  ``z`` is the paper's estimate of the KL divergence: the mean
log-ratio of mismatched answers, not below 0, with no gradient.  Each micro-batch has a ``z`` of its
own, from the rows that all ranks see at the same time: each prompt with the answer of the row
before it on its rank.  They are put together here from the rows, not taken from the collator.

What the collator makes has had two forms: whole sequences with labels, and later with a mask of the
completions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .. import dpo, measuring, steps, trainers
from ..context import Rank, at_least
from ..dpo import Batch, Sequence_
from ..trainers import Home

# From 0.26.0 to 1.2.0 the class in ``trl`` is a subclass that warns; it takes any arguments.
trainers.HOMES["KTO"] = (Home("0.9.2", "", "trl", "KTOTrainer", "KTOConfig"),)

BETA, DESIRABLE, UNDESIRABLE = 0.5, 1.25, 0.75
LEAST = 0.1  # a smaller KL estimate changes the gradient so little that its sign is not seen


def measured(rank: Rank, invariant: str) -> None:
    """One step of the trainer, compared with the right gradient."""
    reference = other_model(rank)
    step = steps.take(rank, trainer(rank, reference))
    batches = measuring.everyones(rank, step.batches)
    models = measuring.twin(rank), measuring.twin(rank, reference)
    shifts = estimates(*models, batches)
    assert_rows(rank, batches, shifts)
    measuring.judged(
        rank,
        invariant,
        lambda: measuring.comparison(step.change, parts(*models, batches, shifts)),
    )


def other_model(rank: Rank) -> Path:
    """The folder of a reference model that differs from the policy: DPO's on the other side of it.

    On this side the KL estimate of the first micro-batch is above 0 and that of another below, with
    both tiny models: its sign is seen in the gradient, and so is that it is not below 0.
    """
    import torch

    folder = dpo.other_model(rank)
    model, other = steps.model_of(rank), steps.model_of(rank, folder)
    with torch.no_grad():
        for here, there in zip(model.parameters(), other.parameters(), strict=True):
            there.copy_(2 * here - there)
    other.save_pretrained(folder)
    return folder


def rows(count: int) -> dict[str, list[Any]]:
    """Prompts of 2 to 6 words with one answer each of 1 to 7; two of three are desirable."""
    found = dpo.pairs(count)
    return {
        "prompt": found["prompt"],
        "completion": found["chosen"],
        "label": [row % 3 != 1 for row in range(count)],
    }


def trainer(rank: Rank, reference: Path, count: int = 1, **more: Any) -> Any:
    """The KTO trainer with the tiny model and as many rows as its steps take.

    Args:
        reference: folder of the reference model.
        count: number of optimizer steps.
        more: arguments of its config that differ from those that measure the gradient.
    """
    from datasets import Dataset
    from transformers import AutoTokenizer

    trainer_class, config_class = trainers.find("KTO")
    asked = {
        "beta": BETA,
        "desirable_weight": DESIRABLE,
        "undesirable_weight": UNDESIRABLE,
        "max_length": 64,
        "max_prompt_length": 32,
        "max_completion_length": 32,
        "remove_unused_columns": False,
        "max_steps": count,
        **more,
    }
    config = config_class(**steps.arguments(rank, config_class, **asked))
    tokenizer = AutoTokenizer.from_pretrained(rank.spec.model_dir)
    if tokenizer.bos_token is None and not at_least("trl", "0.12.0"):
        tokenizer.bos_token = tokenizer.eos_token  # it begins every prompt with one, None or not
    named = "processing_class" if at_least("trl", "0.12.0") else "tokenizer"
    with steps.fsdp(rank):
        return trainer_class(
            model=steps.model_of(rank),
            ref_model=steps.model_of(rank, reference),
            args=config,
            train_dataset=Dataset.from_dict(rows(count * steps.rows_of_a_step(rank))),
            **{named: tokenizer},
        )


def sequences(batch: Batch) -> list[Sequence_]:
    """The sequences of a batch, each without padding; TRL 1.6 and 1.7 name their side as well."""
    if "completion_mask" in batch:
        side = "" if "input_ids" in batch else "completion_"
        names = (f"{side}input_ids", f"{side}attention_mask", "completion_mask")
        return [dpo.cut(*row) for row in zip(*(batch[name] for name in names), strict=True)]
    return list(dpo.side(batch, "completion"))


def mismatched(found: Sequence[Sequence_]) -> Iterator[Sequence_]:
    """Each prompt with the completion of the row before; the first with that of the last."""
    import torch

    for number, (ids, begin) in enumerate(found):
        other, start = found[number - 1]
        yield torch.cat([ids[:begin], other[start:]]), begin


def ratio(model: Any, reference: Any, sequence: Sequence_) -> Any:
    """By how much the policy finds a completion more likely than the reference, as logarithm."""
    import torch

    with torch.no_grad():
        referred = dpo.logp(reference, sequence)
    return dpo.logp(model, sequence) - referred


def estimates(
    model: Any, reference: Any, batches: Sequence[Sequence[Batch]]
) -> list[tuple[float, float]]:
    """The mean log-ratio of mismatched completions by micro-batch, and the KL estimate of it."""
    import torch

    found = []
    for of_ranks in zip(*batches, strict=True):
        pairs = [one for batch in of_ranks for one in mismatched(sequences(batch))]
        with torch.no_grad():
            mean = sum(ratio(model, reference, one).item() for one in pairs) / len(pairs)
        found.append((mean, max(mean, 0.0)))
    return found


def assert_rows(
    rank: Rank, batches: Sequence[Sequence[Batch]], shifts: Sequence[tuple[float, float]]
) -> None:
    """Preconditions: rows are uneven and of both kinds, and the KL estimate matters."""
    each = [batch for of_rank in batches for batch in of_rank]
    found = [one for batch in each for one in sequences(batch)]
    lengths = {(len(ids), begin) for ids, begin in found}
    whole = all(0 < begin < len(ids) for ids, begin in found)
    kinds = {bool(label) for batch in each for label in batch["label"]}
    told = f"lengths and begins of completions: {sorted(lengths)}; desirable: {sorted(kinds)}"
    rank.precondition("rows", whole and len(lengths) > 2 and len(kinds) == 2, told)
    means = [f"{mean:.2f}" for mean, _ in shifts]
    most = max(shift for _, shift in shifts)
    rank.precondition("kl", most > LEAST, f"mean log-ratios of mismatched answers: {means}")


def losses(model: Any, reference: Any, batch: Batch, shift: float) -> Any:
    """The KTO loss of each row of a batch, with the KL estimate of its micro-batch."""
    import torch

    found = []
    for sequence, label in zip(sequences(batch), batch["label"], strict=True):
        gain = ratio(model, reference, sequence) - shift
        if label:
            found.append(DESIRABLE * (1 - torch.sigmoid(BETA * gain)))
        else:
            found.append(UNDESIRABLE * (1 - torch.sigmoid(-BETA * gain)))
    return torch.stack(found)


def parts(
    model: Any,
    reference: Any,
    batches: Sequence[Sequence[Batch]],
    shifts: Sequence[tuple[float, float]],
) -> list[list[measuring.Tensors]]:
    """What every micro-batch adds to the gradient of the mean over all rows of the step.

    Args:
        model: the policy before the step, in float64.
        reference: the reference model, in float64.
        batches: by rank and micro-batch, what the trainer was given.
        shifts: by micro-batch, see :func:`estimates`.
    """
    total = sum(len(batch["label"]) for of_rank in batches for batch in of_rank)
    return [
        [
            measuring.gradient(model, losses(model, reference, batch, shift).sum() / total)
            for batch, (_, shift) in zip(of_rank, shifts, strict=True)
        ]
        for of_rank in batches
    ]
