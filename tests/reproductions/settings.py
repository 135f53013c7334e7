"""settings: what a script asks for is what takes effect.

The script asks for a gradient norm below that of the step; SGD with learning rate 1 then moves the
weights by exactly that.  With ``clipping: unnamed`` only the trainer's arguments ask for it: the
configuration of DeepSpeed has no ``gradient_clipping``.

With the condition ``file_dtype`` the model's file is in that precision, and the script loads it
with the dtype that ``model_dtype`` says, or names none.  No option asks for a lower precision.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trl_compat.runtime import measuring, sft, steps
from trl_compat.runtime.context import Rank, replace

ASKED = 0.01  # far below the norm of any step here


def compared(rank: Rank, taken: steps.Steps, batches: Any) -> dict[str, Any]:
    """The length of the step beside what was asked, and beside a step without clipping."""
    whole = measuring.comparison(taken.change, sft.parts(rank, batches))
    length = measuring.size(taken.change)
    return {
        "step": round(length, 5),
        "asked": ASKED,
        "projection": whole["projection"],
        "relative_error": measuring.rounded(abs(length / ASKED - 1)),
    }


def in_dtype_of_file(rank: Rank) -> Path:
    """A folder with the tiny model, its file in the precision of the variant."""
    import torch

    folder = rank.folder / f"file{rank.rank}"
    dtype = getattr(torch, rank.condition("file_dtype"))
    steps.model_of(rank).to(dtype).save_pretrained(folder)
    return folder


def loads(rank: Rank, folder: Path) -> None:
    """Lets the trainer's model be loaded as the variant's script does it."""
    import torch
    from transformers import AutoModelForCausalLM

    dtype = rank.condition("model_dtype")
    asked = {} if dtype == "unnamed" else {"torch_dtype": getattr(torch, dtype)}
    replace(steps, "model_of", lambda _rank: AutoModelForCausalLM.from_pretrained(folder, **asked))


def followed(rank: Rank, taken: steps.Steps, batches: Any, folder: Path) -> dict[str, Any]:
    """A step beside the gradient of the weights of the file."""
    import torch

    model = measuring.twin(rank, folder)
    total = sum(sft.labelled(batch) for of_rank in batches for batch in of_rank)
    loss = sum(sft.losses(model, batch).sum() for of_rank in batches for batch in of_rank) / total
    slopes = measuring.gradient(model, loss)
    names = sorted(taken.change)
    right = {name: slopes[name] for name in names}
    whole, step = measuring.flat(right, names), measuring.flat(taken.change, names)
    meant = whole != 0
    kinds = {str(tensor.dtype).removeprefix("torch.") for tensor in taken.after.values()}
    return {
        "trained_in": " ".join(sorted(kinds)),
        "projection": measuring.projection(right, taken.change),
        "unmoved": round(float(torch.count_nonzero(step[meant] == 0) / meant.sum()), 3),
        "relative_error": measuring.rounded(float((step - whole).norm() / whole.norm())),
    }


def of_dtype(rank: Rank) -> None:
    """A step with a model whose file is in another precision than float32."""
    folder = in_dtype_of_file(rank)
    loads(rank, folder)
    taken = steps.take(rank, sft.trainer(rank))
    batches = measuring.everyones(rank, taken.batches)
    sft.assert_rows(rank, batches)
    measuring.judged(rank, "settings", lambda: followed(rank, taken, batches, folder))


def scenario(rank: Rank) -> None:
    if rank.condition("file_dtype"):
        of_dtype(rank)
        return
    taken = steps.take(rank, sft.trainer(rank, max_grad_norm=ASKED))
    batches = measuring.everyones(rank, taken.batches)
    sft.assert_rows(rank, batches)
    measuring.judged(rank, "settings", lambda: compared(rank, taken, batches))
