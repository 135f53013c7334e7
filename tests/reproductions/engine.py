"""engine: a step of DeepSpeed's engine in bfloat16 has the gradient of that step alone.

The engine takes two steps over the same micro-batches, without accelerate and without a trainer.
The learning rate of the first is 0: it changes nothing, so that what the second step changes is
the gradient that the engine had then, and a gradient that was kept counts twice.  The weights
that the optimizer steps are a copy in float32: that copy is what is compared.
"""

from __future__ import annotations

import os
from typing import Any

from trl_compat.runtime import measuring, strategies
from trl_compat.runtime.context import Rank, at_least

ROWS, TOKENS = 2, 12


def micro_batches(rank: Rank, of: int) -> list[Any]:
    """The token ids that a rank sees in each of the steps, one tensor a micro-batch."""
    import torch

    draw = torch.Generator().manual_seed(1000 + of)
    count = rank.condition("gradient_accumulation_steps")
    return [torch.randint(5, 500, (ROWS, TOKENS), generator=draw) for _ in range(count)]


def parts(rank: Rank) -> list[list[measuring.Tensors]]:
    """What every micro-batch of every rank adds to the right gradient."""
    import torch

    model = measuring.twin(rank)
    with torch.no_grad():
        for parameter in model.parameters():  # the engine begins with these
            parameter.copy_(parameter.bfloat16())
    found = []
    for of in range(rank.world_size):
        batches = micro_batches(rank, of)
        weight = 1 / (rank.world_size * len(batches))
        losses = (
            weight * measuring.token_losses(model(input_ids=batch).logits, batch).mean()
            for batch in batches
        )
        found.append([measuring.gradient(model, loss) for loss in losses])
    return found


def configuration(rank: Rank) -> dict[str, Any]:
    """DeepSpeed's configuration of the variant."""
    count = rank.condition("gradient_accumulation_steps")
    config = strategies.deepspeed_config(rank.condition("zero_stage"))
    config.update(
        train_micro_batch_size_per_gpu=ROWS,
        gradient_accumulation_steps=count,
        train_batch_size=ROWS * count * rank.world_size,
        gradient_clipping=0.0,
        bf16={"enabled": True},
    )
    if kind := rank.condition("grad_accum_dtype"):
        config["data_types"] = {"grad_accum_dtype": kind}
    return config


def engine_of(rank: Rank, model: Any, optimizer: Any) -> Any:
    """DeepSpeed's engine around the model, in bfloat16."""
    import deepspeed
    import torch
    from deepspeed import comm

    old = rank.spec.device == "cpu" and not at_least("torch", "2.6.0")
    if old and (rank.condition("zero_stage") == 0 or rank.condition("grad_accum_dtype")):
        rank.not_applicable("on CPU ranks the step of its optimizer raises", since="torch 2.6")
    if rank.spec.device == "cuda":
        torch.cuda.set_device(rank.device)
    comm.init_distributed("nccl" if rank.spec.device == "cuda" else "gloo")
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=configuration(rank))
    strategies.assert_engine(rank, engine)
    found = sorted({str(p.dtype).removeprefix("torch.") for p in engine.module.parameters()})
    rank.precondition("dtype", found == ["bfloat16"], f"{', '.join(found)} instead of bfloat16")
    rank.observe("optimizer", type(engine.optimizer).__name__)
    return engine


def stepped(engine: Any) -> measuring.Tensors:
    """The weights that the optimizer steps, whole, in float32; every rank must call it."""
    from deepspeed.utils import safe_get_full_fp32_param

    named = dict(engine.module.named_parameters())
    groups = getattr(engine.optimizer, "fp32_groups", None)
    if groups is None:
        found = {name: safe_get_full_fp32_param(p) for name, p in named.items()}
    else:  # an optimizer that was made for fp16: each rank has all weights
        copies = [high for group in groups for high in group]
        originals = [id(low) for group in engine.optimizer.fp16_groups for low in group]
        copy_of = dict(zip(originals, copies, strict=True))
        found = {name: copy_of[id(p)] for name, p in named.items()}
    return {name: tensor.detach().cpu().clone() for name, tensor in found.items()}


def set_rate(optimizer: Any, rate: float) -> None:
    """The learning rate of the next step."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def take_step(rank: Rank, engine: Any) -> None:
    """One optimizer step over all micro-batches of this rank."""
    for batch in micro_batches(rank, rank.rank):
        batch = batch.to(rank.device)
        loss = measuring.token_losses(engine(input_ids=batch).logits.float(), batch).mean()
        engine.backward(loss)
        engine.step()


def scenario(rank: Rank) -> None:
    from transformers import AutoModelForCausalLM

    os.environ.setdefault("LOCAL_RANK", str(rank.local_rank))
    model = AutoModelForCausalLM.from_pretrained(rank.spec.model_dir).to(rank.device)
    model.train()
    optimizer = measuring.sgd(model.parameters())
    engine = engine_of(rank, model, optimizer)
    begun = stepped(engine)
    set_rate(optimizer, 0.0)
    take_step(rank, engine)
    before = stepped(engine)
    moved = measuring.size(measuring.change(begun, before))
    rank.precondition("first-step", moved == 0, f"the first step moved the weights by {moved:g}")
    set_rate(optimizer, 1.0)
    take_step(rank, engine)
    after = stepped(engine)
    measuring.judged(
        rank,
        "engine",
        lambda: measuring.comparison(measuring.change(before, after), parts(rank)),
    )
