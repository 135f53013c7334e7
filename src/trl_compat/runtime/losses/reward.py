"""TRL's reward trainer on preference pairs of uneven length, and the right values of its loss.

The loss of a pair is that of Bradley and Terry (arXiv:2203.02155, formula 1 for two answers):
``-log sigmoid(r(chosen) - r(rejected))``.  The right reward of a sequence is computed from it
alone, without padding, in float64: the head on the hidden state of its last token.  What the
collator makes has had two forms: chosen and rejected apart, and later chosen above rejected.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import dpo, measuring, steps, trainers
from ..context import Rank, at_least
from ..trainers import Home

trainers.HOMES["Reward"] = (Home("0.9.2", "", "trl", "RewardTrainer", "RewardConfig"),)

SIDES = ("chosen", "rejected")

Batch = dict[str, Any]  # what the collator makes


def measured(rank: Rank, invariant: str) -> None:
    """One step of the trainer, compared with the right gradient."""
    folder = classifier(rank)
    model = load(folder).double().eval()  # before a configuration of ZeRO-3 is in force
    step = steps.take(rank, trainer(rank, folder))
    batches = measuring.everyones(rank, step.batches)
    assert_rows(rank, batches)
    measuring.judged(
        rank, invariant, lambda: measuring.comparison(step.change, parts(model, batches))
    )


def load(folder: Path | str) -> Any:
    """A reward model in float32: a classifier with one class."""
    import torch
    from transformers import AutoModelForSequenceClassification

    return AutoModelForSequenceClassification.from_pretrained(
        folder, num_labels=1, torch_dtype=torch.float32
    )


def classifier(rank: Rank) -> Path:
    """A folder with the tiny model as a reward model, the same on all ranks.

    The file of the tiny model has no head, and each rank would draw another one.  The head is large
    enough for rewards that differ.
    """
    import torch

    folder = rank.folder / f"classifier{rank.rank}"
    model = load(rank.spec.model_dir)
    draw = torch.Generator().manual_seed(5)
    with torch.no_grad():
        model.score.weight.copy_(torch.randn(model.score.weight.shape, generator=draw))
    model.save_pretrained(folder)
    return folder


def pairs(count: int) -> dict[str, list[str]]:
    """Preference pairs, each text with its prompt."""
    found = dpo.pairs(count)
    return {
        side: [p + text for p, text in zip(found["prompt"], found[side], strict=True)]
        for side in SIDES
    }


def columns(count: int, tokenizer: Any) -> dict[str, list[Any]]:
    """The dataset: texts, or what TRL before 0.12.0 wants, tokens."""
    texts = pairs(count)
    if at_least("trl", "0.12.0"):
        return dict(texts)
    tokens = {side: tokenizer(texts[side]) for side in texts}
    names = ("input_ids", "attention_mask")
    return {f"{name}_{side}": made[name] for side, made in tokens.items() for name in names}


def trainer(rank: Rank, folder: Path, count: int = 1, **more: Any) -> Any:
    """The reward trainer with the model of a folder and as many pairs as its steps take.

    Args:
        count: number of optimizer steps.
        more: arguments of its config that differ from those that measure the gradient.
    """
    from datasets import Dataset
    from transformers import AutoTokenizer

    trainer_class, config_class = trainers.find("Reward")
    asked = {"max_length": 64, "max_steps": count, "remove_unused_columns": False, **more}
    config = config_class(**steps.arguments(rank, config_class, **asked))
    tokenizer = AutoTokenizer.from_pretrained(rank.spec.model_dir)
    named = "processing_class" if at_least("trl", "0.12.0") else "tokenizer"
    rows = columns(count * steps.rows_of_a_step(rank), tokenizer)
    with steps.fsdp(rank):
        return trainer_class(
            model=load(folder),
            args=config,
            train_dataset=Dataset.from_dict(rows),
            **{named: tokenizer},
        )


def sequences(batch: Batch) -> tuple[list[Any], list[Any]]:
    """The token ids of the chosen and the rejected texts of a batch, without padding."""
    if "input_ids_chosen" in batch:
        sides = [[batch[f"{n}_{s}"] for n in ("input_ids", "attention_mask")] for s in SIDES]
        chosen, rejected = (
            [ids[mask.bool()].cpu() for ids, mask in zip(*side, strict=True)] for side in sides
        )
        return chosen, rejected
    both = zip(batch["input_ids"], batch["attention_mask"], strict=True)
    rows = [ids[mask.bool()].cpu() for ids, mask in both]
    return rows[: len(rows) // 2], rows[len(rows) // 2 :]


def assert_rows(rank: Rank, batches: Sequence[Sequence[Batch]]) -> None:
    """Precondition: the two texts of a pair differ in length, in half of the pairs or more."""
    each = [sequences(batch) for of_rank in batches for batch in of_rank]
    pairs = [pair for sides in each for pair in zip(*sides, strict=True)]
    lengths = [(len(chosen), len(rejected)) for chosen, rejected in pairs]
    uneven = sum(chosen != rejected for chosen, rejected in lengths)
    rank.precondition("rows", 2 * uneven >= len(lengths), f"of chosen and rejected: {lengths}")


def reward(model: Any, ids: Any) -> Any:
    """The reward of a text, from its tokens alone.

    The head is written out: DeepSpeed's linear function, which ZeRO-3 leaves in force, has no
    gradient for a single vector.
    """
    hidden = model.base_model(input_ids=ids.unsqueeze(0)).last_hidden_state
    return hidden[0, -1] @ model.score.weight[0]


def losses(model: Any, batch: Batch) -> Any:
    """The loss of each pair of a batch."""
    import torch

    margins = [reward(model, c) - reward(model, r) for c, r in zip(*sequences(batch), strict=True)]
    return -torch.nn.functional.logsigmoid(torch.stack(margins))


def parts(model: Any, batches: Sequence[Sequence[Batch]]) -> list[list[measuring.Tensors]]:
    """What every micro-batch adds to the gradient of the mean over all pairs of the step.

    Args:
        model: the reward model before the step, in float64.
        batches: by rank and micro-batch, what the trainer was given.
    """
    total = sum(len(sequences(batch)[0]) for of_rank in batches for batch in of_rank)
    return [
        [measuring.gradient(model, losses(model, batch).sum() / total) for batch in of_rank]
        for of_rank in batches
    ]
