"""A copy of a model without its engine: whole parameters in float64, and ordinary autograd.

DeepSpeed, FSDP and accelerate put hooks, partitions and their own classes and ``forward`` methods
on a model.  The copy has the same modules and the same code, and none of that.  The original is
not touched.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from types import CellType, FunctionType, MethodType
from typing import Any

from . import tensors

# Hooks of these packages are the engine; all others (NEFTune, input gradients) are the model.
_ENGINES = ("deepspeed", "torch.distributed", "accelerate")
_SKIPPED = ("ds_", "_ds_", "_external_params", "_hf_hook", "_fsdp", "_original_forward")


def plain_copy(root: Any, dtype: Any, device: Any) -> Any:
    """The model without its engine; every rank must call it, each gets a whole copy."""
    weights = tensors.whole(root)
    with tensors.unsharded(root):
        # A tied parameter has one name, that under which it is among the weights.
        names = {id(parameter): tensors.clean(name) for name, parameter in root.named_parameters()}
        return _Copy(weights, names, dtype, device).module(root)


class _Copy:
    def __init__(self, weights: dict[str, Any], names: dict[int, str], dtype: Any, device: Any):
        self.weights, self.names, self.dtype, self.device = weights, names, dtype, device
        self.modules: dict[int, Any] = {}
        self.parameters: dict[int, Any] = {}
        self.kept: list[Any] = []  # ids stay true only as long as their objects live

    def module(self, root: Any) -> Any:
        copy = self._tree(root)
        for old, new in [(old, self.modules[id(old)]) for old in self.kept]:
            self._attributes(old, new)
        return copy

    def _tree(self, old: Any) -> Any:
        wrapper = old
        while type(old).__name__ == "FullyShardedDataParallel":
            old = old._modules["_fsdp_wrapped_module"]
        old = tensors.inner(old)
        if id(old) in self.modules:
            return self.modules[id(old)]
        kind = _own_class(type(old))
        new: Any = object.__new__(kind)
        self.modules[id(old)] = self.modules[id(wrapper)] = new
        self.kept.append(old)
        new.__dict__["_modules"] = type(old._modules)()
        new.__dict__["_parameters"] = OrderedDict(
            (name, self._parameter(parameter)) for name, parameter in dict.items(old._parameters)
        )
        new.__dict__["_buffers"] = OrderedDict(
            (name, self._buffer(buffer)) for name, buffer in old._buffers.items()
        )
        for name, child in old._modules.items():
            new._modules[name] = None if child is None else self._tree(child)
        return new

    def _parameter(self, old: Any) -> Any:
        import torch

        if old is None:
            return None
        if id(old) not in self.parameters:
            weight = self.weights.get(self.names.get(id(old), ""))
            if weight is None or not weight.is_floating_point() or hasattr(old, "quant_state"):
                self.parameters[id(old)] = old  # quantized and frozen: shared
            else:
                self.parameters[id(old)] = torch.nn.Parameter(
                    weight.to(device=self.device, dtype=self.dtype),
                    requires_grad=old.requires_grad,
                )
                if hasattr(old, "ds_status"):  # TRL asks it of every parameter under ZeRO-3
                    self.parameters[id(old)].ds_status = type(old.ds_status).AVAILABLE
        return self.parameters[id(old)]

    def _buffer(self, old: Any) -> Any:
        if old is None:
            return None
        # Rotary frequencies are float32 by design: widened with all else, never narrowed.
        return old.detach().clone().to(self.dtype) if old.is_floating_point() else old.clone()

    def _attributes(self, old: Any, new: Any) -> None:
        for name, value in old.__dict__.items():
            if name in ("_parameters", "_buffers", "_modules") or name.startswith(_SKIPPED):
                continue
            if name == "forward" and "_original_forward" in old.__dict__:
                continue  # accelerate's autocast
            if name == "forward" and "_old_forward" in old.__dict__:
                continue  # accelerate's placement of modules
            if name.endswith("_hooks") and isinstance(value, dict):
                new.__dict__[name] = type(value)(
                    (key, hook) for key, hook in value.items() if not _of_engine(hook)
                )
            else:
                new.__dict__[name] = self._value(value)

    def _value(self, value: Any, depth: int = 3) -> Any:
        if id(value) in self.modules:
            return self.modules[id(value)]
        if id(value) in self.parameters:
            return self.parameters[id(value)]
        if isinstance(value, MethodType) and id(value.__self__) in self.modules:
            function = self._function(value.__func__, depth)
            return MethodType(function, self.modules[id(value.__self__)])
        if depth and type(value) in (list, tuple, set):
            return type(value)(self._value(item, depth - 1) for item in value)
        if depth and type(value) in (dict, OrderedDict):
            return type(value)((key, self._value(item, depth - 1)) for key, item in value.items())
        return value

    def _function(self, function: Any, depth: int) -> Any:
        """A method put on an instance may keep the model's first one: it is to call the copy's."""
        cells = getattr(function, "__closure__", None)
        if not depth or not cells:
            return function
        try:
            contents = [cell.cell_contents for cell in cells]
        except ValueError:  # an empty cell
            return function
        values = [self._value(content, depth - 1) for content in contents]
        if all(new is old for new, old in zip(values, contents)):
            return function
        copy = FunctionType(
            function.__code__,
            function.__globals__,
            function.__name__,
            function.__defaults__,
            tuple(CellType(value) for value in values),
        )
        copy.__kwdefaults__ = function.__kwdefaults__
        copy.__dict__.update(function.__dict__)
        return copy


def _own_class(kind: type) -> type:
    """The class of the model below those that FSDP2 and DeepSpeed put before it."""
    for base in kind.__mro__:
        if not any(one.__name__ == "FSDPModule" for one in base.__mro__):
            return base
    return kind


def _of_engine(hook: Any) -> bool:
    while isinstance(hook, functools.partial):
        hook = hook.func
    module = getattr(hook, "__module__", None) or type(hook).__module__
    owner = getattr(hook, "__self__", None)
    modules = (str(module), type(owner).__module__)
    return any(one.startswith(_ENGINES) for one in modules)
