"""TRL's DPO trainer on preference pairs of uneven length, and the right values of its loss.

The right log-probability of a completion is computed from its sequence alone, without padding, in
float64; the loss is formula 7 of the paper (arXiv:2305.18290).  What the collator makes has had
three forms: whole sequences with labels (up to TRL 0.11), prompts and completions apart (0.12 to
0.28), all sequences below each other with a mask of the completions (from 0.29 on).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from . import measuring, steps, trainers
from .context import Rank, at_least
from .trainers import Home

trainers.HOMES["DPO"] = (Home("0.9.2", "", "trl", "DPOTrainer", "DPOConfig"),)

BETA = 0.5
LETTERS = "abcdefghiklm"

Batch = dict[str, Any]  # what the collator makes
Sequence_ = tuple[Any, int]  # the token ids of prompt and completion; where the completion begins


def words(start: int, length: int) -> str:
    """Some words; other starts give other words."""
    return " ".join(LETTERS[(start + 5 * word) % len(LETTERS)] for word in range(length))


def pairs(count: int) -> dict[str, list[str]]:
    """Preference pairs: prompts of 2 to 6 words, answers of 1 to 7, in every combination."""
    return {
        "prompt": [words(row, 2 + (3 * row) % 5) for row in range(count)],
        "chosen": [" " + words(3 * row + 1, 1 + (4 * row) % 7) for row in range(count)],
        "rejected": [" " + words(7 * row + 2, 1 + (5 * row + 3) % 7) for row in range(count)],
    }


def other_model(rank: Rank) -> Path:
    """A folder with the tiny model, every weight matrix a little changed, the same on all ranks.

    As a reference model it makes the loss depend on both models from the first step on.
    """
    import torch

    folder = rank.folder / f"reference{rank.rank}"
    model = steps.model_of(rank)
    draw = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=draw)
            parameter += 0.3 * parameter.abs().mean() * noise
    model.save_pretrained(folder)
    return folder


def trainer(rank: Rank, reference: Path | None, count: int = 1, **more: Any) -> Any:
    """The DPO trainer with the tiny model and as many pairs as its steps take.

    Args:
        reference: folder of the reference model; None leaves the reference to the trainer.
        count: number of optimizer steps.
        more: arguments of its config that differ from those that measure the gradient.
    """
    from datasets import Dataset
    from transformers import AutoTokenizer

    trainer_class, config_class = trainers.find("DPO")
    asked = {
        "beta": BETA,
        "max_length": 64,
        "max_prompt_length": 32,
        "max_completion_length": 32,
        "max_steps": count,
        **more,
    }
    config = config_class(**steps.arguments(rank, config_class, **asked))
    tokenizer = AutoTokenizer.from_pretrained(rank.spec.model_dir)
    if tokenizer.bos_token is None and not at_least("trl", "0.10.1"):
        tokenizer.bos_token = tokenizer.eos_token  # it begins every prompt with one, None or not
    named = "processing_class" if trainers.takes(trainer_class, "processing_class") else "tokenizer"
    with steps.fsdp(rank):
        return trainer_class(
            model=steps.model_of(rank),
            ref_model=None if reference is None else steps.model_of(rank, reference),
            args=config,
            train_dataset=Dataset.from_dict(pairs(count * steps.rows_of_a_step(rank))),
            **{named: tokenizer},
        )


def sequences(batch: Batch) -> tuple[list[Sequence_], list[Sequence_]]:
    """The chosen and the rejected sequences of a batch, each without padding."""
    if "completion_mask" in batch:
        names = ("input_ids", "attention_mask", "completion_mask")
        rows = [cut(*row) for row in zip(*(batch[name] for name in names), strict=True)]
        return rows[: len(rows) // 2], rows[len(rows) // 2 :]
    return list(side(batch, "chosen")), list(side(batch, "rejected"))


def side(batch: Batch, name: str) -> Iterator[Sequence_]:
    """The sequences of one side in the two older forms."""
    import torch

    ids, mask = batch[f"{name}_input_ids"], batch[f"{name}_attention_mask"]
    if f"{name}_labels" in batch:
        labels = batch[f"{name}_labels"]
        for row in zip(ids, mask, labels != -100, strict=True):
            yield cut(*row)
        return
    prompts = zip(batch["prompt_input_ids"], batch["prompt_attention_mask"], strict=True)
    for (prompt, real), own, there in zip(prompts, ids, mask, strict=True):
        before = prompt[real.bool()]
        yield torch.cat([before, own[there.bool()]]).cpu(), len(before)


def cut(ids: Any, attention: Any, completion: Any) -> Sequence_:
    """A row without its padding."""
    real = attention.bool()
    return ids[real].cpu(), int((~completion[real].bool()).sum())


def assert_rows(rank: Rank, batches: Sequence[Sequence[Batch]]) -> None:
    """Precondition: the sequences differ in length, and each has a prompt and a completion."""
    every = [s for of_rank in batches for b in of_rank for half in sequences(b) for s in half]
    lengths = {(len(ids), begin) for ids, begin in every}
    whole = all(0 < begin < len(ids) for ids, begin in every)
    told = f"lengths and begins of completions: {sorted(lengths)}"
    rank.precondition("rows", whole and len(lengths) > 2, told)


def logp(model: Any, sequence: Sequence_) -> Any:
    """The log-probability of a completion after its prompt, from the sequence alone."""
    ids, begin = sequence
    logits = model(input_ids=ids.unsqueeze(0)).logits
    return -measuring.token_losses(logits, ids.unsqueeze(0))[begin - 1 :].sum()


def losses(model: Any, reference: Any, batch: Batch) -> Any:
    """The DPO loss of each pair of a batch."""
    import torch

    def ratio(sequence: Sequence_) -> Any:
        with torch.no_grad():
            referred = logp(reference, sequence)
        return logp(model, sequence) - referred

    halves = zip(*sequences(batch), strict=True)
    margins = torch.stack([ratio(chosen) - ratio(rejected) for chosen, rejected in halves])
    return -torch.nn.functional.logsigmoid(BETA * margins)


def parts(
    rank: Rank, batches: Sequence[Sequence[Batch]], reference: Path
) -> list[list[measuring.Tensors]]:
    """What every micro-batch adds to the gradient of the mean over all pairs of the step.

    Args:
        batches: by rank and micro-batch, what the trainer was given.
        reference: folder of the reference model.
    """
    model, other = measuring.twin(rank), measuring.twin(rank, reference)
    total = sum(len(sequences(batch)[0]) for of_rank in batches for batch in of_rank)
    return [
        [measuring.gradient(model, losses(model, other, batch).sum() / total) for batch in of_rank]
        for of_rank in batches
    ]


def logged(rank: Rank, step: steps.Steps, name: str) -> float:
    """A value of the first log, averaged over the ranks; every rank must call it.

    Some releases log the mean of all ranks on each of them, others each rank's own.
    """
    found = measuring.everyones(rank, next(log for log in step.logs if name in log)[name])
    return sum(float(value) for value in found) / len(found)
