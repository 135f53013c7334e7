"""unwrap-double-yield: the context manager in which TRL generates yields once and restores.

Three defects of the same helper and its callers, each mended only where the release at hand has it:

* the commits of huggingface/trl#2557 lack an ``else``: with ``ds3_gather_for_generation=False`` the
  context manager yields twice under ZeRO-3 (mended upstream by #2639 before any release);
* an exception in the block (an interrupt, a failing reward in the same ``with``) leaves DeepSpeed's
  hooks removed and, from TRL 0.22.0, gradient checkpointing off: cleanup is in no ``finally``;
* ``GRPOTrainer`` of TRL 0.15.x takes the option and generates without passing it on.

One line in a training script, before or after the trainer is made::

    from trl_compat.fixes import unwrap_double_yield; unwrap_double_yield.apply()
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

NAME = "unwrap_model_for_generation"
ARGUMENT = "gather_deepspeed3_params"
OPTION = "ds3_gather_for_generation"


def apply() -> str:
    """Mends the helper wherever TRL has imported it; returns what was done, in one sentence."""
    import trl
    from trl.models import utils

    helper = getattr(utils, NAME)
    if getattr(helper, "_mended", False):
        return "already applied"
    done = []
    body = parse(getattr(utils, f"_{NAME}", helper))  # TRL 0.27.0 moved the body there
    twice = yields_twice(body)
    if twice:
        done.append("yields once without gathering")
    if not restores(body):
        done.append("restores hooks and gradient checkpointing after an exception")
    if done:
        replace_everywhere(helper, mended(helper, utils, twice))
    if grpo_ignores_option():
        pass_option_on_in_grpo()
        done.append("GRPO honours ds3_gather_for_generation")
    if not done:
        return f"not needed: TRL {trl.__version__} has a helper that yields once and restores"
    return f"applied: {', '.join(done)}"


def parse(function: Callable[..., Any]) -> ast.AST | None:
    """The syntax tree of a function, or None where its source is not at hand."""
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    except (OSError, SyntaxError):
        return None


def yields_twice(body: ast.AST | None) -> bool:
    """Whether ``if not gather_deepspeed3_params: yield`` runs on into the gathering branch."""
    return body is not None and any(
        isinstance(node, ast.If)
        and ast.unparse(node.test) == f"not {ARGUMENT}"
        and not node.orelse
        and not any(isinstance(step, ast.Return) for step in node.body)
        for node in ast.walk(body)
    )


def restores(body: ast.AST | None) -> bool:
    """Whether the helper cleans up in a ``finally``; without its source it is taken not to."""
    return body is not None and any(
        isinstance(node, ast.Try) and node.finalbody for node in ast.walk(body)
    )


def mended(helper: Callable[..., Any], utils: Any, twice: bool) -> Callable[..., Any]:
    """The helper that yields once and gives back what it took, whatever the block does."""
    signature = inspect.signature(helper)

    @contextmanager
    def unwrap(model: Any, accelerator: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        given = signature.bind(model, accelerator, *args, **kwargs).arguments
        plugin = accelerator.state.deepspeed_plugin
        zero3 = plugin is not None and plugin.zero_stage == 3
        bare = accelerator.unwrap_model(model)
        if twice and zero3 and not given.get(ARGUMENT, True):
            yield bare
            return
        checkpointing = checkpointing_arguments(bare)
        try:
            with helper(model, accelerator, *args, **kwargs) as unwrapped:
                yield unwrapped
        except BaseException:
            if zero3 and hooks_are_gone(model):
                utils.add_hooks(model)
            if checkpointing is not None and not bare.is_gradient_checkpointing:
                bare.gradient_checkpointing_enable(gradient_checkpointing_kwargs=checkpointing)
            raise

    replacement: Any = wraps(helper)(unwrap)
    replacement._mended = True
    return replacement  # type: ignore[no-any-return]


def hooks_are_gone(engine: Any) -> bool:
    """Whether the engine's parameters are sharded and nothing gathers them before a forward."""
    optimizer = getattr(engine, "optimizer", None)
    offload = getattr(optimizer, "parameter_offload", optimizer)
    return getattr(offload, "forward_hooks", None) == []


def checkpointing_arguments(model: Any) -> dict[str, Any] | None:
    """What gradient checkpointing was switched on with, or None where it is off."""
    if not getattr(model, "is_gradient_checkpointing", False):
        return None
    for module in model.modules():
        function = getattr(module, "_gradient_checkpointing_func", None)
        if getattr(module, "gradient_checkpointing", False) and function is not None:
            return dict(getattr(function, "keywords", {}))
    return {}


def replace_everywhere(old: Callable[..., Any], new: Callable[..., Any]) -> None:
    """Puts the new helper in the place of the old in every module of TRL: they import by name."""
    for name, module in list(sys.modules.items()):
        if name == "trl" or name.startswith("trl."):
            for attribute, value in list(vars(module).items()):
                if value is old:
                    setattr(module, attribute, new)


def grpo_ignores_option() -> bool:
    """Whether GRPO of this release has the option and generates without passing it on."""
    try:
        from trl.trainer import grpo_config, grpo_trainer
    except ImportError:  # no GRPO yet, or its optional packages do not fit: nothing to mend
        return False
    if OPTION not in getattr(grpo_config.GRPOConfig, "__dataclass_fields__", {}):
        return False
    prepare = grpo_trainer.GRPOTrainer._prepare_inputs
    body = None if getattr(prepare, "_mended", False) else parse(prepare)
    return body is not None and any(
        isinstance(node, ast.Call)
        and ast.unparse(node.func) == NAME
        and ARGUMENT not in {keyword.arg for keyword in node.keywords}
        for node in ast.walk(body)
    )


def pass_option_on_in_grpo() -> None:
    """While GRPO prepares its inputs, the helper is called with the trainer's own option."""
    from trl.trainer import grpo_trainer

    prepare = grpo_trainer.GRPOTrainer._prepare_inputs

    @wraps(prepare)
    def prepare_inputs(self: Any, *args: Any, **kwargs: Any) -> Any:
        helper = getattr(grpo_trainer, NAME)

        def with_option(model: Any, accelerator: Any, **given: Any) -> Any:
            return helper(model, accelerator, **{ARGUMENT: getattr(self.args, OPTION), **given})

        setattr(grpo_trainer, NAME, with_option)
        try:
            return prepare(self, *args, **kwargs)
        finally:
            setattr(grpo_trainer, NAME, helper)

    prepare_inputs._mended = True  # type: ignore[attr-defined]
    grpo_trainer.GRPOTrainer._prepare_inputs = prepare_inputs
