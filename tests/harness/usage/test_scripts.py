"""A script clears nothing that it does not state on every way through it."""

from __future__ import annotations

from pathlib import Path

import pytest

from trl_compat.usage import configs, scripts
from trl_compat.usage.conditions import Named, UsageBuilder


def stated(folder: Path, text: str) -> Named:
    (folder / "train.py").write_text(text)
    conditions = UsageBuilder()
    scripts.read(folder / "train.py", conditions)
    return conditions.values


@pytest.mark.parametrize(
    ("text", "trainers"),
    [
        ("GRPOTrainer(m)", {"GRPO"}),
        ("trl.GRPOTrainer(m)", {"GRPO"}),
        ("SFTTrainer(m)\nGRPOTrainer(m)", {"SFT", "GRPO"}),
        ("from trl import GRPOTrainer as T\nT(m)", {"GRPO"}),
        ("from trl import SFTTrainer as Trainer\nTrainer(m)", {"SFT"}),
        ("class A(GRPOTrainer): pass\nclass B(A): pass\nB(m)", {"GRPO"}),
        ("class A(Logs, GRPOTrainer[int]): pass\nA(m)", {"GRPO"}),
        ("SFTTrainer(m)\nKINDS = {'grpo': GRPOTrainer}\nKINDS[k](m)", {"SFT", "GRPO"}),
        ("SFTTrainer(m)\nmake(GRPOTrainer)", {"SFT", "GRPO"}),
        ("SFTTrainer(m)\nkind = GRPOTrainer if a else DPOTrainer", {"SFT", "GRPO", "DPO"}),
        ("SFTTrainer(m)\ngetattr(trl, 'GRPOTrainer')(m)", {"SFT", "GRPO"}),
        ("isinstance(t, GRPOTrainer)\nSFTTrainer(m)", {"SFT"}),
        ("from trl import GRPOTrainer, SFTTrainer\nSFTTrainer(m)", {"SFT"}),
        ("class A(transformers.Trainer): pass\nA(m)\nSFTTrainer(m)", {"SFT"}),
        # Somebody else's leaves the trainer open, whatever else is there.
        ("VerlTrainer(m)\nSFTTrainer(m)", None),
        ("main()", None),
    ],
)
def test_every_trainer_that_may_be_made_counts(
    tmp_path: Path, text: str, trainers: set[str] | None
) -> None:
    found = stated(tmp_path, text).get("trainer")
    assert (None if found is None else set(found)) == trainers


@pytest.mark.parametrize(
    ("text", "peft"),
    [
        ("SFTTrainer(m, peft_config=LoraConfig())", (True,)),
        ("c = LoraConfig()\nSFTTrainer(m, peft_config=c)", (True,)),
        ("m = load()\nm = get_peft_model(m, c)\nSFTTrainer(m)", (True,)),
        ("SFTTrainer(model=get_peft_model(m, c))", (True,)),
        ("def main():\n  SFTTrainer(m, peft_config=LoraConfig())\n", (True,)),
        ("if __name__ == '__main__':\n  SFTTrainer(m, peft_config=LoraConfig())\n", (True,)),
        ("SFTTrainer(m, peft_config=LoraConfig())\nGRPOTrainer(m)", None),
        ("SFTTrainer(m, peft_config=LoraConfig() if a else None)", None),
        ("if a:\n  m = get_peft_model(m, c)\nSFTTrainer(m)", None),
        ("reward = get_peft_model(r, c)\nSFTTrainer(m)", None),
        ("c = None\nif a:\n  c = LoraConfig()\nSFTTrainer(m, peft_config=c)", None),
    ],
)
def test_an_adapter_counts_where_every_trainer_certainly_gets_one(
    tmp_path: Path, text: str, peft: tuple[bool, ...] | None
) -> None:
    assert stated(tmp_path, text).get("peft") == peft


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("GRPOConfig(use_vllm=False)", (False,)),
        ("GRPOConfig(use_vllm=False)\nGRPOConfig(use_vllm=False)", (False,)),
        ("GRPOConfig(use_vllm=False)\nGRPOConfig(use_vllm=True)", None),
        ("GRPOConfig(use_vllm=False)\nGRPOConfig()", None),
        ("GRPOConfig(use_vllm=False)\nGRPOConfig(use_vllm=USE)", None),
        ("if a:\n  c = GRPOConfig(use_vllm=False)\nelse:\n  c = load()", None),
        ("c = GRPOConfig(use_vllm=False)\nc.use_vllm = True", None),
        ("GRPOConfig(use_vllm=None)", None),
    ],
)
def test_an_option_counts_where_every_configuration_sets_it_so(
    tmp_path: Path, text: str, value: tuple[bool, ...] | None
) -> None:
    assert stated(tmp_path, text).get("use_vllm") == value


def test_deepspeed_is_used_where_every_configuration_says_so(tmp_path: Path) -> None:
    assert stated(tmp_path, "SFTConfig(deepspeed='none.json')")["strategy"] == ("deepspeed",)
    assert "strategy" not in stated(tmp_path, "SFTConfig(deepspeed='')")
    assert "strategy" not in stated(tmp_path, "if a:\n  SFTConfig(deepspeed='none.json')")
    assert stated(tmp_path, "SFTConfig(fsdp='full_shard')")["strategy"] == ("fsdp",)
    assert "strategy" not in stated(tmp_path, "SFTConfig(fsdp='')")


@pytest.mark.parametrize(
    ("text", "device"),
    [
        ("use_cpu: false\ndistributed_type: MULTI_GPU", ("cuda",)),
        ("use_cpu: true\ndistributed_type: 'NO'", ("cpu",)),
        ("use_cpu: false\ndistributed_type: MULTI_CPU", ("cpu",)),
        ("distributed_type: DEEPSPEED", None),
    ],
)
def test_what_accelerates_file_says_of_cpus_counts(
    tmp_path: Path, text: str, device: tuple[str, ...] | None
) -> None:
    (tmp_path / "a.yaml").write_text(text)
    conditions = UsageBuilder()
    configs.read_accelerate(tmp_path / "a.yaml", conditions)
    assert conditions.values.get("device") == device


def test_the_command_line_may_say_less_than_a_file(tmp_path: Path) -> None:
    conditions = UsageBuilder()
    conditions.say("trainer", ("GRPO,SFT",), "--trainer")
    (tmp_path / "train.py").write_text("GRPOTrainer(m)")
    scripts.read(tmp_path / "train.py", conditions)
    assert conditions.values["trainer"] == ("GRPO", "SFT")
