"""Ways to spoil a scenario that several sabotages share."""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any

from trl_compat.runtime import trainers
from trl_compat.runtime.context import replace

Unwrap = Callable[..., Iterator[Any]]


def upon(owner: Any, name: str, spoil: Callable[..., object]) -> None:
    """After every call of a function, ``spoil`` is called with its result and its arguments."""
    function = getattr(owner, name)

    @functools.wraps(function)
    def function_then_spoil(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        spoil(result, *args)
        return result

    replace(owner, name, function_then_spoil)


def before_the_loss(trainer: Any, spoil: Callable[[Any], object]) -> None:
    """Before a trainer computes its loss, ``spoil`` is called with the batch."""
    compute = trainer.compute_loss

    def spoil_then_compute(model: Any, inputs: Any, *args: Any, **options: Any) -> Any:
        spoil(inputs)
        return compute(model, inputs, *args, **options)

    trainer.compute_loss = spoil_then_compute


def in_place_of_helper(module: str = "trl.models.utils") -> Callable[[Unwrap], None]:
    """Installs a generator as ``unwrap_model_for_generation``; it is given the original first.

    Args:
        module: whose binding of the name is replaced: trainers have one of their own.
    """

    def install(unwrap: Unwrap) -> None:
        owner: Any = importlib.import_module(module)
        helper = owner.unwrap_model_for_generation
        manager = contextlib.contextmanager(functools.partial(unwrap, helper))
        owner.unwrap_model_for_generation = functools.update_wrapper(manager, helper)

    return install


def no_learning_rate() -> None:
    """Trainers take steps that change nothing."""
    arguments = trainers.quiet_arguments

    def with_rate_zero(config: Any, **candidates: Any) -> dict[str, Any]:
        return arguments(config, **{**candidates, "learning_rate": 0.0})

    trainers.quiet_arguments = with_rate_zero


def no_learning_rate_of_adam() -> None:
    """The same for scenarios that make their optimizer themselves."""
    import torch

    init = torch.optim.AdamW.__init__

    def init_with_rate_zero(self: Any, parameters: Any, lr: float, **others: Any) -> None:
        init(self, parameters, lr=0.0, **others)

    torch.optim.AdamW.__init__ = init_with_rate_zero


def change_one_number(parameter: Any) -> None:
    """Adds one to one element of a parameter that ZeRO-3 has sharded; every rank must call it."""
    import deepspeed

    with deepspeed.zero.GatheredParameters([parameter], modifier_rank=0):
        if parameter.numel():
            parameter.data.view(-1)[0] += 1


def gather_for_good(model: Any) -> None:
    """Makes one parameter of a model that ZeRO-3 has sharded whole; every rank must call it."""
    parameter = next(model.parameters())
    parameter.all_gather([parameter])


def lose_a_hook(model: Any) -> None:
    """Takes one forward hook off a model."""
    hooks_of_some_module(model).popitem()


def hooks_of_some_module(model: Any) -> Any:
    """The hooks before the forward pass of the first submodule that has any."""
    return next(part._forward_pre_hooks for part in model.modules() if part._forward_pre_hooks)
