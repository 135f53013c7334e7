"""The minimal fix of ``online-dpo-accumulation``: accelerate is told the number of micro-batches.

The trainer calls ``accelerator.backward`` with the loss of a micro-batch, which it leaves to
accelerate to divide; transformers has told accelerate that there is one micro-batch.
"""

from __future__ import annotations

from typing import Any


def apply() -> str:
    """Makes Online DPO divide by the number of micro-batches; says what it did."""
    try:
        from trl.experimental.online_dpo import OnlineDPOTrainer
    except ImportError:
        from trl import OnlineDPOTrainer

    make: Any = OnlineDPOTrainer.__init__
    if getattr(make, "divides", False):
        return "already applied"

    def make_and_tell(self: Any, *args: Any, **options: Any) -> None:
        make(self, *args, **options)
        self.accelerator.gradient_accumulation_steps = self.args.gradient_accumulation_steps

    vars(make_and_tell).update(divides=True, __wrapped__=make)
    OnlineDPOTrainer.__init__ = make_and_tell
    return "Online DPO divides by the number of micro-batches"
