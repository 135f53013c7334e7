"""Failures that mask others: each is known by what was seen of it and by nothing that resembles it.

``recorded_errors/<id>.json`` holds the errors of cells that were really run, as the harness
recorded them, with the stack that raised them (paths in messages are cut down to
``package/module.py``, as those of frames are).  An error of a trainer that no reproduction has yet
stands with the ``conditions`` under which it was raised, in place of a cell's failure and variant.
A symptom of which no error was recorded is a guess, and refused here.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import pytest

from tests.harness.advisories.edges import EDGES, EDGES_OF_TRAINERS, NEAR
from tests.harness.conftest import ROOT
from trl_compat import advisories
from trl_compat.advisories import Advisory
from trl_compat.cells.expectations import Expectation, expect
from trl_compat.cells.outcome import Outcome
from trl_compat.stacks.matrix import Stack

FOLDER = ROOT / "tests" / "harness" / "recorded_errors"
OWN = advisories.load(ROOT / "advisories", ROOT / "tests" / "reproductions")


@dataclass(frozen=True)
class Recorded:
    """An error that a stack raised in a cell, and the mask and symptom that it was."""

    mask: str
    symptom: str
    stack: Stack
    advisory: Advisory
    variant: str
    error: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.mask}-{self.symptom}-{self.advisory.id}"

    @property
    def conditions(self) -> dict[str, Any]:
        """Under which it was raised."""
        assert self.advisory.reproduction is not None
        return dict(self.advisory.reproduction.conditions_of(self.variant))

    def changed(self, **parts: Any) -> dict[str, Any]:
        """The error with some parts replaced."""
        return {**self.error, **parts}

    def expected_with(self, **versions: str) -> Expectation:
        """What the advisories predict for the cell in the stack with other versions."""
        mine = {name: value for name, value in self.stack.model_dump().items() if value}
        stack = Stack.model_validate({**mine, **versions})
        device = str(self.conditions.get("device", "cpu"))
        return expect(stack, self.advisory, self.variant, OWN.masks, device=device)


def anything_under(conditions: dict[str, Any]) -> Advisory:
    """A failure of no release, met by whoever does what the conditions say."""
    return Advisory.model_validate(
        {
            "id": re.sub(r"[^a-z0-9]+", "-", str(conditions.get("trainer", "any")).lower()),
            "title": "a run of one's own",
            "summary": "",
            "severity": "crash-at-start",
            "cause": "",
            "references": (),
            "symptoms": {},
            "affected": (),
            "reproduction": {"module": "none", "variants": {"seen": conditions}},
        }
    )


def recorded() -> list[Recorded]:
    return [
        Recorded(
            mask=path.stem,
            symptom=entry["symptom"],
            # Not every run had every package: such a stack is given as one with a lock is.
            stack=Stack.model_validate({"lock": "its.lock", **entry["stack"]}),
            advisory=(
                anything_under(entry["conditions"])
                if "conditions" in entry
                else OWN[entry["failure"]]
            ),
            variant=entry.get("variant", "seen"),
            error=entry["error"],
        )
        for path in sorted(FOLDER.glob("*.json"))
        for entry in json.loads(path.read_text(encoding="utf-8"))
    ]


RECORDED = recorded()
each = pytest.mark.parametrize("seen", RECORDED, ids=str)


def who(error: dict[str, Any]) -> list[tuple[str, str]]:
    """Every mask that takes the error for its own, with the symptom."""
    return [(mask.id, name) for mask in OWN.masks if (name := mask.symptom_of(error))]


def test_every_symptom_of_every_mask_was_seen() -> None:
    described = {(mask.id, name) for mask in OWN.masks for name in mask.symptoms}
    assert described == {(seen.mask, seen.symptom) for seen in RECORDED}


def test_every_mask_says_when_it_stops_a_scenario() -> None:
    assert [mask.id for mask in OWN.masks if mask.phase is None] == []


def test_of_two_masks_the_earlier_one_is_expected() -> None:
    """TRL 0.16.1, transformers 4.52.4: a model cannot be made on torch 2.4, a sampler on 2.6."""
    seen = next(seen for seen in RECORDED if seen.mask == "get-train-sampler-dataset-arg")
    assert seen.expected_with(torch="2.4.1").masked_by == "tf452-parallel-styles-torch24"
    assert seen.expected_with(accelerate="1.2.1").masked_by == "get-train-sampler-dataset-arg"


@each
def test_a_recorded_error_is_its_mask_and_no_other(seen: Recorded) -> None:
    assert who(seen.error) == [(seen.mask, seen.symptom)]


@each
def test_no_failure_that_is_reproduced_takes_it_for_its_own(seen: Recorded) -> None:
    meets = [
        f for f in OWN.failures if seen.conditions.get("trainer") in (None, *trainers_of(OWN[f]))
    ]
    assert [f for f in meets if OWN[f].symptom_of(seen.error)] == []


def trainers_of(advisory: Advisory) -> set[object]:
    """Whose errors the cells of a failure can end in."""
    assert advisory.reproduction is not None
    variants = advisory.reproduction.variants
    return {advisory.reproduction.conditions_of(variant).get("trainer") for variant in variants}


@each
def test_the_stack_that_raised_it_is_expected_to(seen: Recorded) -> None:
    expected = seen.expected_with()
    assert (expected.outcome, expected.masked_by) == (Outcome.MASKED, seen.mask)


@each
def test_another_exception_with_the_same_text_is_not_it(seen: Recorded) -> None:
    assert who(seen.changed(exception="NameError")) == []


@each
def test_another_text_from_the_same_place_is_not_it(seen: Recorded) -> None:
    assert who(seen.changed(message="out of memory")) == []


@each
def test_the_same_text_from_another_place_is_not_it(seen: Recorded) -> None:
    assert who(seen.changed(where="datasets/arrow_dataset.py:map")) == []


@pytest.mark.parametrize(
    "seen", [s for s in RECORDED if OWN[s.mask].symptoms[s.symptom].through], ids=str
)
def test_the_same_place_reached_by_another_way_is_not_it(seen: Recorded) -> None:
    elsewhere = {"file": "somebody/script.py", "function": "main", "line": 1}
    assert who(seen.changed(frames=[elsewhere])) == []


@each
def test_a_text_that_resembles_it_is_not_it(seen: Recorded) -> None:
    for message in NEAR.get(seen.mask, ()):
        assert seen.mask not in dict(who(seen.changed(message=message)))


@pytest.mark.parametrize("mask", EDGES)
def test_its_ranges_end_where_they_say(mask: str) -> None:
    ends_where_it_says(next(seen for seen in RECORDED if seen.mask == mask), EDGES[mask])


@pytest.mark.parametrize("of", EDGES_OF_TRAINERS, ids=" of ".join)
def test_its_ranges_end_where_they_say_for_a_trainer(of: tuple[str, str]) -> None:
    first = next(seen for seen in RECORDED if (seen.mask, seen.conditions.get("trainer")) == of)
    ends_where_it_says(first, EDGES_OF_TRAINERS[of])


def ends_where_it_says(seen: Recorded, edges: tuple[tuple[str, ...], tuple[str, ...]]) -> None:
    inside, outside = edges
    for requirement in inside:
        package, _, version = requirement.partition("==")
        assert seen.expected_with(**{package: version}).masked_by == seen.mask, requirement
    for requirement in outside:
        package, _, version = requirement.partition("==")
        assert seen.expected_with(**{package: version}).masked_by != seen.mask, requirement
