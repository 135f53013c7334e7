"""Sabotages of supervised: labels that lack a token or have one too many, and rows left over."""

from __future__ import annotations

from typing import Any

from .declaration import breaks
from .spoiling import upon


def labels_changed(reproduction: Any, change: Any) -> None:
    """The trainer's collator, with its labels changed."""

    def install(trainer: Any, *_: Any) -> None:
        collate = trainer.data_collator

        def spoiled(rows: Any) -> Any:
            batch = collate(rows)
            change(batch)
            return batch

        trainer.data_collator = spoiled

    upon(reproduction.sft, "trainer", install)


@breaks("supervised", within="measuring.judged", variant="sft-text")
def the_second_token_carries_no_loss(rank: Any, reproduction: Any) -> None:
    def mask(batch: Any) -> None:
        batch["labels"][0, 1] = -100

    labels_changed(reproduction, mask)


@breaks("supervised", within="measuring.judged", variant="sft-completion-only")
def the_prompt_carries_loss(rank: Any, reproduction: Any) -> None:
    def unmask(batch: Any) -> None:
        batch["labels"][0, 1] = batch["input_ids"][0, 1]

    labels_changed(reproduction, unmask)


@breaks("supervised", within="measuring.judged", variant="sft-text")
def padding_carries_loss(rank: Any, reproduction: Any) -> None:
    def unmask(batch: Any) -> None:
        padded = batch["attention_mask"] == 0
        batch["labels"][padded] = batch["input_ids"][padded]

    labels_changed(reproduction, unmask)


@breaks("supervised", within="measuring.judged", variant="sft-packed")
def a_packed_token_is_lost(rank: Any, reproduction: Any) -> None:
    def drop(batch: Any) -> None:
        batch["labels"][0, 3] = -100

    labels_changed(reproduction, drop)


@breaks("one-step", within="scenario", variant="sft-text")
def there_are_more_rows_than_a_step_takes(rank: Any, reproduction: Any) -> None:
    lengths = reproduction.lengths

    reproduction.lengths = lambda rank: [*lengths(rank), 4, 4]


@breaks("supervised", within="measuring.judged", variant="sft-truncated-away")
def a_row_has_no_label(rank: Any, reproduction: Any) -> None:
    def unlabel(batch: Any) -> None:
        batch["labels"][0] = -100

    labels_changed(reproduction, unlabel)


@breaks("supervised", within="measuring.judged", variant="sft-padding-free")
def a_mask_hides_where_texts_begin(rank: Any, reproduction: Any) -> None:
    def mask(batch: Any) -> None:
        batch["attention_mask"] = batch["input_ids"].new_ones(batch["input_ids"].shape)

    def install(_result: Any, trainer: Any, *_: Any) -> None:
        collate = trainer.data_collator

        def spoiled(rows: Any) -> Any:
            batch = collate(rows)
            mask(batch)
            return batch

        trainer.data_collator = spoiled

    upon(reproduction, "make_flat", install)
