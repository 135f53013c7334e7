"""What the configuration files set or leave out decides what doctor says of a record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness.doctor_runs import OLD, own_record, said_of_own

STEPS = "gradient_accumulation_steps"


@pytest.mark.parametrize(
    ("conditions", "configuration", "status"),
    [
        (f'{STEPS}: ">=3"', {STEPS: 4}, "applies"),
        (f'{STEPS}: ">=3"', {STEPS: 2}, None),
        (f'{STEPS}: ">=3"', {STEPS: "auto"}, "applies-if"),
        (f'{STEPS}: ">=3"', {}, "applies-if"),
        ("gradient_clipping: null", {}, "applies"),
        ("gradient_clipping: null", {"gradient_clipping": "auto"}, None),
        ("gradient_clipping: null", {"gradient_clipping": 0.3}, None),
        ('gradient_clipping: ">0.25"', {"gradient_clipping": 0.3}, "applies"),
        ('gradient_clipping: ">0.25"', {"gradient_clipping": 0.2}, None),
        ('gradient_clipping: ">0.25"', {}, None),  # the file says that there is none
        ("offload_optimizer: none", {}, "applies"),
        ("offload_optimizer: [cpu, nvme]", {}, None),
    ],
)
def test_what_a_configuration_sets_or_leaves_out_decides(
    conditions: str, configuration: dict[str, object], status: str | None, tmp_path: Path
) -> None:
    (tmp_path / "ds.json").write_text(json.dumps({"zero_optimization": {}, **configuration}))
    # Another block of the record knows the key as one that may be missing.
    other = "conditions: {trainer: PPO, gradient_clipping: null}"
    text = own_record(f"conditions: {{{conditions}}}", other)
    words = ("--trainer", "SFT", "--ds-config", "ds.json")
    found = said_of_own(tmp_path, text, OLD, *words)
    assert (found or {"status": None})["status"] == status


def test_bounds_and_missing_keys_are_said_in_words(tmp_path: Path) -> None:
    text = own_record(f'conditions: {{{STEPS}: ">=3", gradient_clipping: null}}')
    found = said_of_own(tmp_path, text, OLD, "--trainer", "SFT")
    assert found is not None
    said = "with gradient_accumulation_steps >= 3 and no gradient_clipping in the configuration"
    assert said.removeprefix("with ") in str(found["when"]).replace("with ", "and ")
