"""Deliberate faults, put into a trainer or its engine one at a time.

Each is a function that takes a trainer that has not begun to train.  ``FAULTS`` says in which
case it is put, and which check should catch it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

Fault = Callable[[Any], None]
FAULTS: dict[str, tuple[str, str, Fault]] = {}


def fault(case: str, check: str) -> Callable[[Fault], Fault]:
    def kept(function: Fault) -> Fault:
        FAULTS[function.__name__.replace("_", "-")] = case, check, function
        return function

    return kept


def backward(trainer: Any, change: Callable[[int, Any], Any]) -> None:
    """Changes the loss of each micro-batch of a window, or drops it where it becomes None."""
    own, count = trainer.accelerator.backward, [0]

    def changed(loss: Any, **kwargs: Any) -> None:
        number = count[0] % 4
        count[0] += 1
        new = change(number, loss)
        own(loss * 0 if new is None else new, **kwargs)

    trainer.accelerator.backward = changed


def with_optimizer(trainer: Any, change: Callable[[Any], None]) -> None:
    """Changes the optimizer as soon as the trainer has made it."""
    own = trainer.create_optimizer

    def created(*args: Any, **kwargs: Any) -> Any:
        optimizer = own(*args, **kwargs)
        change(optimizer)
        return optimizer

    trainer.create_optimizer = created


def around_step(trainer: Any, before: Callable[[Any], None], after: Callable[[Any], None]) -> None:
    def change(optimizer: Any) -> None:
        own = optimizer.step

        @functools.wraps(own)
        def step(*args: Any, **kwargs: Any) -> Any:
            before(optimizer)
            answer = own(*args, **kwargs)
            after(optimizer)
            return answer

        optimizer.step = step

    with_optimizer(trainer, change)


def nothing(optimizer: Any) -> None:
    pass


@fault("SFT:none:1", "accumulation")
def first_micro_batch_dropped(trainer: Any) -> None:
    backward(trainer, lambda number, loss: None if number == 0 else loss)


@fault("DPO:none:1", "accumulation")
def middle_micro_batches_dropped(trainer: Any) -> None:
    backward(trainer, lambda number, loss: loss if number in (0, 3) else None)


@fault("DPO:none:1", "accumulation")
def only_the_last_micro_batch(trainer: Any) -> None:
    backward(trainer, lambda number, loss: loss if number == 3 else None)


@fault("DPO:none:1", "accumulation")
def times_accumulation(trainer: Any) -> None:
    backward(trainer, lambda number, loss: loss * 4)


@fault("SFT:none:1", "accumulation")
def divided_by_accumulation_again(trainer: Any) -> None:
    backward(trainer, lambda number, loss: loss / 4)


@fault("Reward:none:1", "accumulation")
def one_micro_batch_twice(trainer: Any) -> None:
    backward(trainer, lambda number, loss: loss * (2 if number == 1 else 1))


@fault("SFT:none:1", "accumulation")
def padding_counted_as_tokens(trainer: Any) -> None:
    own = trainer.get_batch_samples

    def counted(*args: Any, **kwargs: Any) -> Any:
        batches, items = own(*args, **kwargs)
        return batches, sum(batch["labels"].numel() for batch in batches) + 0 * items

    trainer.get_batch_samples = counted


@fault("DPO:none:1", "last-window")
def last_window_not_scaled(trainer: Any) -> None:
    own = trainer.training_step

    @functools.wraps(own)
    def step(*args: Any, **kwargs: Any) -> Any:
        trainer.current_gradient_accumulation_steps = 4
        return own(*args, **kwargs)

    trainer.training_step = step


@fault("SFT:none:1", "last-window")
def gradients_kept_for_the_next_window(trainer: Any) -> None:
    trainer.model.zero_grad = lambda *args, **kwargs: None


@fault("SFT:none:1", "accumulation")
def gradients_cast_to_bfloat16(trainer: Any) -> None:
    for parameter in trainer.model.parameters():
        parameter.register_hook(lambda grad: grad.bfloat16().float())


@fault("SFT:none:1", "accumulation")
def gradient_of_one_tensor_lost(trainer: Any) -> None:
    *_, parameter = trainer.model.parameters()
    parameter.register_hook(lambda grad: grad * 0)


@fault("SFT:ddp:2", "accumulation")
def ranks_not_averaged(trainer: Any) -> None:
    own = trainer.training_step

    @functools.wraps(own)
    def step(model: Any, *args: Any, **kwargs: Any) -> Any:
        with model.no_sync() if hasattr(model, "no_sync") else contextlib.nullcontext():
            return own(model, *args, **kwargs)

    trainer.training_step = step


@fault("DPO:ddp:2", "accumulation")
def ranks_added_in_place_of_averaged(trainer: Any) -> None:
    backward(trainer, lambda number, loss: loss * 2)


@fault("SFT:ddp:2", "data")
def every_rank_the_same_samples(trainer: Any) -> None:
    import torch

    trainer.get_train_dataloader = lambda: torch.utils.data.DataLoader(
        trainer._remove_unused_columns(trainer.train_dataset, "training")
        if hasattr(trainer, "_remove_unused_columns")
        else trainer.train_dataset,
        batch_size=2,
        collate_fn=trainer.data_collator,
    )


@fault("SFT:none:1", "accumulation")
def optimizer_without_one_tensor(trainer: Any) -> None:
    def change(optimizer: Any) -> None:
        optimizer.param_groups[0]["params"].pop(3)

    with_optimizer(trainer, change)


@fault("SFT:none:1", "settings")
def ten_times_the_learning_rate(trainer: Any) -> None:
    def change(optimizer: Any) -> None:
        for group in optimizer.param_groups:
            group["lr"] *= 10

    with_optimizer(trainer, change)


@fault("SFT:none:1", "settings")
def schedule_starts_at_half(trainer: Any) -> None:
    own = trainer.create_scheduler

    def created(*args: Any, **kwargs: Any) -> Any:
        scheduler = own(*args, **kwargs)
        for group in trainer.optimizer.param_groups:
            group["lr"] /= 2
        return scheduler

    trainer.create_scheduler = created


@fault("SFT:none:1", "step")
def step_taken_twice(trainer: Any) -> None:
    around_step(trainer, nothing, lambda optimizer: type(optimizer).step(optimizer))


@fault("SFT:none:1", "step")
def step_not_taken(trainer: Any) -> None:
    def change(optimizer: Any) -> None:
        optimizer.step = functools.wraps(optimizer.step)(lambda *args, **kwargs: None)

    with_optimizer(trainer, change)


@fault("SFT:none:1", "step")
def step_without_bias_correction(trainer: Any) -> None:
    def before(optimizer: Any) -> None:
        for group in optimizer.param_groups:
            group["lr"] *= (1 - group["betas"][1]) ** 0.5 / (1 - group["betas"][0])

    def after(optimizer: Any) -> None:
        for group in optimizer.param_groups:
            group["lr"] /= (1 - group["betas"][1]) ** 0.5 / (1 - group["betas"][0])

    around_step(trainer, before, after)


@fault("SFT:none:1:optim=sgd", "step")
def clipping_left_out(trainer: Any) -> None:
    trainer.accelerator.clip_grad_norm_ = lambda *args, **kwargs: __import__("torch").tensor(1.0)


@fault("SFT:none:1", "step")
def weights_rounded_to_bfloat16_after_the_step(trainer: Any) -> None:
    def after(optimizer: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.data.copy_(parameter.data.bfloat16())

    around_step(trainer, nothing, after)


@fault("DPO:none:1:peft=1", "accumulation")
def adapter_frozen(trainer: Any) -> None:
    """The first switch of adapters asks for the gradient again; the optimizer lacks them."""
    for name, parameter in trainer.model.named_parameters():
        if "lora_B" in name and "layers.0." in name:
            parameter.requires_grad = False


@fault("DPO:none:1:peft=1", "step")
def base_of_the_adapter_moved(trainer: Any) -> None:
    frozen = next(p for p in trainer.model.parameters() if not p.requires_grad)

    def after(optimizer: Any) -> None:
        frozen.data.mul_(1.01)

    around_step(trainer, nothing, after)


@fault("SFT:none:1", "saved")
def file_of_the_untrained_weights(trainer: Any) -> None:
    import copy

    first, own = copy.deepcopy(trainer.model.state_dict()), trainer._save

    def save(output_dir: Any = None, state_dict: Any = None) -> None:
        own(output_dir, state_dict=first)

    trainer._save = save


@fault("SFT:none:1", "saved")
def file_cast_to_bfloat16(trainer: Any) -> None:
    own = trainer._save

    def save(output_dir: Any = None, state_dict: Any = None) -> None:
        state = {name: one.bfloat16() for name, one in trainer.model.state_dict().items()}
        own(output_dir, state_dict=state)

    trainer._save = save


@fault("SFT:none:1", "saved")
def file_without_a_layer(trainer: Any) -> None:
    own = trainer._save

    def save(output_dir: Any = None, state_dict: Any = None) -> None:
        state = {k: v for k, v in trainer.model.state_dict().items() if "layers.1." not in k}
        own(output_dir, state_dict=state)

    trainer._save = save


@fault("DPO:none:1:peft=1", "saved")
def adapter_file_without_tensors(trainer: Any) -> None:
    own = trainer._save

    def save(output_dir: Any = None, state_dict: Any = None) -> None:
        own(output_dir, state_dict={})

    trainer._save = save


@fault("DPO:none:1", "reference")
def reference_is_another_model(trainer: Any) -> None:
    next(iter(trainer.ref_model.parameters())).data.mul_(1.05)


@fault("DPO:none:1", "reference")
def reference_follows_the_policy(trainer: Any) -> None:
    def after(optimizer: Any) -> None:
        next(iter(trainer.ref_model.parameters())).data.mul_(1.01)

    around_step(trainer, nothing, after)


@fault("SFT:none:1", "data")
def padding_carries_loss(trainer: Any) -> None:
    own = trainer.data_collator

    def collated(rows: Any) -> Any:
        batch = own(rows)
        batch["labels"] = batch["input_ids"].clone()
        return batch

    trainer.data_collator = collated


@fault("SFT:none:1", "data")
def labels_shifted_twice(trainer: Any) -> None:
    own = trainer.data_collator

    def collated(rows: Any) -> Any:
        batch = own(rows)
        batch["labels"] = batch["labels"].roll(-1, dims=1)
        return batch

    trainer.data_collator = collated


@fault("SFT:none:1", "loss")
def loss_doubled(trainer: Any) -> None:
    own = trainer.compute_loss

    @functools.wraps(own)
    def doubled(*args: Any, **kwargs: Any) -> Any:
        loss = own(*args, **kwargs)
        return (loss[0] * 2, *loss[1:]) if isinstance(loss, tuple) else loss * 2

    trainer.compute_loss = doubled


@fault("SFT:none:1", "loss")
def every_second_token_masked(trainer: Any) -> None:
    """A wrong mask inside of the model: every second token is not seen."""
    own = trainer.compute_loss

    @functools.wraps(own)
    def masked(model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        mask = inputs["attention_mask"].clone()
        mask[:, 1::2] = 0
        return own(model, {**inputs, "attention_mask": mask}, *args, **kwargs)

    trainer.compute_loss = masked
