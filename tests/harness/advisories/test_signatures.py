"""Every symptom knows its own failure when it sees it, and nothing else.

``observed/<failure>.json`` holds, for each symptom, an error that a cell really raised (see
``tests.harness.observe``).  The symptom must match it, alone of its advisory; with any part of the
error changed it must not.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from tests.harness import observe
from tests.harness.conftest import ROOT
from trl_compat import advisories
from trl_compat.advisories import Symptom

CATALOGUE = advisories.load(ROOT / "advisories", ROOT / "tests" / "reproductions")
# Symptoms that no error is on record for, and why.  Those of masks have tests of their own.
NOT_OBSERVED: dict[tuple[str, str], str] = {}
ELSEWHERE: dict[str, dict[str, Any]] = {
    "exception": {"exception": "KeyboardInterrupt"},
    "message": {"message": "something else altogether"},
    "where": {"where": "elsewhere/module.py:function"},
    "through": {"frames": [{"file": "elsewhere/module.py", "function": "function"}]},
}


@dataclass(frozen=True)
class Observed:
    """A recorded error, the symptom that it is, and the parts by which it is known."""

    failure: str
    symptom: str
    parts: tuple[str, ...]
    error: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.failure}-{self.symptom}"

    @property
    def described(self) -> Symptom:
        return CATALOGUE[self.failure].symptoms[self.symptom]


def read() -> list[Observed]:
    return [
        Observed(path.stem, entry["symptom"], tuple(entry["parts"]), entry["error"])
        for path in sorted(observe.FOLDER.glob("*.json"))
        for entry in json.loads(path.read_text(encoding="utf-8"))
    ]


OBSERVED = read()
each = pytest.mark.parametrize("seen", OBSERVED, ids=str)


def test_every_symptom_was_seen_or_says_why_not() -> None:
    described = {(f, name) for f in CATALOGUE.failures for name in CATALOGUE[f].symptoms}
    assert described == {(seen.failure, seen.symptom) for seen in OBSERVED} | set(NOT_OBSERVED)


@each
def test_a_recorded_error_is_its_symptom_and_no_other(seen: Observed) -> None:
    symptoms = CATALOGUE[seen.failure].symptoms
    assert [name for name, s in symptoms.items() if s.matches(seen.error)] == [seen.symptom]


@each
def test_no_other_advisory_takes_it_for_its_own(seen: Observed) -> None:
    others = (record for i, record in CATALOGUE.records.items() if i != seen.failure)
    assert [record.id for record in others if record.symptom_of(seen.error)] == []


@each
def test_an_error_that_differs_in_one_part_is_not_it(seen: Observed) -> None:
    for part in seen.parts:
        assert not seen.described.matches({**seen.error, **ELSEWHERE[part]}), part


@each
def test_the_parts_by_which_it_is_known_are_those_on_record(seen: Observed) -> None:
    assert observe.parts(seen.described) == list(seen.parts)


# Masks that are known by their place, whichever way leads there; all others by their way, too.
BY_PLACE_ALONE = {
    ("ds-cpu-needs-ipex", "no-extension"),
    ("ds-elastic-agent-import-torch24", "direct"),
    ("ds-elastic-agent-import-torch24", "direct-log"),
    ("ds-elastic-agent-import-torch24", "lazy"),
    ("fsdp2-tied-embeddings-torch213", "in-two-groups"),
    ("odpo-maybe-log-learning-rate", "learning-rate"),
    ("odpo-maybe-log-learning-rate", "start-time"),
    ("peft-boft-setuptools", "of-transformers"),
    ("peft-boft-setuptools", "of-trl"),
    ("peft-encoderdecodercache-old-tf", "direct"),
    ("peft-encoderdecodercache-old-tf", "lazy"),
    ("peft-encoderdecodercache-old-tf", "lazy-trl"),
    ("peft-hybridcache-tf5", "direct"),
    ("peft-hybridcache-tf5", "lazy"),
    ("ppo-exportablestate-old-tf", "no-state"),
    ("tf452-parallel-styles-torch24", "no-styles"),
    ("trl-fsdpmodule-torch25", "direct"),
    ("trl-fsdpmodule-torch25", "lazy"),
    ("trl-optional-deps-truthy-tf53", "joblib-not-there"),
    ("trl-optional-deps-truthy-tf53", "not-there"),
    ("trl-optional-deps-truthy-tf53", "requests-not-there"),
    ("trl-requests-undeclared", "direct"),
    ("trl-requests-undeclared", "lazy"),
    ("trl-triton-setuptools-torch26", "lazy"),
    ("trl-vision2seq-names-tf5", "no-such-name"),
    ("trl-warnings-issued-tf51", "not-there"),
    ("unwrap-model-keep-torch-compile", "training"),
    ("zero-no-sync-grad-accum", "no-sync"),
    ("zero-no-sync-grad-accum", "step-inside"),
    ("zero3-register-hooks-rename", "renamed"),
}


def test_no_mask_loses_the_way_by_which_it_is_known() -> None:
    found = {
        (mask.id, name)
        for mask in CATALOGUE.masks
        for name, symptom in mask.symptoms.items()
        if symptom.through is None
    }
    assert found == BY_PLACE_ALONE
