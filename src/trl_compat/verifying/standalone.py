"""A trainer that has not begun to train, prepared for the checks and taken back afterwards.

``train()`` itself prepares model, optimizer and scheduler; it is stopped when it is about to take
the first step.  What it has wrapped is unwrapped again, so that the real ``train()`` begins as if
nothing had happened.
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator
from typing import Any

from . import setup, tensors
from .recording import NotPossible, replaced
from .snapshot import Attributes, RandomStates

_OWN = ("_parameters", "_buffers", "_modules")


class _Begun(Exception):
    """Raised in ``train()`` when all is prepared."""


@contextlib.contextmanager
def started(trainer: Any) -> Iterator[None]:
    """In this block the trainer is as its ``train()`` prepares it.

    Raises:
        NotPossible: what this strategy wraps cannot be unwrapped.
    """
    if getattr(trainer, "is_fsdp_enabled", False):
        raise NotPossible(
            "FSDP cannot be undone; add VerifyCallback() to the trainer, it checks inside train()"
        )
    before = _Unprepared(trainer)
    try:
        with setup.quiet():
            _begin(trainer)
        yield
    finally:
        before.restore()


def _begin(trainer: Any) -> None:
    from transformers import TrainerCallback

    class Stop(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            raise _Begun

    with replaced(trainer.callback_handler, "callbacks", [Stop()]):
        try:
            trainer.train()
        except _Begun:
            return
    raise NotPossible("this trainer's train() does not tell callbacks that it begins")


class _Unprepared:
    """A trainer before its engine exists."""

    def __init__(self, trainer: Any) -> None:
        import torch

        self.trainer = trainer
        self.random, self.environment = RandomStates(), dict(os.environ)
        self.objects = [
            Attributes(one)
            for one in (
                trainer,
                trainer.callback_handler,
                trainer.args,
                trainer.accelerator,
                trainer.state,
                trainer.control,
                getattr(trainer.accelerator, "gradient_state", None),
            )
            if one is not None
        ]
        root = tensors.inner(trainer.model)
        with torch.no_grad():
            self.parameters = [
                (one, one.data, tensors.local(one).clone(), one.grad, dict(vars(one)))
                for one in (*root.parameters(), *root.buffers())
            ]
        self.modules = [
            (
                module,
                dict(vars(module)),
                [value.copy() for value in vars(module).values() if isinstance(value, dict)],
            )
            for module in root.modules()
        ]

    def restore(self) -> None:
        """Takes the engine away and puts everything back."""
        import torch

        trainer = self.trainer
        engine = trainer.model_wrapped
        if type(engine).__name__ == "DeepSpeedEngine":
            engine.destroy()
        del engine
        for one in self.objects:
            one.restore()
        for module, attributes, contents in self.modules:
            self._module(module, attributes, contents)
        with torch.no_grad():
            for parameter, data, kept, gradient, attributes in self.parameters:
                if "ds_tensor" in attributes:
                    tensors.local(parameter).copy_(kept)
                elif not hasattr(parameter, "ds_tensor"):
                    data.copy_(kept)
                    parameter.data = data
                    for name in set(vars(parameter)) - set(attributes):
                        delattr(parameter, name)
                parameter.grad = gradient
        os.environ.clear()
        os.environ.update(self.environment)
        gc.collect()
        self.random.restore()

    @staticmethod
    def _module(module: Any, attributes: dict[str, Any], contents: list[Any]) -> None:
        now = vars(module)
        dictionaries = [value for value in attributes.values() if isinstance(value, dict)]
        for name in list(now):
            if name not in attributes and not name.startswith(("ds_", "_ds")):
                del now[name]
        for name, value in attributes.items():
            if name not in _OWN:
                now[name] = value
        for value, kept in zip(dictionaries, contents):
            if not any(value is attributes[name] for name in _OWN):
                value.clear()
                value.update(kept)
