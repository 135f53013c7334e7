"""What the trainer's own loop does in one window of accumulation, recorded.

The loop is the trainer's, unchanged, with the engine that it has prepared.  Recorded are the
inputs of every micro-batch, and the gradient that the optimizer gets: for one step the innermost
optimizer is replaced by a probe that writes each gradient into its parameter.  The engine carries
that to the model's weights by its own way (partitions, offload, gathering), so that the weights
after the step *are* the gradient, under any engine and without knowing its buffers.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from . import tensors
from .snapshot import RandomStates, chain


class NotPossible(Exception):
    """The trainer cannot be checked this way; the text says why."""


class _Enough(Exception):
    """Ends the trainer's loop: all that was needed has been recorded."""


@dataclass
class MicroBatch:
    """One call of the trainer's ``compute_loss``.

    Attributes:
        inputs: a copy of what it was given.
        items: ``num_items_in_batch`` as it was given, or None.
        window: the trainer's number of micro-batches in the window, if it keeps one.
        loss: what it returned.
    """

    inputs: Any
    items: Any
    window: Any
    random: RandomStates
    loss: float = 0.0


@dataclass
class Window:
    """One optimizer step: its micro-batches, and how often the innermost optimizer stepped."""

    batches: list[MicroBatch] = field(default_factory=list)
    steps: int = 0


