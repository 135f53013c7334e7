"""What the files of accelerate and DeepSpeed set, and what they leave out, counts as said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from trl_compat.conditions import Value
from trl_compat.usage import configs, vocabulary
from trl_compat.usage.conditions import UsageBuilder
from trl_compat.usage.vocabulary import Vocabulary

STEPS, CLIP = "gradient_accumulation_steps", "gradient_clipping"
GATHER = configs.GATHER
# What records know of these: a bound, a key that is left out, both.
USED: dict[str, frozenset[Value]] = {
    **vocabulary.shipped().used,
    STEPS: frozenset({">=2"}),
    CLIP: frozenset({None}),
    GATHER: frozenset({False, None}),
    "offload_optimizer": frozenset({"cpu"}),
}


def builder() -> UsageBuilder:
    return UsageBuilder(Vocabulary(USED))


def of_deepspeed(folder: Path, **data: Any) -> UsageBuilder:
    (folder / "ds.json").write_text(json.dumps(data), encoding="utf-8")
    conditions = builder()
    configs.read_deepspeed(folder / "ds.json", conditions)
    return conditions


def of_accelerate(folder: Path, **part: Any) -> UsageBuilder:
    data = {"distributed_type": "DEEPSPEED", "deepspeed_config": part}
    (folder / "a.yaml").write_text(yaml.safe_dump(data), encoding="utf-8")
    conditions = builder()
    configs.read_accelerate(folder / "a.yaml", conditions)
    return conditions


@pytest.mark.parametrize(
    ("zero", "rest", "name", "values"),
    [
        ({"stage": 2}, {}, "offload_optimizer", ("none",)),
        ({"offload_optimizer": {"device": "cpu"}}, {}, "offload_optimizer", ("cpu",)),
        ({"offload_optimizer": {}}, {}, "offload_optimizer", ("none",)),
        ({"cpu_offload": True}, {}, "offload_optimizer", ("cpu",)),
        ({"offload_optimizer": "x"}, {}, "offload_optimizer", None),
        ({"offload_optimizer": {"device": ["cpu"]}}, {}, "offload_optimizer", None),
        ({}, {STEPS: 4}, STEPS, (4,)),
        ({}, {STEPS: "auto"}, STEPS, None),  # the Trainer's own argument
        ({}, {}, STEPS, None),
        ({}, {}, CLIP, (None,)),
        ({}, {CLIP: "auto"}, CLIP, ("auto",)),
        ({}, {CLIP: 0.5}, CLIP, (0.5,)),
        ({}, {CLIP: float("nan")}, CLIP, None),
        ({}, {CLIP: "x" * 1000}, CLIP, None),
        ({"stage": 3}, {}, GATHER, (None,)),
        ({"stage": 3, GATHER: True}, {}, GATHER, (True,)),
        ({"stage": 2}, {}, GATHER, None),  # it means something at ZeRO-3 only
    ],
)
def test_a_configuration_of_deepspeed(
    tmp_path: Path,
    zero: dict[str, Any],
    rest: dict[str, Any],
    name: str,
    values: tuple[Value, ...] | None,
) -> None:
    found = of_deepspeed(tmp_path, zero_optimization=zero, **rest)
    assert found.values.get(name) == values


@pytest.mark.parametrize(
    ("part", "name", "values"),
    [
        ({"zero_stage": 2}, "offload_optimizer", ("none",)),
        ({"offload_optimizer_device": "cpu"}, "offload_optimizer", ("cpu",)),
        ({STEPS: 8}, STEPS, (8,)),
        ({"zero_stage": 2}, CLIP, (None,)),
        ({CLIP: 1.0}, CLIP, (1.0,)),
        ({"zero_stage": 3}, GATHER, (False,)),
        ({"zero_stage": 3, "zero3_save_16bit_model": True}, GATHER, (True,)),
    ],
)
def test_a_configuration_of_accelerate(
    tmp_path: Path, part: dict[str, Any], name: str, values: tuple[Value, ...]
) -> None:
    assert of_accelerate(tmp_path, **part).values.get(name) == values


def test_a_file_of_deepspeed_decides_where_accelerate_names_one(tmp_path: Path) -> None:
    of_deepspeed(tmp_path, zero_optimization={"offload_optimizer": {"device": "nvme"}})
    found = of_accelerate(tmp_path, deepspeed_config_file="ds.json", offload_optimizer_device="cpu")
    assert found.values["offload_optimizer"] == ("nvme",)
