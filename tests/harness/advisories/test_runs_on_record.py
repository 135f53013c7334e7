"""Doctor says of every run on record what came of it: the edges of records, trainer by trainer.

``runs_on_record.json`` holds runs of trainers for which no reproduction exists, or on releases that
the matrix does not have: the tiny model, one step on one or two CPU ranks, in an environment with
just these packages.  Each block has the packages, the conditions, how far the runs went, who got
there and who did not, with what was raised.  Both sides of every edge are in it: a record that is
narrower than what was seen fails here, and so does one that is wider.
"""

from __future__ import annotations

import functools
import json
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.harness.conftest import HARNESS, ROOT
from tests.harness.lock_texts import WRITERS
from trl_compat import advisories
from trl_compat.advisories import Phase
from trl_compat.conditions import Value
from trl_compat.matching.applies import matches
from trl_compat.shipped import records
from trl_compat.stacks import sources
from trl_compat.usage.conditions import UsageBuilder

OWN = advisories.load(ROOT / "advisories", ROOT / "tests" / "reproductions")
SHIPPED = records.shipped()
BLOCKS = json.loads((HARNESS / "runs_on_record.json").read_text(encoding="utf-8"))
# How far a run went, and the last moment at which a failure would have stopped it.
REACHED = {"imported": Phase.IMPORT, "made": Phase.TRAINER, "trained": Phase.LOG}


@dataclass(frozen=True)
class Run:
    """One run.

    Attributes:
        error: what it ended in; None if it got where it should.
    """

    trainer: str
    reached: str
    packages: dict[str, str]
    conditions: dict[str, Any]
    error: dict[str, str] | None

    def __str__(self) -> str:
        versions = "-".join(f"{p}-{v}" for p, v in self.packages.items() if p in SHOWN)
        how = "-".join(str(value) for value in self.conditions.values())
        return f"{self.trainer}-{how}-{versions}".replace(" ", "-")


SHOWN = ("trl", "transformers", "accelerate", "deepspeed", "torch")


def runs() -> list[Run]:
    found = []
    for block in BLOCKS:
        of_all = (block["reached"], block["packages"], block["conditions"])
        found += [Run(trainer, *of_all, error=None) for trainer in block["passed"]]
        for error in block["failed"]:
            seen = {part: error[part] for part in ("exception", "message", "where")}
            found += [Run(trainer, *of_all, error=seen) for trainer in error["trainers"]]
    return found


RUNS = runs()


@functools.cache
def source(requirements: str) -> sources.Source:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "requirements.txt")
        path.write_text(requirements, encoding="utf-8")
        return sources.read(path)


def applying(run: Run) -> dict[str, bool]:
    """The records that apply or may, and whether nothing is left open."""
    have = source(WRITERS["requirements.txt"](run.packages))
    said = UsageBuilder()
    for name, value in {"trainer": run.trainer, **run.conditions}.items():
        said.say(name, (value,), "a run")
    found = {i: matches(r, have, said.values) for i, r in SHIPPED.items()}
    open_ = {i: [m for m in of if m.hidden_by is None] for i, of in found.items()}
    return {i: any(m.certain for m in of) for i, of in open_.items() if of}


def known_as(error: dict[str, str]) -> set[str]:
    """The records that have such a symptom; frames are not on record here."""
    return {
        record.id
        for record in OWN.records.values()
        for symptom in record.symptoms.values()
        if symptom.matches({**error, "frames": []})
        or (
            symptom.through
            and symptom.model_copy(update={"through": None}).matches({**error, "frames": []})
        )
    }


@pytest.mark.parametrize("run", [run for run in RUNS if run.error], ids=str)
def test_doctor_names_what_was_met(run: Run) -> None:
    assert run.error is not None
    known = known_as(run.error)
    assert not known or known & applying(run).keys(), run.error


@pytest.mark.parametrize("run", [run for run in RUNS if not run.error], ids=str)
def test_doctor_claims_nothing_where_all_went_well(run: Run) -> None:
    in_the_way = {
        mask.id
        for mask in OWN.masks
        if mask.phase and list(Phase).index(mask.phase) <= list(Phase).index(REACHED[run.reached])
    }
    certain = {record for record, nothing_open in applying(run).items() if nothing_open}
    assert certain & in_the_way == set()


# What came in place of what a record is about, and is on no record yet.
UNKNOWN = (
    r"training_step\(\) takes 3 positional arguments but 4 were given$",  # TRL up to 0.11.4
    r"^type object 'GeometricMixtureWrapper' has no attribute '_is_stateful'$",
    r"^'\w+' object has no attribute 'use_apex'$",
)


def test_what_is_on_no_record_is_what_is_thought_to_be() -> None:
    texts = {run.error["message"] for run in RUNS if run.error and not known_as(run.error)}
    assert {text for text in texts if not any(re.search(u, text) for u in UNKNOWN)} == set()
    assert [u for u in UNKNOWN if not any(re.search(u, text) for text in texts)] == []


def test_grpo_that_hands_over_the_bare_model_has_no_hooks_to_put_back() -> None:
    """It may not even be said to depend on something: the trainer's own block never comes there."""
    (run,) = [
        run
        for run in RUNS
        if (run.trainer, run.packages["trl"], run.packages.get("deepspeed"))
        == ("GRPO", "0.15.2", "0.16.4")
    ]
    assert run.error is None
    assert "zero3-register-hooks-rename" not in applying(run)


@pytest.mark.parametrize(
    ("trl", "sure"), [("0.10.1", False), ("0.11.4", False), ("0.12.2", True), ("1.12.0", True)]
)
def test_up_to_trl_011_ppo_is_the_name_of_two_classes(trl: str, sure: bool) -> None:
    """PPOTrainer of that time does not raise when it saves; whoever says PPO is told of which."""
    packages = {"trl": trl, "transformers": "4.46.3", "torch": "2.4.1", "deepspeed": "0.15.2"}
    named: dict[str, tuple[Value, ...]] = {
        "trainer": ("PPO",),
        "strategy": ("deepspeed",),
        "zero_stage": (3,),
    }
    have = source(WRITERS["requirements.txt"](packages))
    found = matches(SHIPPED["ppo-zero3-save"], have, named)
    assert found
    assert [match.certain for match in found] == [sure] * len(found)
    assert all(("PPOv2Trainer" in match.block.also_requires) is not sure for match in found)
