"""Whether the reference that a policy is compared with is the policy that it starts from."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

from . import tensors
from .comparing import Tolerance
from .recording import MicroBatch
from .verdict import NOT_CHECKED, OK, VIOLATED, Check


def sequences(batches: list[MicroBatch]) -> tuple[Any, Any] | None:
    """Token ids and their mask, whatever the trainer calls them."""
    import torch

    for batch in batches[:1]:
        inputs = batch.inputs
        if "prompt_ids" in inputs and "completion_ids" in inputs:
            ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
            mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
            return ids, mask
        for name in inputs:
            if name.endswith("input_ids") and getattr(inputs[name], "dim", lambda: 0)() == 2:
                mask = inputs.get(name.replace("input_ids", "attention_mask"))
                if mask is not None and mask.shape == inputs[name].shape:
                    return inputs[name], mask
    return None


def reference(trainer: Any, batches: list[MicroBatch], tolerance: Tolerance) -> Check:
    """Compares the log-probabilities of policy and reference, token by token."""
    root = tensors.inner(trainer.model_wrapped)
    model = getattr(trainer, "ref_model", None)
    peft = hasattr(root, "peft_config") and hasattr(root, "disable_adapter")
    if not hasattr(trainer, "ref_model"):
        return Check("reference", NOT_CHECKED, "this trainer has no reference model")
    beta = getattr(trainer, "beta", getattr(trainer.args, "beta", None))
    if model is None and (not peft or beta == 0):
        why = "beta is 0" if beta == 0 else "it is not kept, or computed beforehand"
        return Check("reference", NOT_CHECKED, f"no reference model: {why}")
    if getattr(trainer.state, "global_step", 0):
        return Check("reference", NOT_CHECKED, "the policy has been trained already")
    names = [getattr(getattr(one, "config", None), "_name_or_path", "") for one in (root, model)]
    if model is not None and names[0] != getattr(
        getattr(tensors.inner(model), "config", None), "_name_or_path", ""
    ):
        return Check("reference", NOT_CHECKED, "the reference is loaded from elsewhere on purpose")
    found = sequences(batches)
    if found is None:
        return Check("reference", NOT_CHECKED, "the batch has no token ids with a mask")
    ids, mask = found
    policy = _logps(trainer.model_wrapped, ids, mask)
    if model is not None:
        other = _logps(model, ids, mask)
    else:
        with _reference_adapter(root):
            other = _logps(trainer.model_wrapped, ids, mask)
    gap = float((policy - other).abs().max())
    divergence = float((policy - other).sum() / mask[:, 1:].sum())
    numbers = {"largest_gap": gap, "mean_gap": divergence}
    if not gap <= tolerance.logps:
        message = "the reference is not the policy at the first step: KL is not 0"
        return Check("reference", VIOLATED, message, numbers)
    return _first_loss(trainer, batches, numbers)


def _first_loss(trainer: Any, batches: list[MicroBatch], numbers: dict[str, Any]) -> Check:
    """The trainer's own use of the reference: DPO's sigmoid loss starts at ln 2."""
    kind = getattr(trainer, "loss_type", getattr(trainer.args, "loss_type", None))
    kinds = kind if isinstance(kind, (list, tuple)) else [kind]
    plain = not getattr(trainer.args, "rpo_alpha", None) and not getattr(
        trainer.args, "use_weighting", False
    )
    dpo = "DPO" in type(trainer).__name__ and "Online" not in type(trainer).__name__
    if dpo and list(kinds) == ["sigmoid"] and plain:
        loss = batches[0].loss
        numbers = {**numbers, "first_loss": loss}
        half = any(abs(batch.loss - math.log(2)) > 1e-2 for batch in batches)
        if half:
            message = "the first DPO loss is not ln 2: policy and reference are not compared alike"
            return Check("reference", VIOLATED, message, numbers)
    return Check("reference", OK, "policy and reference are equal at the first step", numbers)


def unchanged(references: list[tuple[Any, dict[str, Any]]]) -> Check | None:
    """A violation if a reference model has moved since its weights were kept."""
    for root, before in references:
        after = tensors.whole(root)
        moved = [name for name in before if not before[name].equal(after[name])]
        if moved:
            message = f"a step changed {len(moved)} tensors of {type(root).__name__}, a reference"
            return Check("reference", VIOLATED, message, {}, moved[0])
    return None


@contextlib.contextmanager
def _reference_adapter(root: Any) -> Iterator[None]:
    names = [name for name in ("ref", "reference") if name in root.peft_config]
    if not names:
        with root.disable_adapter():
            yield
        return
    active = root.active_adapter
    required = [(parameter, parameter.requires_grad) for parameter in root.parameters()]
    root.set_adapter(names[0])
    try:
        yield
    finally:
        root.set_adapter(active)
        for parameter, requires in required:
            parameter.requires_grad = requires


def _logps(model: Any, ids: Any, mask: Any) -> Any:
    import torch

    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            output = model(input_ids=ids, attention_mask=mask, use_cache=False)
        logits = output.logits if hasattr(output, "logits") else output[0]
        logps = logits[:, :-1].float().log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0]
        return logps * mask[:, 1:]
    finally:
        model.train(training)
