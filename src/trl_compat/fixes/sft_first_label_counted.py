"""The minimal fix of ``sft-first-label-counted``: the first token of a row has no label.

Nothing predicts it, but transformers before 5.10.1 counts it among the labels by whose number the
loss is divided.  It is taken away where the trainer takes the batches of a step, before it counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any


def apply() -> str:
    """Makes TRL's SFT trainer leave the first label of each row out; says what it did."""
    from trl import SFTTrainer

    take: Any = getattr(SFTTrainer, "get_batch_samples", None)
    if take is None:
        return "not needed: this transformers does not count labels"
    if getattr(take, "unlabels", False):
        return "already applied"

    def take_unlabelled(self: Any, batches: Iterable[Any], *args: Any, **options: Any) -> Any:
        return take(self, unlabelled(batches), *args, **options)

    vars(take_unlabelled)["unlabels"] = True
    SFTTrainer.get_batch_samples = take_unlabelled
    return "SFTTrainer counts no label of the first token of a row"


def unlabelled(batches: Iterable[Any]) -> Iterator[Any]:
    """The batches, each without a label in the first column: the loss never uses it."""
    for batch in batches:
        batch["labels"][:, 0] = -100
        yield batch
