"""A hang is read from what the ranks said: where each was, and which left the others."""

from __future__ import annotations

from trl_compat.cells import hangs
from trl_compat.cells.rank_records import Collectives, Group

SCENARIO = '  File "/x/site-packages/trl/trainer/a.py", line 3 in train\n'
BARRIER = (
    '  File "/x/site-packages/torch/distributed/distributed_c10d.py", line 9 in barrier\n'
    '  File "/x/site-packages/torch/distributed/c10d_logger.py", line 2 in wrapper\n'
)


def asked(*stacks: str, started: tuple[int, ...] = ()) -> dict[int, hangs.RankState]:
    answers = {
        rank: Collectives(groups=(Group(ranks=(0, 1), started=count),))
        for rank, count in enumerate(started)
    }
    texts = {
        rank: f"Thread 0x1 (first):\n{text}" if text else "" for rank, text in enumerate(stacks)
    }
    return hangs.states(texts, answers)


def test_a_rank_waits_in_the_collective_that_it_called() -> None:
    state = asked(BARRIER + SCENARIO)[0]
    assert (state.waits_in, state.place) == ("barrier", "trl/trainer/a.py:train")


def test_who_started_fewer_collectives_diverged_first() -> None:
    ranks = asked(BARRIER + SCENARIO, BARRIER + SCENARIO, started=(7, 6))
    assert hangs.diverged_first(ranks, {}) == 1


def test_who_is_not_where_the_others_wait_diverged_first() -> None:
    ranks = asked(BARRIER + SCENARIO, SCENARIO, BARRIER + SCENARIO, started=(7, 7, 7))
    assert hangs.diverged_first(ranks, {}) == 1


def test_who_is_gone_diverged_first() -> None:
    assert hangs.diverged_first(asked(BARRIER + SCENARIO), {1: "had finished"}) == 1


def test_nobody_is_blamed_where_all_are_at_one_place() -> None:
    ranks = asked(BARRIER + SCENARIO, BARRIER + SCENARIO, started=(7, 7))
    assert hangs.diverged_first(ranks, {}) is None
    assert hangs.explain(ranks, {}).endswith("all ranks are at the same place")


def test_a_rank_that_said_nothing_is_said_not_to_have_answered() -> None:
    told = hangs.explain(asked(BARRIER + SCENARIO, ""), {})
    assert "rank 1 did not respond" in told
    assert "unknown" not in told
