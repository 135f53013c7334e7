"""The gradient that the optimizer should get, by plain autograd on a copy without the engine.

The loss of each micro-batch is the trainer's own; how micro-batches and ranks are put together is
not: a token mean is the sum over all tokens of the window, of all ranks, through their number; any
other loss is the mean over micro-batches and ranks.  Which of the two a trainer promises is told
by how its loss answers ``num_items_in_batch`` and the window's length, in any release.
"""

from __future__ import annotations

import inspect
import math
from typing import Any

from . import tensors
from .recording import MicroBatch, Window, copied, replaced

TOKENS, MEAN, COMPLETIONS, GIVEN = "token mean", "mean", "completion-token mean", "as given"


class Losses:
    """The trainer's loss of recorded micro-batches, on a model of our own."""

    def __init__(self, trainer: Any, model: Any) -> None:
        self.trainer, self.model = trainer, model
        self.takes_items = (
            "num_items_in_batch" in inspect.signature(trainer.compute_loss).parameters
        )

    def of(self, batch: MicroBatch, *, items: Any, window: Any, inputs: Any = None) -> Any:
        """The loss, with autograd, from the random state that the trainer had."""
        batch.random.restore()
        given = copied(batch.inputs if inputs is None else inputs)
        kwargs = {"num_items_in_batch": items} if self.takes_items else {}
        with replaced(self.trainer, "current_gradient_accumulation_steps", window):
            loss = self.trainer.compute_loss(self.model, given, **kwargs)
        return (loss[0] if isinstance(loss, tuple) else loss).mean()

    def norm(self, batch: MicroBatch, **given: Any) -> float:
        """The norm of the loss's gradient on this rank.

        A loss scales as its gradient does, and may be 0 where that is not (GRPO's first step).
        """
        self.clear()
        self.of(batch, **given).backward()
        squares = (float((p.grad**2).sum()) for p in self.model.parameters() if p.grad is not None)
        norm = sum(squares) ** 0.5
        self.clear()
        return float(norm)

    def clear(self) -> None:
        """Takes the gradients off the model."""
        for parameter in self.model.parameters():
            parameter.grad = None


