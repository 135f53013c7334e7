"""Whether the samples of a window are what they should be: labels, masks, and their loss alone."""

from __future__ import annotations

import hashlib
from typing import Any

from . import tensors
from .recording import MicroBatch
from .reference import Losses
from .verdict import NOT_CHECKED, OK, VIOLATED, Check

# Loss types whose mean over tokens is the cross entropy of the labels.
_CROSS_ENTROPY = (None, "nll", "chunked_nll")


def data(batches: list[MicroBatch]) -> Check:
    """Labels are the tokens, padding carries no loss, and ranks do not see the same samples."""
    problems = []
    labelled = 0
    for batch in batches:
        inputs = batch.inputs
        for name in inputs:
            if name.endswith("labels") and f"{name[:-6]}input_ids" in inputs:
                wrong = _labels(inputs[name], inputs, name[:-6])
                if wrong:
                    problems.append(wrong)
                labelled += int((inputs[name] != -100).sum())
    worlds = tensors.from_all_ranks(_fingerprint(batches))
    varied = len({_fingerprint([batch]) for batch in batches}) > 1  # else the rows may be alike
    if varied and len(worlds) > 1 and len(set(worlds)) == 1:
        problems.append("every rank has the same samples")
    numbers = {"labels": labelled} if labelled else {}
    if problems:
        return Check("data", VIOLATED, problems[0], numbers)
    return Check("data", OK, "no label on padding, none of another token, ranks differ", numbers)


def _labels(labels: Any, inputs: Any, prefix: str) -> str:
    ids, mask = inputs[f"{prefix}input_ids"], inputs.get(f"{prefix}attention_mask")
    if not hasattr(labels, "shape") or labels.shape != ids.shape:
        return ""
    carried = labels != -100
    if not bool(carried.any()):
        return f"{prefix}labels: no token carries loss"
    if bool((carried & (labels != ids)).any()):
        return f"{prefix}labels differ from {prefix}input_ids"
    if mask is not None and mask.shape == ids.shape and bool((carried & (mask == 0)).any()):
        return f"{prefix}labels: padding carries loss"
    return ""


def _fingerprint(batches: list[MicroBatch]) -> str:
    digest = hashlib.sha256()
    for batch in batches:
        for name in sorted(batch.inputs):
            value = batch.inputs[name]
            if name.endswith("ids") and hasattr(value, "cpu"):
                digest.update(name.encode() + str(tuple(value.shape)).encode())
                digest.update(value.detach().cpu().numpy().tobytes())
    return digest.hexdigest()


def same(first: list[MicroBatch], second: list[MicroBatch]) -> bool:
    """Whether two windows have the same samples."""
    return _fingerprint(first) == _fingerprint(second)


def loss(trainer: Any, copy: Any, batches: list[MicroBatch]) -> Check:
    """The trainer's token mean against cross entropy of each sample alone, without padding."""
    batch = batches[0]
    inputs = batch.inputs
    reason = _not_plain(trainer, copy, inputs)
    if any(tensors.from_all_ranks(reason)):
        return Check("loss", NOT_CHECKED, reason or "not on every rank")
    told = float(Losses(trainer, copy).of(batch, items=None, window=1))
    total, count = 0.0, 0
    for ids, labels, mask in zip(inputs["input_ids"], inputs["labels"], inputs["attention_mask"]):
        row, tokens = _alone(copy, ids[mask == 1], labels[mask == 1])
        total, count = total + row, count + tokens
    numbers = {"loss": told, "cross_entropy": total / max(count, 1)}
    close = abs(told - numbers["cross_entropy"]) <= 1e-4 * max(1.0, abs(told))
    if not close:
        message = "the loss is not the cross entropy of the labels, sample by sample"
        if _from_padding(inputs):
            message += ": tokens are predicted from padding before them (pad on the right)"
        return Check("loss", VIOLATED, message, numbers)
    return Check("loss", OK, "the loss is the cross entropy of the labels", numbers)


def _from_padding(inputs: Any) -> bool:
    """Whether a token carries loss whose predecessor is padding on the left."""
    carried = inputs["labels"][:, 1:] != -100
    return bool((carried & (inputs["attention_mask"][:, :-1] == 0)).any())


def _not_plain(trainer: Any, copy: Any, inputs: Any) -> str:
    """Why the loss may rightly be something else than cross entropy; empty if it may not."""
    args = trainer.args
    if type(trainer).__name__ not in ("SFTTrainer", "Trainer", "Seq2SeqTrainer"):
        return "only known for causal language models' cross entropy"
    if not all(name in inputs for name in ("input_ids", "labels", "attention_mask")):
        return "the batch has no input_ids, labels and attention_mask"
    if "ForCausalLM" not in type(getattr(copy, "base_model", copy)).__name__ and (
        "ForCausalLM" not in type(copy).__name__
        and "ForCausalLM"
        not in type(getattr(getattr(copy, "base_model", None), "model", 0)).__name__
    ):
        return "not a causal language model"
    if "position_ids" in inputs or "shift_labels" in inputs or set(inputs) & {"pixel_values"}:
        return "packed or padding-free sequences, or more than text"
    if getattr(args, "loss_type", None) not in _CROSS_ENTROPY:
        return f"loss_type is {args.loss_type}"
    if getattr(args, "label_smoothing_factor", 0) or getattr(trainer, "compute_loss_func", None):
        return "the loss is another one"
    if getattr(getattr(copy, "config", None), "output_router_logits", False):
        return "the loss has an auxiliary term"
    return ""


def _alone(copy: Any, ids: Any, labels: Any) -> tuple[float, int]:
    import torch

    with torch.no_grad():
        logits = copy(input_ids=ids[None], use_cache=False).logits[0, :-1].double()
    carried = labels[1:] != -100
    if not bool(carried.any()):
        return 0.0, 0
    logps = logits.log_softmax(-1)[carried].gather(1, labels[1:][carried][:, None])
    return -float(logps.sum()), int(carried.sum())
