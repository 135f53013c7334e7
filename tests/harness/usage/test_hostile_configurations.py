"""Any configuration or script that a user brings is answered or refused in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.doctor_runs import OLD
from tests.harness.hostile import doctor, refused
from trl_compat.usage import scripts
from trl_compat.usage.conditions import UsageBuilder

HEAD = "distributed_type: MULTI_GPU\n"
BOMB = HEAD + "a0: &a0 [x,x]\n" + "".join(
    f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9)
)  # fmt: skip
MERGES = HEAD + "a0: &a0 {x: 1}\n" + "".join(
    f"a{n}: &a{n}\n  <<: [{','.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9)
)  # fmt: skip


@pytest.mark.parametrize(
    ("option", "text", "said"),
    [
        ("--config", BOMB, "x:4: more than 10 aliases"),
        ("--config", MERGES, "x:6: more than 10 aliases"),
        ("--config", HEAD + "x: " + "[" * 60_000, "x:2: nested more than 50 deep"),
        ("--config", "- " * 30_000, "x:1: nested more than 50 deep"),
        ("--config", HEAD + "x: 1\n" * 50_000, "x: larger than the limit of 64 KiB"),
        ("--config", HEAD + "num_processes: " + "1" * 5000, "an invalid number or date"),
        ("--config", HEAD + "x: 2024-13-45", "an invalid number or date"),
        ("--config", HEAD + "x: !!timestamp hunter2", "an invalid number or date"),
        ("--config", HEAD + "? {a: b}\n: 1", "x:2: not valid YAML"),
        ("--config", HEAD + "x: !!python/object/apply:os.system [id]", "x:2: not valid YAML"),
        ("--config", "distributed_type: [hunter2]", "no distributed_type in it"),
        ("--config", "distributed_type: FSDP\nfsdp_config: {fsdp_version: [1]}", "neither 1 nor 2"),
        ("--config", "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 9}", "0, 1, 2"),
        ("--config", "distributed_type: FSDP\nfsdp_config: hunter2", "fsdp_config is not a table"),
        ("--ds-config", '{"zero_optimization":' + "[" * 60_000, "nested too deep"),
        ("--ds-config", '{"zero_optimization":{"stage":' + "3" * 5000 + "}}", "an invalid number"),
        ("--ds-config", '{"zero_optimization":{"stage":"\\ud800"}}', "stage is not 0, 1, 2 or 3"),
        ("--ds-config", '{"zero_optimization":{"stage":true}}', "stage is not 0, 1, 2 or 3"),
        ("--ds-config", '{"zero_optimization":{"stage":NaN}}', "stage is not 0, 1, 2 or 3"),
        ("--ds-config", "hunter2", "x:1: not valid JSON"),
        ("--script", "(" * 200_000, "x:1: not valid Python"),
        ("--script", "-" * 200_000 + "1", "nested too deep"),
        ("--script", "a" + ".a" * 100_000, "nested too deep"),
        ("--script", "1+" * 100_000 + "1", "nested too deep"),
        ("--script", "f" + "()" * 100_000, "nested too deep"),
        ("--script", "x = " + "1" * 5000, "x:1: not valid Python"),
        ("--script", "a\n" * 100_000, "too long for a training script"),
        ("--script", "a\n" * 300_000, "larger than the limit of 256 KiB"),
        ("--script", "password = 'hunter2", "x:1: not valid Python"),
        ("--pyproject", "tool = 3 # trl-compat", "tool is not a table"),
        ("--pyproject", "tool.trl-compat = [1]", "tool.trl-compat is not a table"),
        ("--pyproject", "[tool.trl-compat]\nx = " + "[" * 40_000, "nested too deep"),
        ("--pyproject", "[tool.trl-compat]\nx = " + "1" * 5000, "an invalid number or date"),
    ],
)  # fmt: skip
def test_a_configuration_that_cannot_be_read_is_one_sentence(
    tmp_path: Path, option: str, text: str, said: str
) -> None:
    (tmp_path / "ok.txt").write_text(OLD)
    (tmp_path / "x").write_text(text)
    done = doctor(tmp_path, "ok.txt", option, "x")
    refused(done, said)
    assert b"hunter2" not in done.stderr


def test_names_that_stand_for_many_things_take_no_longer(tmp_path: Path) -> None:
    chain = "\n".join(f"class A{n}Trainer(A{n + 1}Trainer): pass" for n in range(3000))
    many = "\n".join(f"from a import B{n} as C" for n in range(3000))
    (tmp_path / "t.py").write_text(f"{chain}\n{many}\n" + "A0Trainer()\nC()\n" * 3000)
    conditions = UsageBuilder()
    scripts.read(tmp_path / "t.py", conditions)
    assert "trainer" not in conditions.values
