"""accumulation: a step over several micro-batches has the gradient of all of them.

``facet: engine`` takes one optimizer step with the engine alone, without any trainer: the ranks see
different micro-batches of the same size, the loss of each is the mean over its tokens, and so the
right gradient is the mean of theirs.  With ``dtype: bfloat16`` the engine computes in bfloat16 and
steps a copy of the weights in float32: that copy is what is compared.

``facet: trainer`` takes one step of a trainer of TRL.  SFT's right loss is the mean over all tokens
of the step; with rows of one length (``rows: even``) this is the mean of means as well.  A reward
model's is the mean over all pairs.  KTO's is the mean over all answers, each with the KL estimate
of its own micro-batch: other micro-batches make another step, and none is compared with it.
"""

from __future__ import annotations

import os
import random
from typing import Any

from trl_compat.runtime import measuring, sft, steps, strategies
from trl_compat.runtime.context import Rank, at_least
from trl_compat.runtime.losses import kto, reward

ROWS, TOKENS = 2, 12


def micro_batches(rank: Rank, of: int) -> list[Any]:
    """The token ids that a rank sees, one tensor a micro-batch."""
    import torch

    draw = torch.Generator().manual_seed(1000 + of)
    count = rank.condition("gradient_accumulation_steps", 1)
    return [torch.randint(5, 500, (ROWS, TOKENS), generator=draw) for _ in range(count)]


def parts(rank: Rank) -> list[list[measuring.Tensors]]:
    """What every micro-batch of every rank adds to the right gradient."""
    import torch

    model = measuring.twin(rank)
    if rank.condition("dtype") == "bfloat16":
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
    if rank.condition("dtype") == "bfloat16":
        config["bf16"] = {"enabled": True}
        if stage == 1 and rank.spec.device == "cpu" and not at_least("torch", "2.6.0"):
            rank.not_applicable("on CPU ranks the step of its optimizer raises", since="torch 2.6")
    if kind := rank.condition("grad_accum_dtype"):
        config["data_types"] = {"grad_accum_dtype": kind}
    engine, *_ = deepspeed.initialize(
        model=model, optimizer=measuring.sgd(model.parameters()), config=config
    )
    strategies.assert_engine(rank, engine)
    return engine


def stepped(rank: Rank, engine: Any) -> measuring.Tensors:
    """The weights that the optimizer steps, whole, in float32; every rank must call it."""
    if rank.condition("dtype") != "bfloat16":
        return measuring.state(engine.module)
    from deepspeed.utils import safe_get_full_fp32_param

    found = {n: safe_get_full_fp32_param(p) for n, p in engine.module.named_parameters()}
    if any(tensor is None for tensor in found.values()):
        rank.not_applicable("this DeepSpeed does not tell the weights that its optimizer steps")
    return {name: tensor.detach().cpu().clone() for name, tensor in found.items()}


def assert_dtype(rank: Rank, engine: Any) -> None:
    """Precondition: the engine computes in the variant's type."""
    found = sorted({str(p.dtype).removeprefix("torch.") for p in engine.module.parameters()})
    wanted = rank.condition("dtype", "float32")
    rank.precondition("dtype", found == [wanted], f"{', '.join(found)} instead of {wanted}")


def engine_alone(rank: Rank) -> None:
    """One step of the engine, with the gradient that it left in the weights."""
    from transformers import AutoModelForCausalLM

    os.environ.setdefault("LOCAL_RANK", str(rank.local_rank))
    model = AutoModelForCausalLM.from_pretrained(rank.spec.model_dir).to(rank.device)
    model.train()
    engine = deepspeed_engine(rank, model)
    assert_dtype(rank, engine)
    before = stepped(rank, engine)
    for batch in micro_batches(rank, rank.rank):
        batch = batch.to(rank.device)
        loss = measuring.token_losses(engine(input_ids=batch).logits.float(), batch).mean()
        engine.backward(loss)
        engine.step()
    after = stepped(rank, engine)
    measuring.judged(
        rank,
        "accumulation",
        lambda: measuring.comparison(measuring.change(before, after), parts(rank)),
    )


def texts(rank: Rank) -> dict[str, list[str]] | None:
    """Texts for more than four micro-batches, all different; None if the usual ones are enough.

    The usual ones come again after 12: what each micro-batch adds would have no single answer.
    """
    count = steps.rows_of_a_step(rank)
    if count <= 4 * steps.ROWS * rank.world_size:
        return None
    even = rank.condition("rows") == "even"
    draw = random.Random(8)
    lengths = (6 if even else 3 + (5 * row) % 7 for row in range(count))
    return {"text": [" ".join(draw.choices(sft.LETTERS, k=length)) for length in lengths]}


def trainer_step(rank: Rank) -> None:
    """One step of the variant's trainer."""
    if (trainer := rank.condition("trainer")) in OTHERS:
        OTHERS[trainer].measured(rank, "accumulation")
        return
    step = steps.take(rank, sft.trainer(rank, columns=texts(rank)))
    batches = measuring.everyones(rank, step.batches)
    sft.assert_rows(rank, batches)
    measuring.judged(
        rank,
        "accumulation",
        lambda: measuring.comparison(step.change, sft.parts(rank, batches)),
    )


OTHERS = {"Reward": reward, "KTO": kto}


def scenario(rank: Rank) -> None:
    {"engine": engine_alone, "trainer": trainer_step}[rank.condition("facet")](rank)