def copied(value: Any) -> Any:
    """A copy of nested inputs whose tensors do not share storage."""
    if hasattr(value, "detach"):
        return value.detach().clone()
    if isinstance(value, dict) or type(value).__name__ in ("BatchEncoding", "BatchFeature"):
        return {name: copied(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(copied(item) for item in value)
    return value


class Loop:
    """The trainer's own training loop, on what is already prepared."""

    def __init__(self, trainer: Any) -> None:
        if not callable(getattr(trainer, "_inner_training_loop", None)):
            raise NotPossible("this trainer has no loop of transformers' Trainer")
        self.trainer = trainer
        self.loss = trainer.compute_loss
        self.windows: list[Window] = []

    def run(
        self,
        windows: int,
        after_step: Callable[[Window], None],
        step: Callable[[Any, Callable[..., Any]], Any] | None = None,
    ) -> list[Window]:
        """Runs the loop for some windows.

        Args:
            windows: how many optimizer steps at most; an epoch may have fewer.
            after_step: called after every optimizer step, on every rank.
            step: called in place of the innermost optimizer's step, with it and its own step.
        """
        self.windows = [Window()]
        trainer = self.trainer
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._prepared())
            stack.enter_context(replaced(trainer, "compute_loss", self._recorded()))
            base = chain(trainer.optimizer)[-1]
            stack.enter_context(replaced(base, "step", self._stepped(base, step)))
            handler = trainer.callback_handler
            callback = _callback(functools.partial(self._after, windows, after_step))
            stack.enter_context(replaced(handler, "callbacks", [callback]))
            stack.enter_context(_quiet(trainer.args))
            with contextlib.suppress(_Enough):
                trainer._inner_training_loop(
                    batch_size=trainer._train_batch_size, args=trainer.args
                )
        return [window for window in self.windows if window.batches and window.steps >= 0]

    def _after(self, windows: int, after_step: Callable[[Window], None]) -> None:
        after_step(self.windows[-1])
        if len(self.windows) == windows:
            raise _Enough
        self.windows.append(Window())

    def _recorded(self) -> Callable[..., Any]:
        original, trainer = self.loss, self.trainer
        signature = inspect.signature(original)

        @functools.wraps(original)
        def compute_loss(model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            given = signature.bind(model, inputs, *args, **kwargs).arguments
            batch = MicroBatch(
                copied(inputs),
                given.get("num_items_in_batch"),
                getattr(trainer, "current_gradient_accumulation_steps", None),
                RandomStates(),
            )
            self.windows[-1].batches.append(batch)
            result = original(model, inputs, *args, **kwargs)
            loss = result[0] if isinstance(result, tuple) else result
            batch.loss = float(loss.detach().float().mean())
            return result

        return compute_loss

    def _stepped(self, base: Any, step: Any) -> Callable[..., Any]:
        original = base.step

        @functools.wraps(original)
        def stepped(*args: Any, **kwargs: Any) -> Any:
            self.windows[-1].steps += 1
            if step is None:
                return original(*args, **kwargs)
            return step(base, functools.partial(original, *args, **kwargs))

        return stepped

    @contextlib.contextmanager
    def _prepared(self) -> Iterator[None]:
        """Model, optimizer and scheduler stay those that are prepared already."""
        import transformers.trainer

        trainer = self.trainer
        model, optimizer, scheduler = trainer.model_wrapped, trainer.optimizer, trainer.lr_scheduler
        inner = tensors.inner(model)
        prepare = trainer.accelerator.prepare

        def prepared(*objects: Any, **kwargs: Any) -> Any:
            answers = []
            for one in objects:
                if one is trainer.model or one is model or one is inner:
                    answers.append(model)
                elif one is optimizer:
                    answers.append(optimizer)
                elif one is scheduler:
                    answers.append(scheduler)
                else:
                    answers.append(prepare(one, **kwargs))
            return answers[0] if len(answers) == 1 else tuple(answers)

        def created(*args: Any, **kwargs: Any) -> Any:
            trainer.optimizer, trainer.lr_scheduler = optimizer, scheduler
            return optimizer

        with contextlib.ExitStack() as stack:
            for owner, name, value in (
                (trainer, "create_optimizer_and_scheduler", created),
                (trainer, "create_optimizer", created),
                (trainer, "create_scheduler", lambda *args, **kwargs: scheduler),
                (trainer, "_created_lr_scheduler", False),
                (trainer.accelerator, "prepare", prepared),
                (trainer.accelerator, "free_memory", lambda *objects: objects),
                (transformers.trainer, "deepspeed_init", lambda *a, **k: (optimizer, scheduler)),
            ):
                if hasattr(owner, name):
                    stack.enter_context(replaced(owner, name, value))
            yield


def gradients_into_weights(base: Any, own_step: Callable[..., Any]) -> None:
    """In place of an optimizer's step: every parameter becomes its gradient."""
    import torch

    with torch.no_grad():
        for group in base.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    tensors.local(parameter).copy_(tensors.local(parameter.grad))


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """In this block an attribute has another value; an instance's own is put back or removed."""
    missing = object()
    before = vars(owner).get(name, missing)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if before is missing:
            with contextlib.suppress(AttributeError):
                delattr(owner, name)
        else:
            setattr(owner, name, before)


@contextlib.contextmanager
def unclipped(trainer: Any) -> Iterator[None]:
    """In this block gradients are not clipped, by the loop or by DeepSpeed."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(replaced(trainer.args, "max_grad_norm", 0.0))
        for wrapper in chain(trainer.optimizer)[:-1]:
            if hasattr(wrapper, "clip_grad"):
                stack.enter_context(replaced(wrapper, "clip_grad", 0.0))
        config = getattr(trainer.model_wrapped, "_config", None)
        if hasattr(config, "gradient_clipping"):
            stack.enter_context(replaced(config, "gradient_clipping", 0.0))
        yield


@contextlib.contextmanager
def without_dropout(roots: list[Any]) -> Iterator[int]:
    """In this block nothing is dropped: two computations of a loss can be compared."""
    with contextlib.ExitStack() as stack:
        off = 0
        for root in roots:
            for module in root.modules():
                kind = type(module).__name__
                for name, value in list(vars(module).items()):
                    drops = "drop" in name or (name == "p" and "Dropout" in kind)
                    if name == "neftune_noise_alpha" or (drops and isinstance(value, float)):
                        off += bool(value)
                        stack.enter_context(replaced(module, name, 0.0))
        yield off


@contextlib.contextmanager
def _quiet(args: Any) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for name, value in (
            ("push_to_hub", False),
            ("eval_on_start", False),
            ("auto_find_batch_size", False),
        ):
            if hasattr(args, name):
                stack.enter_context(replaced(args, name, value))
        yield


def _callback(after: Callable[[], None]) -> Any:
    from transformers import TrainerCallback

    class Recorder(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            after()

    return Recorder()
