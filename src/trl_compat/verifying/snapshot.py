"""Everything that the checks change, kept beforehand and put back in place.

Weights, optimizer and engine are put back tensor by tensor into the storage that they have, so
that it works under every engine and without a collective; objects by their attributes; containers
by their contents, so that whoever holds them sees them as before.
"""

from __future__ import annotations

import os
import random
from collections import OrderedDict, defaultdict, deque
from typing import Any

from . import tensors

_CONTAINERS = (dict, list, set, deque, defaultdict, OrderedDict)
_PLAIN = (bool, int, float, str, type(None))
# Held by a trainer and never changed by a step: not walked through.
_DATA = ("train_dataset", "eval_dataset", "processing_class", "tokenizer", "data_collator")


class _Contents:
    """A container's contents, and those of the containers in it."""

    def __init__(self, container: Any, depth: int, seen: set[int]) -> None:
        seen.add(id(container))
        self.container = container
        self.items = container.copy()
        values = container.values() if isinstance(container, dict) else container
        self.inner = [
            _Contents(value, depth - 1, seen)
            for value in values
            if depth and type(value) in _CONTAINERS and id(value) not in seen
        ]

    def restore(self) -> None:
        self.container.clear()
        if isinstance(self.container, (dict, set)):
            self.container.update(self.items)
        else:
            self.container.extend(self.items)
        for inner in self.inner:
            inner.restore()


class Attributes:
    """An object's attributes; with ``plain_only`` those that are numbers, texts and None."""

    def __init__(self, owner: Any, plain_only: bool = False) -> None:
        self.owner, self.plain_only = owner, plain_only
        self.attributes = {
            name: value
            for name, value in vars(owner).items()
            if not plain_only or type(value) in _PLAIN
        }
        seen: set[int] = set()
        self.contents = [
            _Contents(value, 5, seen)
            for name, value in self.attributes.items()
            if name not in _DATA and type(value) in _CONTAINERS and id(value) not in seen
        ]

    def restore(self) -> None:
        """Puts them back, and takes away those that are new."""
        now = vars(self.owner)
        if not self.plain_only:
            for name in set(now) - set(self.attributes):
                del now[name]
        now.update(self.attributes)
        for contents in self.contents:
            contents.restore()


class RandomStates:
    """The states of all random generators: Python's, numpy's, torch's on the CPU and devices."""

    def __init__(self) -> None:
        import numpy
        import torch

        self.python = random.getstate()
        self.numpy = numpy.random.get_state()
        self.torch = torch.get_rng_state()
        self.cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []

    def restore(self) -> None:
        """Puts all of them back."""
        import numpy
        import torch

        random.setstate(self.python)
        numpy.random.set_state(self.numpy)
        torch.set_rng_state(self.torch)
        if self.cuda:
            torch.cuda.set_rng_state_all(self.cuda)


def chain(outer: Any, attribute: str = "optimizer") -> list[Any]:
    """An optimizer (or scheduler) and all that it wraps; the last one does the work."""
    found = [outer]
    while True:
        below = vars(found[-1]).get(attribute)
        if below is None or any(below is one for one in found):
            return found
        found.append(below)


