"""Ranks that misbehave, in a real stack: each gets its outcome, and nothing of it stays alive."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from tests.harness.conftest import ROOT
from tests.harness.ranks import AMPLE, LIMITS, READABLE, judge, living, observe, outcome
from trl_compat.cells.observation import Launch, Stop
from trl_compat.cells.outcome import Outcome
from trl_compat.running.execution.runner import StackRunner
from trl_compat.runtime import confine
from trl_compat.stacks import matrix
from trl_compat.stacks.environments import build

pytestmark = pytest.mark.matrix


@pytest.fixture(scope="module")
def runner() -> Iterator[StackRunner]:
    table = matrix.load(ROOT / "matrix.yaml")
    environment = build.ensure("trl-1.16.0", table.stacks["trl-1.16.0"])
    confine.adopt_orphans()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_TOKEN", "hf_planted")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "planted")
        with StackRunner(environment, readable=READABLE) as running:
            yield running


FAKES_AND_WHAT_THEY_ARE = [
    ("passes", Outcome.PASS, ""),
    ("loads_a_model", Outcome.PASS, ""),
    ("vacuous", Outcome.VACUOUS, "no rank registered an assertion"),
    ("hangs_in_a_collective", Outcome.HANG, "rank 1 diverged first"),
    ("hangs_in_c_holding_the_gil", Outcome.HANG, "rank 1 diverged first"),
    ("hangs_at_work", Outcome.HANG, "it exceeded its time limit"),
    ("ranks_call_different_collectives", Outcome.HANG, "the ranks diverged"),
    ("exits_early", Outcome.CRASH, "rank 1 exited without a record"),
    ("killed_by_a_signal", Outcome.CRASH, "rank 1 was killed by signal 9 (SIGKILL)"),
    ("forks_a_child_and_dies", Outcome.CRASH, "rank 1 was killed by signal 9 (SIGKILL)"),
    ("allocates_until_killed", Outcome.CRASH, "out of memory: its processes used"),
    ("raises_for_memory", Outcome.CRASH, "out of memory"),
    ("fills_the_disk", Outcome.HARNESS_ERROR, "the disk is full"),
    ("fails_in_teardown", Outcome.CRASH, "in teardown, after every scenario had finished: rank 1"),
    ("hangs_in_teardown", Outcome.HANG, "in teardown, after every scenario had ended"),
    ("leaves_an_unreadable_record", Outcome.HARNESS_ERROR, "the record of rank 1 cannot be read"),
    ("leaves_a_child", Outcome.PASS, ""),
    ("cannot_destroy_its_group", Outcome.PASS, ""),
    ("floods_its_log", Outcome.PASS, ""),
    ("raises_on_rank_1", Outcome.OTHER_FAILURE, ""),
    ("two_ranks_differ", Outcome.OTHER_FAILURE, "LookupError: first"),
    ("swallows_a_failed_check", Outcome.OTHER_FAILURE, "PostConditionFailed: it was lost"),
    ("swallows_a_failed_precondition", Outcome.MASKED, "precondition failed: engine: there is"),
    ("swallows_a_failed_check_and_raises", Outcome.OTHER_FAILURE, "PostConditionFailed: it was"),
    ("swallows_a_failed_check_and_hangs", Outcome.OTHER_FAILURE, "it was lost; then it made no"),
    ("fails_a_check_in_a_thread", Outcome.OTHER_FAILURE, "PostConditionFailed: it was lost"),
    ("fails_a_check_in_a_child", Outcome.OTHER_FAILURE, "PostConditionFailed: it was lost"),
    ("is_not_applicable_after_a_failed_check", Outcome.OTHER_FAILURE, "it was lost"),
    ("raises_what_cannot_be_told", Outcome.OTHER_FAILURE, "Odd: <no text of this Odd can be made"),
    ("never_ends_its_text", Outcome.OTHER_FAILURE, "Endless: <no text of this Endless can be"),
    ("leaves_a_record_of_another_shape", Outcome.HARNESS_ERROR, "checks.0.name: Input should be"),
    ("cannot_write_its_record", Outcome.HARNESS_ERROR, "rank 1 could not write its record"),
    ("quotes_a_full_disk", Outcome.OTHER_FAILURE, "ValueError: the manual says"),
    ("leaves_links_and_pipes", Outcome.HARNESS_ERROR, "rank1.json cannot be read"),
]


@pytest.mark.parametrize(
    ("fake", "expected", "reason"), FAKES_AND_WHAT_THEY_ARE, ids=lambda v: str(v)[:40]
)
def test_each_fake_gets_its_outcome_and_leaves_nothing(
    runner: StackRunner, fake: str, expected: Outcome, reason: str
) -> None:
    observe(runner, "passes")  # so that the parent with the imports is there
    before = living(runner)
    begun = time.monotonic()
    seen = observe(runner, fake)
    took = time.monotonic() - begun
    verdict = judge(seen)
    print(f"{fake}: {verdict.outcome} in {took:.1f} s; {verdict.reason}")
    assert verdict.outcome is expected, verdict.reason
    assert reason in verdict.reason
    assert living(runner) == before
    assert took < LIMITS.get(fake, AMPLE).seconds + 10
    assert outcome(observe(runner, "passes")) is Outcome.PASS  # the cell after it runs


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        ("import threading; threading.Timer(99, print).start()", "its imports start threads"),
        ("raise SystemExit('not today')", "its imports did not finish: not today"),
    ],
)
def test_a_stack_that_cannot_be_forked_is_run_by_torchrun_which_is_said(
    runner: StackRunner, first: str, reason: str
) -> None:
    with StackRunner(runner.environment, readable=READABLE) as another:
        script = another._bundle / "preload_main.py"
        script.write_text(f"{first}\n{script.read_text()}")
        seen = observe(another, "passes")
        assert (seen.launch, outcome(seen)) == (Launch.TORCHRUN, Outcome.PASS)
        assert seen.not_preloaded.startswith(reason)
        assert observe(another, "passes").not_preloaded == seen.not_preloaded


def test_a_hang_shows_where_every_rank_was(runner: StackRunner) -> None:
    seen = observe(runner, "hangs_in_a_collective")
    assert seen.stopped is Stop.IDLE
    assert {rank: state.waits_in for rank, state in seen.hanging.items()} == {0: "barrier", 1: None}
    assert all("in scenario" in state.stack for state in seen.hanging.values())
    assert seen.hanging[0].place == "harness/fakes/hangs_in_a_collective.py:scenario"


def test_collectives_are_counted_so_that_the_rank_that_skipped_one_is_known(
    runner: StackRunner,
) -> None:
    seen = observe(runner, "hangs_in_a_collective")
    assert {rank: state.started for rank, state in seen.hanging.items()} == {0: 1, 1: 0}


def test_a_rank_that_holds_the_lock_shows_its_stack_all_the_same(runner: StackRunner) -> None:
    seen = observe(runner, "hangs_in_c_holding_the_gil")
    assert seen.hanging[1].started is None
    assert "in scenario" in seen.hanging[1].stack


def test_a_flood_is_cut_to_its_end(runner: StackRunner) -> None:
    seen = observe(runner, "floods_its_log")
    assert len(seen.output) < 100_000
    assert "the last words" in seen.output


def test_a_child_that_was_left_is_counted(runner: StackRunner) -> None:
    assert observe(runner, "leaves_a_child").leftovers == 2


def test_the_signal_of_a_killed_rank_is_known(runner: StackRunner) -> None:
    assert observe(runner, "killed_by_a_signal").rank_exits[1] == -9


def test_the_first_rank_to_fail_counts(runner: StackRunner) -> None:
    seen = observe(runner, "two_ranks_differ")
    error = seen.ranks[1].error
    assert error is not None
    assert error.message == "first"


def test_plain_torchrun_observes_the_same(runner: StackRunner) -> None:
    for fake in ("passes", "vacuous", "killed_by_a_signal", "raises_on_rank_1"):
        seen = observe(runner, fake, Launch.TORCHRUN)
        assert seen.launch is Launch.TORCHRUN
        assert outcome(seen) is outcome(observe(runner, fake))


def test_eight_ranks(runner: StackRunner) -> None:
    assert outcome(observe(runner, "passes", world_size=8)) is Outcome.PASS


def test_nothing_of_the_harness_or_the_user_is_in_a_cell(runner: StackRunner) -> None:
    seen = observe(runner, "sees_its_environment").ranks[0].observations
    assert seen["harness"] == []
    assert not {"HF_TOKEN", "AWS_SECRET_ACCESS_KEY"} & set(seen["variables"])
    assert "planted" not in seen["values"]
    assert seen["home"] != os.path.expanduser("~")
    assert not any(str(ROOT) in place for place in seen["path"])
