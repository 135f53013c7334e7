"""Where DeepSpeed or PEFT is not installed, what needs it is not applicable; the rest is run."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness.conftest import ROOT
from trl_compat import advisories
from trl_compat.advisories import Catalogue
from trl_compat.cells.expectations import expect
from trl_compat.cells.outcome import Outcome
from trl_compat.runtime.needs import lacking
from trl_compat.stacks.matrix import Matrix

DEEPSPEED, PEFT = "DeepSpeed is not installed", "PEFT is not installed"


@pytest.mark.parametrize(
    ("conditions", "there", "told"),
    [
        ({"strategy": "deepspeed"}, (), DEEPSPEED),
        ({"zero_stage": 0}, (), DEEPSPEED),
        ({"strategy": "deepspeed", "zero_stage": 3}, ("deepspeed",), ""),
        ({"strategy": "ddp", "peft": True}, ("deepspeed",), PEFT),
        ({"strategy": "ddp", "peft": False}, (), ""),
        ({"strategy": "fsdp", "fsdp_version": 2}, (), ""),
        ({"zero_stage": 2, "peft": True}, (), "DeepSpeed and PEFT are not installed"),
    ],
)
def test_what_conditions_need(
    conditions: dict[str, Any], there: tuple[str, ...], told: str
) -> None:
    assert lacking(conditions, lambda package: package in there) == told


def test_every_condition_of_the_reproductions_that_needs_a_package_is_known() -> None:
    """The names of strategies that need DeepSpeed are those that the reproductions use."""
    catalogue = advisories.load(ROOT / "advisories", ROOT / "tests" / "reproductions")
    for failure in catalogue.failures:
        for variant in catalogue.reproduction(failure).variants:
            conditions = catalogue.reproduction(failure).conditions_of(variant)
            assert conditions["strategy"] in ("deepspeed", "fsdp", "ddp")


@pytest.mark.parametrize(
    ("variant", "absent", "expected"),
    [
        ("zero3", {"deepspeed": ""}, Outcome.NOT_APPLICABLE),
        ("zero3", {"peft": ""}, Outcome.REPRODUCED),
        ("zero3", {}, Outcome.REPRODUCED),
        ("ddp", {"deepspeed": ""}, Outcome.PASS),
        (
            "zero3",
            {"deepspeed": "git+https://github.com/deepspeedai/DeepSpeed@0123456789"},
            Outcome.REPRODUCED,
        ),
    ],
)
def test_the_expectation_knows_it(
    matrix: Matrix, catalogue: Catalogue, variant: str, absent: dict[str, str], expected: Outcome
) -> None:
    stack = matrix.stacks["old"].model_copy(update=absent)
    assert expect(stack, catalogue["saving"], variant, catalogue.masks).outcome is expected
