"""The minimal fix of ``grpo-num-logits-to-keep-swallowed``: the argument under its present name.

TRL 0.14.0 passes ``num_logits_to_keep`` to the model.  transformers calls it ``logits_to_keep``
from 4.49.0 on, and from 4.52.1 on ignores the old name.
"""

from __future__ import annotations

import inspect
import types
from typing import Any

OLD, NEW = "num_logits_to_keep", "logits_to_keep"


def apply() -> str:
    """Makes GRPO's models take the argument under its old name, too; says what it did."""
    import trl
    from trl import GRPOTrainer

    if trl.__version__ != "0.14.0":
        return "nothing to fix: this GRPOTrainer does not pass num_logits_to_keep"
    create: Any = GRPOTrainer.__init__
    if getattr(create, "renames", False):
        return "already applied"

    def create_then_rename(self: Any, *args: Any, **options: Any) -> None:
        create(self, *args, **options)
        for model in (self.model, self.ref_model):
            if model is not None:
                rename(model)

    vars(create_then_rename)["renames"] = True
    GRPOTrainer.__init__ = create_then_rename
    return "GRPO's models take num_logits_to_keep for logits_to_keep"


def rename(model: Any) -> None:
    """Gives every part of a model that has the new name a ``forward`` that takes the old one."""
    for module in model.modules():
        if NEW in inspect.signature(type(module).forward).parameters:
            module.forward = types.MethodType(forward, module)


def forward(self: Any, *args: Any, **options: Any) -> Any:
    """The module's own, with the argument under its new name."""
    if OLD in options:
        options[NEW] = options.pop(OLD)
    return type(self).forward(self, *args, **options)
