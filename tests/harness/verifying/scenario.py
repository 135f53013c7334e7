"""Runs ``trl_compat.verify`` in a real stack: a script for that stack's interpreter.

    python scenario.py RESULTS.json CASE...

A case is ``trainer:strategy:ranks:key=value:...``, such as ``SFT:2:2:ga=4:how=callback``: ZeRO-2 on
two gloo ranks.  What is imported is imported once; every case has processes of its own.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
MODEL = ROOT / "tiny_models" / "tiny-qwen2"
TEXTS = [
    "What is two plus three? " * (1 + i % 3) + "Name a colour of the sky. " * (i % 2) + str(i)
    for i in range(40)
]


def fields(case: str) -> dict[str, str]:
    trainer, strategy, ranks, *rest = case.split(":")
    given = dict(one.split("=") for one in rest)
    return {"trainer": trainer, "strategy": strategy, "ranks": ranks, **given}


def stand_ins() -> None:
    from trl_compat.runtime import stand_ins

    for stand_in in stand_ins.AUTOMATIC:
        if stand_in.needed():
            stand_in.install()


def build(case: dict[str, str], folder: str) -> Any:
    import torch
    import trl
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from trl_compat.runtime import strategies
    from trl_compat.runtime.trainers import accepted, quiet_arguments

    torch.manual_seed(7)
    options: dict[str, Any] = {
        "output_dir": folder,
        "gradient_accumulation_steps": int(case.get("ga", "4")),
        "max_steps": 2,
        "learning_rate": 1e-3,
        "max_length": 64,
        "max_seq_length": 64,
        "max_prompt_length": 32,
        "optim": case.get("optim", "adamw_torch"),
    }
    if case["strategy"] not in ("none", "ddp"):
        config = strategies.deepspeed_config(int(case["strategy"]))
        if "offload" in case:
            config["zero_optimization"]["offload_optimizer"] = {"device": "cpu"}
        options["deepspeed"] = config
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    name = case["trainer"]
    extra: dict[str, Any] = {}
    if "peft" in case:
        from peft import LoraConfig

        extra["peft_config"] = LoraConfig(r=4, lora_dropout=0.1, task_type="CAUSAL_LM")
    config_class, trainer_class = getattr(trl, f"{name}Config"), getattr(trl, f"{name}Trainer")
    if name == "GRPO":
        options.update(num_generations=2, max_completion_length=8, beta=0.1)
        if "loss" in case:
            options["loss_type"] = case["loss"]
        if "spg" in case:
            options["steps_per_generation"] = int(case["spg"])
        extra["reward_funcs"] = reward
    if name == "SFT":
        options["dataset_text_field"] = "text"
    rows = {
        "SFT": {"text": TEXTS},
        "DPO": {
            "prompt": [text[:20] for text in TEXTS],
            "chosen": [text[20:60] + " yes" for text in TEXTS],
            "rejected": [text[30:80] + " no" for text in TEXTS],
        },
        "Reward": {
            "chosen": [text[:60] + " yes" for text in TEXTS],
            "rejected": [text[:50] + " no" for text in TEXTS],
        },
        "KTO": {
            "prompt": [text[:20] for text in TEXTS],
            "completion": [text[20:60] + " yes" for text in TEXTS],
            "label": [i % 2 == 0 for i in range(len(TEXTS))],
        },
        "GRPO": {"prompt": [text[:20] for text in TEXTS]},
    }[name]
    if name == "Reward":
        from transformers import AutoModelForSequenceClassification

        model: Any = AutoModelForSequenceClassification.from_pretrained(MODEL, num_labels=1)
        model.config.pad_token_id = tokenizer.pad_token_id
    else:
        model = AutoModelForCausalLM.from_pretrained(MODEL)
    if name in ("DPO", "KTO") and "peft" not in case:
        extra["ref_model"] = AutoModelForCausalLM.from_pretrained(MODEL)
    arguments = config_class(**quiet_arguments(config_class, **options))
    return trainer_class(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_dict(rows),
        **accepted(trainer_class.__init__, processing_class=tokenizer, tokenizer=tokenizer),
        **extra,
    )


def reward(completions: list[Any], **kwargs: Any) -> list[float]:
    return [float(sum(map(ord, str(one))) % 7) for one in completions]


def losses(trainer: Any) -> list[float]:
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def run(case: dict[str, str], folder: str) -> dict[str, Any]:
    import trl_compat

    began = time.process_time()
    trainer = build(case, f"{folder}/output")
    if "fault" in case:
        from tests.harness.verifying.faults import FAULTS

        FAULTS[case["fault"]][2](trainer)
    answer: dict[str, Any] = {}
    if case.get("how") == "callback":
        callback = trl_compat.VerifyCallback(on_violation="warn")
        trainer.add_callback(callback)
        answer["losses"] = losses(trainer)
        verdict = callback.verdict
    elif case.get("how") == "never":
        verdict = None
        answer["losses"] = losses(trainer)
    else:
        verdict = trl_compat.verify(trainer)
        answer["losses"] = losses(trainer) if "train" in case else []
    answer["files"] = sorted(path.name for path in Path(folder).glob("output/*"))
    answer["cpu_seconds"] = time.process_time() - began
    answer["verdict"] = verdict.as_dict() if verdict else None
    answer["text"] = str(verdict)
    return answer


def rank(case: dict[str, str], number: int, port: int, folder: str) -> None:
    world = case["ranks"]
    if case["strategy"] != "none":
        os.environ.update(
            RANK=str(number),
            LOCAL_RANK=str(number),
            WORLD_SIZE=world,
            LOCAL_WORLD_SIZE=world,
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
        )
    log = os.open(f"{folder}/rank{number}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        stand_ins()
        answer = run(case, folder)
    except BaseException:
        answer = {"error": traceback.format_exc()}
    Path(folder, f"rank{number}.json").write_text(json.dumps(answer, default=str))
    sys.stdout.flush()
    os._exit(0)


def forked(case: dict[str, str], limit: float = 240) -> dict[str, Any]:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="verify-") as folder:
        children = []
        for number in range(int(case["ranks"])):
            child = os.fork()
            if not child:
                rank(case, number, port, folder)
            children.append(child)
        end = time.monotonic() + limit
        alive = set(children)
        while alive and time.monotonic() < end:
            alive = {child for child in alive if os.waitpid(child, os.WNOHANG) == (0, 0)}
            time.sleep(0.05)
        for child in alive:
            os.kill(child, 9)
            os.waitpid(child, 0)
        told = Path(folder, "rank0.json")
        if told.exists():
            answer: dict[str, Any] = json.loads(told.read_text())
            return answer
        log = Path(folder, "rank0.log")
        return {"error": log.read_text()[-3000:] if log.exists() else "no answer"}


def main() -> None:
    os.environ.update(
        HF_HUB_OFFLINE="1",
        OMP_NUM_THREADS="1",
        TORCHINDUCTOR_COMPILE_THREADS="1",
        DS_ACCELERATOR="cpu",
        TOKENIZERS_PARALLELISM="false",
        WANDB_DISABLED="true",
    )
    sys.path.insert(0, str(ROOT))
    import deepspeed  # noqa: F401
    import peft  # noqa: F401
    import torch
    import trl
    from datasets import Dataset  # noqa: F401

    torch.set_num_threads(1)
    for name in ("SFT", "DPO", "GRPO"):
        getattr(trl, f"{name}Trainer", None)
    answers = {}
    cases = sys.argv[2:]
    if cases == ["faults"]:
        from tests.harness.verifying.faults import FAULTS

        cases = [f"{case}:fault={name}" for name, (case, _, _) in FAULTS.items()]
    for case in cases:
        answers[case] = forked(fields(case))
        Path(sys.argv[1]).write_text(json.dumps(answers))
        shown = answers[case]
        print(f"=== {case}\n{shown.get('text') or shown}\n{shown.get('losses')}", flush=True)


if __name__ == "__main__":
    main()
