"""What advisories mean, in the words of people who train models."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness.conftest import ROOT
from trl_compat import advisories
from trl_compat.advisories.symptom import Symptom
from trl_compat.report import wording


@pytest.mark.parametrize(
    ("measured", "said"),
    [
        ({"projection": (0.249, 0.251)}, "projection 0.25"),
        ({"wrong": (1, 1_000_000)}, "wrong at least 1"),
        ({"wrong": (2, 2)}, "wrong 2"),
        ({"error": (0, 0.05)}, "error 0 to 0.05"),
        ({"held_by": r"\w+Engine", "steps": (3, 3)}, "held_by …Engine, steps 3"),
    ],
)
def test_a_silent_fault_raises_nothing_and_has_numbers(measured: Any, said: str) -> None:
    symptom = Symptom(violates="step", measured=measured)
    assert wording.seen(symptom) == (
        "nothing is raised",
        said,
        "measured by the invariant step",
    )


def test_an_exception_is_shown_with_its_place() -> None:
    symptom = Symptom(exception="ValueError", message=r"^no \w+$", where="trl/a.py:save")
    assert wording.seen(symptom) == ("ValueError", "no …", "trl/a.py:save")


def test_nobody_is_told_of_the_exceptions_of_a_reproduction() -> None:
    catalogue = advisories.load(ROOT / "advisories", ROOT / "tests" / "reproductions")
    raised = {
        wording.seen(symptom)[0]
        for advisory in catalogue.records.values()
        for symptom in advisory.symptoms.values()
    }
    assert "PostConditionFailed" not in raised


@pytest.mark.parametrize(
    ("conditions", "said"),
    [
        ({"zero_stage": 2, "steps_to_add": ">=3"}, "ZeRO-2, steps_to_add >= 3"),
        ({"clip": None}, "no clip in the configuration"),
        ({"clip": (False, None)}, "clip=False or no clip in the configuration"),
        ({"offload_optimizer": "cpu"}, "the optimizer offloaded to the CPU"),
    ],
)
def test_conditions_in_words(conditions: dict[str, Any], said: str) -> None:
    assert wording.conditions(conditions) == said