class Snapshot:
    """A prepared trainer as it is now.

    Attributes:
        tensors: label, the tensor in place, and its copy.
    """

    def __init__(self, trainer: Any) -> None:
        self.random = RandomStates()
        self.environment = dict(os.environ)
        self.optimizers = chain(trainer.optimizer)
        self.tensors = [
            (label, tensor, tensor.detach().clone())
            for root in models_of(trainer)
            for label, tensor in tensors.held(root)
        ]
        self.gradients = [
            (parameter, parameter.grad, None if parameter.grad is None else parameter.grad.clone())
            for root in models_of(trainer)
            for parameter in root.parameters()
        ]
        self._keep_optimizer(self.optimizers[-1])
        self.objects = [Attributes(trainer), Attributes(trainer.callback_handler)]
        self.objects += [Attributes(trainer.args), Attributes(trainer.accelerator)]
        self.objects += [Attributes(one) for one in (trainer.state, trainer.control)]
        self.objects += [Attributes(one) for one in chain(trainer.lr_scheduler, "scheduler")]
        shared = getattr(trainer.accelerator, "gradient_state", None)
        if shared is not None:
            self.objects.append(Attributes(shared))
        engines = [*self.optimizers[:-1], trainer.model_wrapped]
        self.objects += [Attributes(one, plain_only=True) for one in engines]
        self.training = [
            (module, module.training) for root in models_of(trainer) for module in root.modules()
        ]

    def _keep_optimizer(self, base: Any) -> None:
        known = {id(tensor) for _, tensor, _ in self.tensors}
        groups = list(base.param_groups)
        masters = [parameter for group in groups for parameter in group["params"]]
        for wrapper in self.optimizers[:-1]:  # ZeRO-3 gives its optimizer one partition at a time
            masters += list(getattr(wrapper, "fp32_partitioned_groups_flat", None) or [])
        for number, parameter in enumerate(masters):
            tensor = tensors.local(parameter)
            if id(parameter) not in known:
                known.add(id(parameter))
                self.tensors.append((f"master {number}", tensor, tensor.detach().clone()))
            gradient = parameter.grad
            kept = None if gradient is None else gradient.detach().clone()
            self.gradients.append((parameter, gradient, kept))
        self.states = [
            (
                parameter,
                {
                    name: (value, value.detach().clone() if hasattr(value, "detach") else None)
                    for name, value in state.items()
                },
            )
            for parameter, state in base.state.items()
        ]
        self.groups = [(group, dict(group), list(group["params"])) for group in groups]

    def restore_tensors(self) -> None:
        """Weights, masters, buffers and the optimizer's state; nothing else."""
        import torch

        with torch.no_grad():
            for _, tensor, kept in self.tensors:
                tensor.copy_(kept)
            self._restore_optimizer(self.optimizers[-1])

    def _restore_optimizer(self, base: Any) -> None:
        base.state.clear()
        for parameter, state in self.states:
            for value, kept in state.values():
                if kept is not None:
                    tensors.local(value).copy_(tensors.local(kept))
            base.state[parameter] = {name: value for name, (value, _) in state.items()}
        for group, items, parameters in self.groups:
            group.clear()
            group.update(items)
            group["params"][:] = parameters

    def restore(self) -> None:
        """Everything."""
        import torch

        self.restore_tensors()
        with torch.no_grad():
            for parameter, gradient, kept in self.gradients:
                parameter.grad = gradient
                if kept is not None:
                    gradient.copy_(kept)
        for kept_object in self.objects:
            kept_object.restore()
        for module, training in self.training:
            module.training = training
        os.environ.clear()
        os.environ.update(self.environment)
        self.random.restore()

    def differences(self) -> list[str]:
        """The labels of tensors that are not as they were."""
        import torch

        return [
            label
            for label, tensor, kept in self.tensors
            if not torch.equal(tensor.nan_to_num(), kept.nan_to_num())
        ]


def models_of(trainer: Any) -> list[Any]:
    """The policy and whatever other models the trainer holds (reference, value, reward)."""
    import torch

    roots = [tensors.inner(trainer.model_wrapped)]
    for name, value in vars(trainer).items():
        if isinstance(value, torch.nn.Module) and name not in ("model", "model_wrapped"):
            root = tensors.inner(value)
            if not any(root is known for known in roots):
                roots.append(root)
    return roots


def references_of(trainer: Any) -> list[Any]:
    """The models that a step must not change: all but the policy."""
    policy = tensors.inner(trainer.model_wrapped)
    known = {id(parameter) for parameter in policy.parameters()}
    return [
        root
        for root in models_of(trainer)[1:]
        if not any(id(parameter) in known for parameter in root.parameters())
    ]
