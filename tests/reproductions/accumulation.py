"""accumulation: a step over several micro-batches has the gradient of all of them.

``facet: engine`` takes one optimizer step with the engine alone, without any trainer: the ranks see
different micro-batches of the same size, the loss of each is the mean over its tokens, and so the
right gradient is the mean of theirs.

``facet: trainer`` takes one step of TRL's SFT trainer.  The right loss is the mean over all tokens
of the step; with rows of one length (``rows: even``) this is the mean of means as well.
"""

from __future__ import annotations

import os
from typing import Any

from trl_compat.runtime import measuring, sft, steps, strategies
from trl_compat.runtime.context import Rank

ROWS, TOKENS = 2, 12


def micro_batches(rank: Rank, of: int) -> list[Any]:
    """The token ids that a rank sees, one tensor a micro-batch."""
    import torch

    draw = torch.Generator().manual_seed(1000 + of)
    count = rank.condition("gradient_accumulation_steps", 1)
    return [torch.randint(5, 500, (ROWS, TOKENS), generator=draw) for _ in range(count)]


def parts(rank: Rank) -> list[list[measuring.Tensors]]:
    """What every micro-batch of every rank adds to the right gradient."""
    model = measuring.twin(rank)
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


def deepspeed_engine(rank: Rank, model: Any) -> Any:
    """DeepSpeed's engine around the model, without accelerate and without a trainer."""
    import deepspeed
    from deepspeed import comm

    if rank.spec.device == "cuda":
        import torch

        torch.cuda.set_device(rank.device)
    comm.init_distributed("nccl" if rank.spec.device == "cuda" else "gloo")
    stage = rank.condition("zero_stage")
    config = strategies.deepspeed_config(stage)
    count = rank.condition("gradient_accumulation_steps", 1)
    config.update(
        train_micro_batch_size_per_gpu=ROWS,
        gradient_accumulation_steps=count,
        train_batch_size=ROWS * count * rank.world_size,
        gradient_clipping=0.0,
    )
    if rank.condition("offload_optimizer", "none") != "none":
        config["zero_optimization"]["offload_optimizer"] = {"device": "cpu"}
    engine, *_ = deepspeed.initialize(
        model=model, optimizer=measuring.sgd(model.parameters()), config=config
    )
    strategies.assert_engine(rank, engine)
    return engine


def engine_alone(rank: Rank) -> None:
    """One step of the engine, with the gradient that it left in the weights."""
    from transformers import AutoModelForCausalLM

    os.environ.setdefault("LOCAL_RANK", str(rank.local_rank))
    model = AutoModelForCausalLM.from_pretrained(rank.spec.model_dir).to(rank.device)
    model.train()
    engine = deepspeed_engine(rank, model)
    before = measuring.state(engine.module)
    for batch in micro_batches(rank, rank.rank):
        batch = batch.to(rank.device)
        loss = measuring.token_losses(engine(input_ids=batch).logits.float(), batch).mean()
        engine.backward(loss)
        engine.step()
    after = measuring.state(engine.module)
    measuring.judged(
        rank,
        "accumulation",
        lambda: measuring.comparison(measuring.change(before, after), parts(rank)),
    )


def trainer_step(rank: Rank) -> None:
    """One step of the SFT trainer."""
    step = steps.take(rank, sft.trainer(rank))
    batches = measuring.everyones(rank, step.batches)
    sft.assert_rows(rank, batches)
    measuring.judged(
        rank,
        "accumulation",
        lambda: measuring.comparison(step.change, sft.parts(rank, batches)),
    )


def scenario(rank: Rank) -> None:
    {"engine": engine_alone, "trainer": trainer_step}[rank.condition("facet")](rank)
