"""Sabotages of merged: adapters that stay, are saved otherwise, or merge at another scale."""

from __future__ import annotations

from typing import Any

from .declaration import breaks
from .spoiling import upon


@breaks("merged", within="measuring.judged", variant="lora-ddp")
def an_adapter_is_frozen(rank: Any, reproduction: Any) -> None:
    def freeze(trainer: Any, *_: Any) -> None:
        for name, parameter in trainer.model.named_parameters():
            if "layers.0.self_attn.q_proj.lora_A" in name:
                parameter.requires_grad_(False)

    upon(reproduction.sft, "trainer", freeze)


@breaks("merged", within="measuring.judged", variant="lora-ddp")
def a_base_weight_moves(rank: Any, reproduction: Any) -> None:
    def move(step: Any, *_: Any) -> None:
        name = next(name for name in step.after if ".base_layer.weight" in name)
        step.after[name] = step.after[name] + 1e-3

    upon(reproduction.steps, "take", move)


@breaks("merged", within="measuring.judged", variant="lora-ddp")
def the_scale_is_another(rank: Any, reproduction: Any) -> None:
    reproduction.ALPHA = 2 * reproduction.RANK + 1
    make = reproduction.lora

    def with_the_old_scale(*given: Any) -> Any:
        config = make(*given)
        config.lora_alpha = 2 * reproduction.RANK
        return config

    reproduction.lora = with_the_old_scale


@breaks("merged", within="measuring.judged", variant="lora-zero3")
def the_saved_adapter_is_another(rank: Any, reproduction: Any) -> None:
    def spoil(trainer: Any, *_: Any) -> None:
        save = trainer._save

        def saved(folder: Any, state_dict: Any = None) -> Any:
            state_dict = {
                name: tensor * 0 if "lora_B" in name else tensor
                for name, tensor in (state_dict or {}).items()
            }
            return save(folder, state_dict=state_dict)

        trainer._save = saved

    upon(reproduction.sft, "trainer", spoil)


@breaks("merged", within="measuring.judged", variant="lora-ddp-head")
def the_head_is_tied_again(rank: Any, reproduction: Any) -> None:
    twin = reproduction.measuring.twin

    def tied(rank: Any, folder: Any = None) -> Any:
        model = twin(rank, folder)
        if folder is not None and folder.name == "merged":
            model.lm_head.weight = model.model.embed_tokens.weight
        return model

    reproduction.measuring.twin = tied


@breaks("merged", within="measuring.judged", variant="lora-zero2-head")
def the_saved_head_is_another(rank: Any, reproduction: Any) -> None:
    def spoil(found: Any, *_: Any) -> None:
        found["base_model.model.lm_head.weight"] *= 2

    upon(reproduction.weights, "saved_state", spoil)


@breaks("adapter", within="scenario", variant="lora-ddp")
def there_is_no_adapter(rank: Any, reproduction: Any) -> None:
    trainer = reproduction.sft.trainer

    def without(*args: Any, peft_config: Any = None, **options: Any) -> Any:
        return trainer(*args, **options)

    reproduction.sft.trainer = without
