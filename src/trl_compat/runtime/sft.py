"""TRL's SFT trainer on texts of known lengths, and the right gradient of its loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import measuring, steps, trainers
from .context import Rank
from .trainers import Home

trainers.HOMES["SFT"] = (Home("0.9.2", "", "trl", "SFTTrainer", "SFTConfig"),)

LETTERS = "abcdefghiklm"  # a token each, so that a row's length is what it says


def texts(rank: Rank, count: int) -> list[str]:
    """Texts, of one length if the condition ``rows`` is ``even``, else of 3 to 9 words."""
    even = rank.condition("rows", "even") == "even"
    lengths = [6 if even else 3 + (5 * row) % 7 for row in range(count)]
    return [
        " ".join(LETTERS[(5 * row + word * (1 + row % 4)) % len(LETTERS)] for word in range(length))
        for row, length in enumerate(lengths)
    ]


def trainer(
    rank: Rank,
    count: int = 1,
    *,
    columns: dict[str, list[str]] | None = None,
    tokenizer: Any = None,
    peft_config: Any = None,
    **more: Any,
) -> Any:
    """The SFT trainer with the tiny model and as many texts as its steps take.

    Args:
        count: number of optimizer steps.
        columns: the dataset; by default texts of known lengths.
        tokenizer: by default the model's.
        peft_config: makes the trainer train an adapter.
        more: arguments of its config that differ from those that measure the gradient.
    """
    from datasets import Dataset
    from transformers import AutoTokenizer

    trainer_class, config_class = trainers.find("SFT")
    asked = {
        "packing": False,
        "max_length": 64,
        "max_seq_length": 64,
        "dataset_text_field": "text",
        "max_steps": count,
        **more,
    }
    config = config_class(**steps.arguments(rank, config_class, **asked))
    tokenizer = tokenizer or AutoTokenizer.from_pretrained(rank.spec.model_dir)
    named = "processing_class" if trainers.takes(trainer_class, "processing_class") else "tokenizer"
    columns = columns or {"text": texts(rank, count * steps.rows_of_a_step(rank))}
    adapter = {} if peft_config is None else {"peft_config": peft_config}
    with steps.fsdp(rank):
        made = trainer_class(
            model=steps.model_of(rank),
            args=config,
            train_dataset=Dataset.from_dict(columns),
            **{named: tokenizer},
            **adapter,
        )
    if rank.condition("first_token", "unlabelled") == "unlabelled":
        made.data_collator = without_first_label(made.data_collator)
    return made


def without_first_label(collate: Callable[[Any], dict[str, Any]]) -> Callable[[Any], Any]:
    """A collator that gives the first token of a row no label.

    Nothing predicts it, but releases count it among the tokens over which the loss is averaged.
    That is an error of its own, which would hide behind every other.
    """

    def collated(rows: Any) -> dict[str, Any]:
        batch = collate(rows)
        mask = batch["attention_mask"]
        first = mask.argmax(-1) if mask.dim() == 2 else 0  # rows may be padded on the left
        batch["labels"][range(len(batch["labels"])), first] = -100
        return batch

    return collated


def labelled(batch: dict[str, Any]) -> int:
    """How many tokens of a batch are predicted; nothing predicts the first of a row."""
    return int((batch["labels"][:, 1:] != -100).sum())


def assert_rows(rank: Rank, batches: Sequence[Sequence[dict[str, Any]]]) -> None:
    """Precondition: micro-batches have the same number of tokens, or not, as the variant says."""
    counts = {labelled(batch) for of_rank in batches for batch in of_rank}
    even = rank.condition("rows", "even") == "even"
    rank.precondition("rows", (len(counts) == 1) is even, f"labelled tokens: {sorted(counts)}")


def losses(model: Any, batch: dict[str, Any]) -> Any:
    """The loss of every labelled token of a batch, by a model on the CPU."""
    ids, mask, labels = (batch[n].to("cpu") for n in ("input_ids", "attention_mask", "labels"))
    return measuring.token_losses(model(input_ids=ids, attention_mask=mask).logits, labels)


def parts(rank: Rank, batches: Sequence[Sequence[dict[str, Any]]]) -> list[list[measuring.Tensors]]:
    """What every micro-batch adds to the gradient of the mean over all tokens of the step.

    Args:
        batches: by rank and micro-batch, what the trainer was given.
    """
    model = measuring.twin(rank)
    total = sum(labelled(batch) for of_rank in batches for batch in of_rank)
    return [
        [measuring.gradient(model, losses(model, batch).sum() / total) for batch in of_rank]
        for of_rank in batches
    ]
