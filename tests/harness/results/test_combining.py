"""Results of several machines as one: what is alike, what differs, and what gives way."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.made_results import ELSEWHERE, HERE, cell, document
from tests.harness.written import committed, version_1
from trl_compat import results
from trl_compat.cells.observation import Launch
from trl_compat.cells.outcome import Outcome
from trl_compat.errors import BadInput
from trl_compat.machine.description import Host
from trl_compat.results import CellResult, Combined, Results, Source, combining

OLD, NEW = "2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00"
PASSED = {"outcome": Outcome.PASS, "symptom": None, "agrees": False}


def of_run(
    name: str, *cells: CellResult, host: Host = HERE, lock: str | None = "lock", at: str = OLD
) -> Results:
    """Results of one run of one machine."""
    made = document(*cells)
    run = results.RunResult(
        id=name,
        started_at=at,
        ended_at=at,
        command=f"run {name}",
        profile="default",
        host=host,
        harness_version="0.1",
    )
    stacks = {
        n: s.model_copy(update={"lock_sha256": lock, "packages": {"trl": "1.0"}})
        for n, s in made.stacks.items()
    }
    mine = [c.model_copy(update={"run": name}) for c in cells]
    changes = {
        "runs": [run],
        "cells": mine,
        "stacks": stacks,
        "generated_at": at,
        "command": run.command,
    }
    return made.model_copy(update=changes)


def combined(*documents: Results) -> Combined:
    return results.combine([Source(f"m{n}", one) for n, one in enumerate(documents)])


def seen(outcome: str, seconds: float) -> list[dict[str, object]]:
    return [{"launch": Launch.PRELOADED, "outcome": outcome, "seconds": seconds, "signature": None}]


def test_the_same_verdict_under_the_same_key_is_one_cell_the_newest() -> None:
    one = of_run("one", cell(key="k", seconds=1.0))
    other = of_run("other", cell(key="k", started_at=NEW, seconds=2.0), host=ELSEWHERE)
    found = combined(one, other)
    (kept,) = found.document.cells
    assert (kept.seconds, kept.run, kept.sides) == (2.0, "other", [])
    assert [run.host for run in found.document.runs or ()] == [ELSEWHERE]
    assert (found.conflicts, found.replaced, found.shared) == ((), (), 1)


@pytest.mark.parametrize("key", ["k", ""])
def test_different_verdicts_of_the_same_key_are_a_conflict_that_keeps_both(key: str) -> None:
    one = of_run("one", cell(key=key, attempts=seen("reproduced", 1.0)))
    other = cell(key=key, started_at=NEW, attempts=seen("pass", 2.0), **PASSED)
    found = combined(one, of_run("other", other, host=ELSEWHERE))
    (kept,) = found.document.cells
    assert (kept.outcome, kept.agrees) == (Outcome.UNSTABLE, False)
    assert [side.outcome for side in kept.sides] == ["reproduced", "pass"]
    assert [attempt.outcome for attempt in kept.attempts] == ["reproduced", "pass"]
    assert [run.id for run in found.document.runs or ()] == ["one", "other"]
    assert kept.reason == (
        f"2 results differ: reproduced (text) (observed {OLD} on here, Linux, run one), "
        f"pass (observed {NEW} on elsewhere, Linux, run other)"
    )
    assert found.conflicts == (kept,)
    assert found.document.summary == {"unstable": 1}


def test_the_same_failure_with_another_symptom_or_mask_is_a_conflict() -> None:
    for changes in ({"symptom": "other"}, {"outcome": Outcome.MASKED, "masked_by": "m"}):
        assert combined(of_run("a", cell(key="k")), of_run("b", cell(key="k", **changes))).conflicts


def test_what_was_edited_in_a_copy_is_a_conflict_too() -> None:
    one = of_run("one", cell(key="k"))
    assert combined(one, of_run("one", cell(key="k", **PASSED))).conflicts


def test_a_result_of_a_reproduction_that_changed_gives_way_to_the_newer_one() -> None:
    new = of_run("new", cell(key="k2", started_at=NEW, **PASSED))
    found = combined(new, of_run("old", cell(key="k1")))
    assert [c.outcome for c in found.document.cells] == ["pass"]
    ((old, now, why),) = [(r.old.outcome, r.new.outcome, r.why) for r in found.replaced]
    assert (old, now) == ("reproduced", "pass")
    assert why == "its reproduction or runtime changed"
    assert found.conflicts == ()


def test_other_packages_explain_nothing_away() -> None:
    new = of_run("new", cell(key="k2", started_at=NEW, **PASSED), lock="cuda")
    found = combined(of_run("old", cell(key="k1"), lock="cpu"), new)
    assert len(found.conflicts) == 1
    assert "other packages on another machine" in found.notes[0]
    assert found.document.stacks["s"].lock_sha256 == "cuda"


@pytest.mark.parametrize("outcome", [Outcome.UNAVAILABLE, Outcome.HARNESS_ERROR])
def test_a_cell_that_could_not_be_run_gives_way_to_one_that_was(outcome: Outcome) -> None:
    failed = of_run("failed", cell(outcome=outcome, symptom=None, started_at=NEW))
    found = combined(failed, of_run("ran", cell(key="k")))
    assert [c.outcome for c in found.document.cells] == ["reproduced"]
    assert [r.why for r in found.replaced] == ["could not be run"]
    both = combined(failed, of_run("too", cell(outcome=Outcome.UNAVAILABLE, symptom=None)))
    assert (both.conflicts, both.document.cells[0].outcome) == ((), outcome)


def test_cells_on_gpus_and_on_cpu_ranks_stand_side_by_side() -> None:
    name = cell().id
    on_gpus = cell(id=f"{name}__cuda", backend="nccl", evidence="cuda-nccl × 2", key="g", **PASSED)
    found = combined(of_run("a", cell(key="k")), of_run("b", on_gpus, host=ELSEWHERE))
    assert {c.id: c.outcome for c in found.document.cells} == {
        name: "reproduced",
        f"{name}__cuda": "pass",
    }
    assert found.conflicts == ()


def test_two_stacks_of_one_name_are_refused() -> None:
    other = of_run("b", cell())
    stack = other.stacks["s"].model_copy(update={"trl": "2.0"})
    with pytest.raises(BadInput, match=r"m0 and m1: the stack 's' is not the same .*trl 1\.0 and"):
        combined(of_run("a", cell()), other.model_copy(update={"stacks": {"s": stack}}))


def test_what_was_left_out_is_said_once_and_not_of_what_was_run() -> None:
    place = {"stack": "s", "failure": "f", "model": "m"}
    left = [results.NotRunResult(**place, variant=v, reason="r") for v in ("a", "b")]
    ran = cell(id="x", failure="f", model="m", variant="a")
    one = of_run("one", cell()).model_copy(update={"not_run": left})
    other = of_run("other", ran).model_copy(update={"not_run": left[1:]})
    assert [n.variant for n in combined(one, other).document.not_run] == ["b"]


def test_two_machines_that_wrote_in_the_same_second_without_runs_are_told_apart() -> None:
    old = [
        document(cell(id=name)).model_copy(update={"host": host})
        for name, host in (("a", HERE), ("b", ELSEWHERE))
    ]
    found = combined(*old).document
    assert {c.id: run.host for c in found.cells if (run := found.run_of(c))} == {
        "a": HERE,
        "b": ELSEWHERE,
    }


VERDICTS = st.sampled_from(
    [
        (Outcome.PASS, None),
        (Outcome.REPRODUCED, "text"),
        (Outcome.MASKED, None),
        (Outcome.UNAVAILABLE, None),
    ]
)
CELLS = st.lists(
    st.tuples(
        st.sampled_from("ab"), VERDICTS, st.sampled_from(["k1", "k2", ""]), st.integers(1, 3)
    ),
    max_size=3,
    unique_by=lambda drawn: drawn[0],
)


@given(st.lists(CELLS, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_the_order_does_not_matter_and_doing_it_twice_changes_nothing(
    drawn: list[list[tuple[str, tuple[Outcome, str | None], str, int]]], chance: random.Random
) -> None:
    documents = [
        of_run(
            f"run{number}",
            *(
                cell(id=i, outcome=o, symptom=s, key=k, started_at=f"2026-01-0{day}T00:00:00+00:00")
                for i, (o, s), k, day in cells
            ),
            at=f"2026-02-0{number + 1}T00:00:00+00:00",
        )
        for number, cells in enumerate(drawn)
    ]
    whole = combined(*documents).document
    turned = documents.copy()
    chance.shuffle(turned)
    assert combined(*turned).document == whole
    again = combined(whole, *documents).document
    assert {c.id: (c.outcome, len(c.sides)) for c in again.cells} == {
        c.id: (c.outcome, len(c.sides)) for c in whole.cells
    }
    # Nothing that was seen is lost without a word.
    found = combined(*documents)
    told = {side.verdict for c in found.conflicts for side in map(_side, c.sides)}
    told |= {_side(c).verdict for c in found.document.cells}
    told |= {_side(r.old).verdict for r in found.replaced}
    assert {_side(c).verdict for one in documents for c in one.cells} <= told


def _side(one: CellResult) -> combining._Side:
    return combining._Side(one, None)


def test_the_committed_results_in_parts_are_the_committed_results(tmp_path: Path) -> None:
    whole = committed(tmp_path)
    runs = {run.id for run in whole.runs or ()}
    parts = [
        whole.model_copy(
            update={"cells": list(cells), "runs": [r for r in whole.runs or () if r.id in runs]}
        )
        for cells in (itertools.islice(whole.cells, n, None, 3) for n in range(3))
    ]
    found = combined(*parts)
    assert (found.conflicts, found.replaced, found.shared) == ((), (), 0)
    plain = {c.id: c.model_copy(update={"log": None, "log_line": None}) for c in whole.cells}
    assert {c.id: c for c in found.document.cells} == plain
    assert found.document.stacks == whole.stacks


def test_both_schema_versions_are_combined(tmp_path: Path) -> None:
    one, other = (of_run(n, cell(id=n, key="k")) for n in ("a", "b"))
    old, new = tmp_path / "old.json", tmp_path / "new" / "results.json"
    data = version_1(one)
    for made in data["cells"]:
        del made["key"], made["sides"]  # as they were then
    old.write_text(json.dumps(data))
    results.write(new, other)
    read = [found for path in (old, new) if (found := results.read(path))]
    assert [c.id for c in combined(*read).document.cells] == ["a", "b"]
