"""online-dpo-ref-none: no engine for a reference model that does not exist.

For TRL 0.11.0 to 0.12.2 (and development versions of 0.13.0 before huggingface/trl#2417), where
Online DPO, XPO and Nash-MD with ``peft_config`` and without ``ref_model`` stop under DeepSpeed with
``AssertionError: deepspeed.initialize requires a model``.  Call one of these before the trainer is
made:

* :func:`apply` makes the trainer skip the absent model; nothing else changes.
* :func:`load_reference` gives the trainer a second copy of the base model, as ``ref_model=`` in
  your own call would; it costs the memory of that copy.

Both do nothing in releases that are not affected, so they can stay after an upgrade.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from typing import Any

from trl_compat.runtime.context import installed

_MARK = "_trl_compat_online_dpo_ref_none"


def _prepares_none(trainer_class: Any) -> bool:
    """Whether the constructor prepares ``self.ref_model`` without asking if there is one.

    Read from the code and not from the version: the report came from a development version.
    """
    if "peft_config" not in inspect.signature(trainer_class.__init__).parameters:
        return False
    tree = ast.parse(textwrap.dedent(inspect.getsource(trainer_class.__init__)))
    call, guard = "self.ref_model = prepare_deepspeed(self.ref_model", "self.ref_model is not None"
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Assign) and call in ast.unparse(n)]
    guarded = [
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and guard in ast.unparse(node.test)
        for statement in node.body
        for inner in ast.walk(statement)
    ]
    return any(found not in guarded for found in calls)


def _trainer_module() -> Any:
    """The module of the trainer where it has the faulty code, else None."""
    try:
        from trl.trainer import online_dpo_trainer
    except ImportError:  # before 0.10.1 there is none, from 0.26.0 it lives elsewhere
        return None
    trainer_class = getattr(online_dpo_trainer, "OnlineDPOTrainer", None)
    if trainer_class is None or not _prepares_none(trainer_class):
        return None
    return online_dpo_trainer


def _not_needed() -> str:
    return f"not needed: TRL {installed('trl')} prepares no reference model that is None"


def apply() -> str:
    """Lets ``prepare_deepspeed`` pass None through, in the trainer's own namespace.

    XPO and Nash-MD construct through the same code.  Patching ``trl.trainer.utils`` would not do:
    the trainer's module has imported the name.
    """
    module = _trainer_module()
    if module is None:
        return _not_needed()
    prepare = module.prepare_deepspeed
    if hasattr(prepare, _MARK):
        return "already applied: prepare_deepspeed passes None through"

    @functools.wraps(prepare)
    def prepare_if_any(model: Any, *args: Any, **kwargs: Any) -> Any:
        return None if model is None else prepare(model, *args, **kwargs)

    setattr(prepare_if_any, _MARK, True)
    module.prepare_deepspeed = prepare_if_any
    return "applied: prepare_deepspeed in trl.trainer.online_dpo_trainer passes None through"


def load_reference() -> str:
    """Loads the base model a second time and passes it as ``ref_model`` where none was given."""
    module = _trainer_module()
    if module is None:
        return _not_needed()
    trainer_class = module.OnlineDPOTrainer
    init = trainer_class.__init__
    if hasattr(init, _MARK):
        return "already applied: Online DPO is given a reference model of its own"
    names = list(inspect.signature(init).parameters)

    @functools.wraps(init)
    def init_with_reference(self: Any, *args: Any, **kwargs: Any) -> None:
        from transformers import AutoModelForCausalLM

        given = {**{names[at + 1]: value for at, value in enumerate(args)}, **kwargs}
        if given.get("ref_model") is None and given.get("peft_config") is not None:
            model = given["model"]
            given["ref_model"] = AutoModelForCausalLM.from_pretrained(
                model.config._name_or_path, torch_dtype=model.dtype
            )
        init(self, **given)

    setattr(init_with_reference, _MARK, True)
    trainer_class.__init__ = init_with_reference
    return "applied: Online DPO is given a second copy of the base model as ref_model"
