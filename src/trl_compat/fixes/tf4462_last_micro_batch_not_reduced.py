"""The minimal fix of ``tf4462-last-micro-batch-not-reduced``: every micro-batch is exchanged.

transformers 4.46.2 runs the last micro-batch of a step in ``no_sync``, and the others outside of
it.  Without effect, ``no_sync`` leaves the gradient of every micro-batch to DDP's average.
"""

from __future__ import annotations

import contextlib
from typing import Any


def apply() -> str:
    """Takes the effect of accelerate's no_sync, with transformers 4.46.2; says what it did."""
    import transformers
    from accelerate import Accelerator

    if transformers.__version__ != "4.46.2":
        return f"transformers {transformers.__version__} needs no change"

    def exchange_all(self: Any, model: Any) -> Any:
        return contextlib.nullcontext()

    Accelerator.no_sync = exchange_all
    return "the ranks exchange the gradient of every micro-batch"
