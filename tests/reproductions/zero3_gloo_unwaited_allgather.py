"""zero3-gloo-unwaited-allgather: on CPU ranks ZeRO-3 reads parameters that have not arrived yet.

DeepSpeed starts one asynchronous all-gather per parameter and waits for the last only.  CUDA
streams keep their order, so on GPUs that is enough; gloo finishes in any order.  The scenario
gathers two parameters again and again and compares them with the file that the model was loaded
from: what was corrupted while it was loaded, or is when it is gathered, differs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trl_compat.runtime import strategies, weights
from trl_compat.runtime.context import Rank

# On a busy machine one gather in some hundreds is corrupted: the first one is enough, and a pass
# needs this many rounds without one.
ROUNDS = 2000
AT_A_TIME = 100


def load_under_zero3(rank: Rank) -> Any:
    """The tiny model, loaded and sharded by ``zero.Init``."""
    from deepspeed import comm
    from transformers import AutoModelForCausalLM
    from transformers.integrations.deepspeed import HfDeepSpeedConfig

    if rank.spec.device == "cuda":
        import torch

        torch.cuda.set_device(rank.device)
    comm.init_distributed("nccl" if rank.spec.device == "cuda" else "gloo")
    config = strategies.deepspeed_config(3)
    config.update(train_micro_batch_size_per_gpu=1, gradient_accumulation_steps=1)
    config["train_batch_size"] = rank.world_size
    keep = HfDeepSpeedConfig(config)  # transformers holds it by a weak reference
    model = AutoModelForCausalLM.from_pretrained(rank.spec.model_dir)
    assert keep is not None
    rank.precondition(
        "sharded",
        all(parameter.numel() == 0 for parameter in model.parameters()),
        "zero.Init sharded nothing",
    )
    return model


def gathered(parameters: dict[str, Any]) -> dict[str, Any]:
    """Tensors that DeepSpeed gathers together, as it does with all of a module while loading."""
    import deepspeed
    import torch

    # Memory that is handed out again would often hold the right values from the last round.
    soiled = [torch.full((p.ds_numel,), float("nan"), device=p.device) for p in parameters.values()]
    del soiled
    with deepspeed.zero.GatheredParameters(list(parameters.values())):
        return {name: p.detach().cpu().clone() for name, p in parameters.items()}


def scenario(rank: Rank) -> None:
    import torch

    model = load_under_zero3(rank)
    on_file = weights.saved_state(Path(rank.spec.model_dir))
    # The embedding, by far the largest, and a norm, the smallest, which is gathered last and done
    # first: the pair that a wait for the last handle alone betrays most often.
    by_size = sorted(model.named_parameters(), key=lambda item: item[1].ds_numel)
    pair = dict([by_size[-1], by_size[0]])
    rounds, total = 0, torch.zeros(1, dtype=torch.long, device=rank.device)
    while rounds < ROUNDS and not total.item():
        for _ in range(AT_A_TIME):
            held = gathered(pair)
            total += any(not torch.equal(held[name], on_file[name]) for name in held)
        rounds += AT_A_TIME
        # Ranks are corrupted independently: decide together, so that all say the same.
        torch.distributed.all_reduce(total)
    # Said in the log only: how many is chance, and what is observed must be equal in every run.
    print(f"corrupted: {total.item()} of {rounds * rank.world_size} gathers")
    rank.check(
        "gathered-equals-file", total.item() == 0, "gathered parameters differ from the file"
    )
