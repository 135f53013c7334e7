"""Places GRPO's reference model properly under FSDP.

TRL 0.14.0 to 0.17.0 leave it whole and on the CPU.  TRL 0.18.0 to 0.28.0 wrap it in FSDP1 whatever
was asked for, which dies under FSDP2.  One line before the trainer is made mends both::

    from trl_compat.fixes import grpo_fsdp_ref_device
    grpo_fsdp_ref_device.apply()

:func:`apply` shards the reference with the FSDP that the accelerator uses, as later releases do.
The other functions are the remedies that were proposed for huggingface/trl#3348, kept so that each
can be tried; use one of them or :func:`apply`, not both.  Safe to leave in after an upgrade: where
TRL places the reference itself, nothing is touched.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from trl_compat.runtime.context import at_least, installed

Place = Callable[[Any, Any], Any]
"""Takes the reference model and the accelerator, returns the model to use as reference."""


def apply() -> str:
    """Shards the reference model with the accelerator's own FSDP, 1 or 2."""
    return _install(_sharded, "shards the reference model as FSDP does the policy")


def through_prepare() -> str:
    """``accelerator.prepare(reference).eval()``: not enough, see the advisory."""
    return _install(
        lambda model, accelerator: accelerator.prepare(model).eval(),
        "hands the reference model to accelerator.prepare",
    )


def through_prepare_model() -> str:
    """``accelerator.prepare_model(reference, evaluation_mode=False).eval()``: likewise."""
    return _install(
        lambda model, accelerator: accelerator.prepare_model(model, evaluation_mode=False).eval(),
        "hands the reference model to accelerator.prepare_model as if it were to be trained",
    )


def through_prepare_fsdp() -> str:
    """TRL's own ``prepare_fsdp``, which 0.16.0 and 0.17.0 have and GRPO does not yet call."""
    if not at_least("trl", "0.16.0"):
        raise RuntimeError(f"TRL {installed('trl')} has no prepare_fsdp: it was added in 0.16.0")
    prepare: Place = vars(importlib.import_module("trl.models.utils"))["prepare_fsdp"]
    return _install(prepare, "hands the reference model to TRL's own prepare_fsdp")


def whole_on_device() -> str:
    """Moves the reference model to the device without sharding it, at the price of memory."""
    return _install(
        lambda model, accelerator: model.to(accelerator.device).eval(),
        "moves the whole reference model to the accelerator's device",
    )


def _install(place: Place, what: str) -> str:
    version = installed("trl")
    if not at_least("trl", "0.14.0"):
        return f"not needed: TRL {version} has no GRPO trainer"
    module = importlib.import_module("trl.trainer.grpo_trainer")
    prepare_fsdp = getattr(module, "prepare_fsdp", None)
    if prepare_fsdp is None:
        if hasattr(module.GRPOTrainer.__init__, "places_reference"):
            return "already applied"
        module.GRPOTrainer.__init__ = _placing_afterwards(module.GRPOTrainer.__init__, place)
        return f"applied: GRPOTrainer of TRL {version} {what}"
    if hasattr(prepare_fsdp, "places_reference"):
        return "already applied"
    if "fully_shard" in prepare_fsdp.__code__.co_names:
        return f"not needed: TRL {version} places the reference model itself, under FSDP2 too"
    vars(module)["prepare_fsdp"] = _placing_for_fsdp2(prepare_fsdp, place)
    return f"applied: GRPOTrainer of TRL {version} under FSDP2 {what}"


def _placing_afterwards(construct: Callable[..., None], place: Place) -> Callable[..., None]:
    """For releases that do not know of FSDP: the reference is placed when the trainer is built."""

    @functools.wraps(construct)
    def construct_and_place(self: Any, *args: Any, **kwargs: Any) -> None:
        construct(self, *args, **kwargs)
        reference = self.ref_model
        if reference is None or not self.is_fsdp_enabled:
            return
        # prepare_model has put it among the accelerator's models, where gradient clipping compares
        # it with the policy, tensor with tensor, and dies ("Boolean value of Tensor ...").
        models = self.accelerator._models
        models[:] = [model for model in models if model is not reference]
        self.ref_model = place(reference, self.accelerator)
        for callback in self.callback_handler.callbacks:  # SyncRefModelCallback has the old one
            if getattr(callback, "ref_model", None) is reference:
                callback.ref_model = self.ref_model

    construct_and_place.places_reference = True  # type: ignore[attr-defined]
    return construct_and_place


def _placing_for_fsdp2(prepare_fsdp: Place, place: Place) -> Place:
    """For releases that know FSDP1 only: their own way for FSDP1, ours for FSDP2."""

    @functools.wraps(prepare_fsdp)
    def prepare(model: Any, accelerator: Any) -> Any:
        if getattr(accelerator.state.fsdp_plugin, "fsdp_version", 1) == 2:
            return place(model, accelerator)
        return prepare_fsdp(model, accelerator)

    prepare.places_reference = True  # type: ignore[attr-defined]
    return prepare


def _sharded(model: Any, accelerator: Any) -> Any:
    plugin = accelerator.state.fsdp_plugin
    if getattr(plugin, "fsdp_version", 1) == 2:
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        mesh = getattr(accelerator, "torch_device_mesh", None)
        if mesh is not None:
            mesh = mesh[tuple(accelerator.parallelism_config.fsdp_dim_names)]
        fully_shard(
            model,
            reshard_after_forward=plugin.reshard_after_forward,
            offload_policy=plugin.cpu_offload,
            mp_policy=plugin.mixed_precision_policy or MixedPrecisionPolicy(),
            mesh=mesh,
        )
        return model.eval()
    from torch.distributed.fsdp import FullyShardedDataParallel

    plugin.set_auto_wrap_policy(model)
    sharded = FullyShardedDataParallel(
        model,
        sharding_strategy=plugin.sharding_strategy or plugin.reshard_after_forward,
        cpu_offload=plugin.cpu_offload,
        auto_wrap_policy=plugin.auto_wrap_policy,
        mixed_precision=plugin.mixed_precision_policy,
        sync_module_states=plugin.sync_module_states,
        backward_prefetch=plugin.backward_prefetch,
        forward_prefetch=plugin.forward_prefetch,
        use_orig_params=plugin.use_orig_params,
        param_init_fn=plugin.param_init_fn,
        ignored_modules=plugin.ignored_modules,
        limit_all_gathers=plugin.limit_all_gathers,
        device_id=accelerator.device,
    )
    return sharded.eval()