class Reference:
    """The gradient of one window.

    Attributes:
        kind: how the loss is put together over the window.
        gradient: by name, float64 on the CPU.
        problem: what is wrong with the number of items that the trainer counted, or "".
    """

    def __init__(self, trainer: Any, model: Any, window: Window) -> None:
        self.trainer, self.losses, self.batches = trainer, Losses(trainer, model), window.batches
        self.problem = ""
        self.world = tensors.rank_and_world()[1]
        self.kind = self._kind()
        self.losses.clear()
        self._backward()
        self.gradient = _summed(dict(model.named_parameters()))
        self.losses.clear()

    def _kind(self) -> str:
        """From the first micro-batch with a gradient; all ranks make the same calls."""
        for batch in self.batches:
            told = tensors.from_all_ranks(self._kind_by(batch))
            kinds = {kind for kind in told if kind}
            if kinds:
                return kinds.pop() if len(kinds) == 1 else GIVEN
        return MEAN

    def _kind_by(self, batch: MicroBatch) -> str:
        """How the loss of a micro-batch answers what it is given; "" without a gradient."""
        count, norm = len(self.batches), self.losses.norm
        as_given = norm(batch, items=batch.items, window=batch.window or count)
        alone = norm(batch, items=None, window=1)
        if batch.items is not None:
            tokens = _tokens(batch.inputs)
            if not as_given or not alone:
                return ""
            if math.isclose(as_given, alone, rel_tol=1e-6):
                return MEAN
            ratio = as_given / alone * float(batch.items)
            known = (n * w for n in set(tokens) for w in {1, self.world})
            return TOKENS if any(math.isclose(ratio, n, rel_tol=1e-3) for n in known) else GIVEN
        counted = "num_items_in_batch" in batch.inputs and "completion_mask" in batch.inputs
        if counted and not math.isclose(self._norm_of_sum(batch), as_given, rel_tol=1e-6):
            return COMPLETIONS
        if not as_given:
            return ""
        same = count > 1 and math.isclose(alone, as_given, rel_tol=1e-6)
        return GIVEN if same and self._declared_scaled() else MEAN

    def _declared_scaled(self) -> bool:
        """Whether the trainer says that its loss is normalised over the window already."""
        said = getattr(self.trainer, "loss_is_scaled_for_ga", None)
        if said is not None:
            return bool(said)
        return getattr(self.trainer, "compute_loss_func", None) is not None

    def _norm_of_sum(self, batch: MicroBatch) -> float:
        return self.losses.norm(
            batch, items=None, window=self._generated(), inputs=self._one(batch)
        )

    def _one(self, batch: MicroBatch) -> dict[str, Any]:
        """Inputs with which a completion-token mean becomes a sum."""
        import torch

        one = torch.tensor(float(self.world), device=self.trainer.args.device)
        return dict(batch.inputs, num_items_in_batch=one)

    def _generated(self) -> int:
        args = self.trainer.args
        return int(getattr(args, "steps_per_generation", None) or len(self.batches))

    def _backward(self) -> None:
        count = len(self.batches)
        if self.kind == TOKENS:
            total = self._checked_total()
        if self.kind == COMPLETIONS:
            total = self._completion_total()
        for batch in self.batches:
            if self.kind == TOKENS:
                loss = self.losses.of(batch, items=None, window=1)  # on every rank: it may gather
                tokens = _tokens(batch.inputs)[0]
                if tokens:
                    (loss * (tokens / total)).backward()
            elif self.kind == COMPLETIONS:
                inputs, window = self._one(batch), self._generated()
                loss = self.losses.of(batch, items=None, window=window, inputs=inputs)
                (loss / total).backward()
            elif self.kind == MEAN:
                loss = self.losses.of(batch, items=None, window=1)
                (loss / (count * self.world)).backward()
            else:
                loss = self.losses.of(batch, items=batch.items, window=batch.window or count)
                (loss / self.world).backward()

    def _checked_total(self) -> float:
        """The number of tokens of the window, and whether the trainer counted as many.

        Up to transformers 5 the first token of a sequence is counted although it carries no loss;
        both are taken as what the release means by a mean.
        """
        mine = [sum(_tokens(batch.inputs)[way] for batch in self.batches) for way in (0, 1)]
        every = tensors.from_all_ranks([*mine, float(self.batches[0].items)])
        rank = tensors.rank_and_world()[0]
        across = getattr(self.trainer.args, "average_tokens_across_devices", False)
        for way in (0, 1):
            if all(abs(row[2] - sum(one[way] for one in every)) < 0.5 for row in every):
                return float(sum(one[way] for one in every))
            if not across and all(abs(row[2] - row[way]) < 0.5 for row in every):
                return float(every[rank][way] * self.world)
        total = float(sum(one[0] for one in every))
        self.problem = (
            f"num_items_in_batch is {float(self.batches[0].items):g} and the window has "
            f"{total:g} tokens with a label"
        )
        return total

    def _completion_total(self) -> float:
        """The tokens of the window, or its share of those generated for several windows."""
        counts = [float(_completion_mask(batch.inputs).sum()) for batch in self.batches]
        total = float(sum(tensors.from_all_ranks(sum(counts))))
        if self._generated() == len(self.batches):
            return max(total, 1.0)
        claimed = float(self.batches[0].inputs["num_items_in_batch"])
        return max(claimed * len(self.batches) / self._generated(), 1.0)


def _completion_mask(inputs: Any) -> Any:
    mask = inputs["completion_mask"]
    return mask * inputs["tool_mask"] if inputs.get("tool_mask") is not None else mask


def _tokens(inputs: Any) -> tuple[int, ...]:
    """The labels that carry loss, without and with the first token of each row."""
    labels = inputs.get("labels") if hasattr(inputs, "get") else None
    if labels is None or not hasattr(labels, "dim") or labels.dim() != 2:
        return ()
    return int((labels[:, 1:] != -100).sum()), int((labels != -100).sum())


def _summed(parameters: dict[str, Any]) -> dict[str, Any]:
    import torch
    import torch.distributed as dist

    world = tensors.rank_and_world()[1]
    gradient = {}
    for name, parameter in parameters.items():
        if not parameter.requires_grad:
            continue
        grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        if world > 1:
            grad = grad.contiguous()
            dist.all_reduce(grad)
        gradient[name] = grad.detach().double().cpu()
    return gradient
