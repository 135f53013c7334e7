"""What the cells of a stack ask a node for, which go together, and which are given up."""

from __future__ import annotations

from typing import Any

from trl_compat.cells.expectations import Expectation
from trl_compat.cells.plan import Cell
from trl_compat.machine.host import STACK_MEMORY
from trl_compat.running.engines.batches import (
    MOST_LOSSES,
    Losses,
    Node,
    Progress,
    Request,
    batches,
    control_of,
    request,
)

LARGE, SMALL = Node(8, 0, 2**36), Node(2, 0, 2**34)


def cell(stack: str, failure: str = "f", variant: str = "v", **more: Any) -> Cell:
    given = {"model": "m", "world_size": 2, "device": "cpu", **more}
    return Cell(
        stack=stack,
        failure=failure,
        variant=variant,
        expectation=Expectation(outcome=None),
        **given,
    )


def test_a_cell_asks_for_a_cpu_for_each_rank() -> None:
    asked = request([cell("a"), cell("a", world_size=4)], [LARGE, SMALL])
    assert asked == Request(cpus=4, gpus=0, memory=2 * STACK_MEMORY)
    assert asked.places([LARGE, SMALL, LARGE]) == 4


def test_ranks_share_cpus_where_no_node_has_enough() -> None:
    asked = request([cell("a", world_size=8)], [SMALL])
    assert asked == Request(cpus=2, gpus=0, memory=4 * STACK_MEMORY)


def test_ranks_do_not_share_gpus() -> None:
    wants_four = [cell("a", device="cuda", world_size=4)]
    assert not any(request(wants_four, [LARGE]).fits(node) for node in (LARGE, SMALL))
    two, eight = Node(4, 2, 2**36), Node(64, 8, 2**38)
    asked = request(wants_four, [two, eight])
    assert (asked.gpus, asked.fits(two), asked.at_a_time(eight)) == (4, False, 2)


def test_a_stack_is_one_batch_where_there_are_enough_of_them() -> None:
    cells = [cell("a"), cell("a", "g"), cell("b"), cell("b", "g"), cell("b", "h")]
    assert [[c.stack for c in batch] for batch in batches(cells, 2)] == [["b"] * 3, ["a"] * 2]


def test_a_stack_is_shared_out_where_places_are_free_and_controls_stay_with_their_cells() -> None:
    cells = [
        cell("a", failure, variant, is_control=variant == "control")
        for failure in ("f", "g", "h")
        for variant in ("control", "v", "w")
    ]
    shared = batches(cells, 3)
    assert [{c.failure for c in batch} for batch in shared] == [{"f"}, {"g"}, {"h"}]
    assert len(batches(cells, 50)) == 3
    assert control_of(cells[4], cells) == cells[3]
    assert control_of(cells[3], cells) is None
    assert batches([], 3) == []


def test_the_cell_that_runs_at_every_loss_is_given_up_and_no_other() -> None:
    cells, losses = [cell("a", name) for name in "fgh"], Losses()
    first = Progress(cells)
    first.ended(cells[0].id)
    first.begins(cells[1].id)
    assert losses.after(first) == (cells[1:], None)
    for last in range(2, MOST_LOSSES + 1):
        again = Progress(cells[1:])
        again.begins(cells[1].id)
        left, given_up = losses.after(again)
        gone = last == MOST_LOSSES
        assert (left, given_up) == ((cells[2:], cells[1]) if gone else (cells[1:], None))
    assert losses.after(Progress(cells[2:])) == (cells[2:], None)
