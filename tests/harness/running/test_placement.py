"""Which worker has which GPUs, with a faked list of devices."""

from __future__ import annotations

import pytest

from trl_compat.cells.expectations import Expectation
from trl_compat.cells.outcome import Outcome
from trl_compat.cells.plan import Cell
from trl_compat.errors import BadInput, HarnessError
from trl_compat.machine import gpus
from trl_compat.running import placement


def cells(device: str, *world_sizes: int) -> list[Cell]:
    return [
        Cell(
            stack="s",
            failure="f",
            variant="v",
            model="m",
            world_size=ranks,
            device=device,
            expectation=Expectation(outcome=Outcome.PASS),
        )
        for ranks in world_sizes
    ]


@pytest.fixture(autouse=True)
def four_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(gpus.VISIBLE, "0,1,2,3")
    monkeypatch.delenv(placement.WORKER, raising=False)


def test_workers_have_gpus_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for worker in ("gw0", "gw1"):
        monkeypatch.setenv(placement.WORKER, worker)
        found.append(placement.gpu_share(cells("cuda", 2, 2)))
    assert found == [("0", "1"), ("2", "3")]


def test_a_worker_that_replaces_one_that_died_has_gpus_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(placement.WORKER, "gw2")
    assert placement.gpu_share(cells("cuda", 2)) == ("0", "1")


def test_the_largest_cell_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    assert placement.gpu_share(cells("cuda", 2, 4)) == ("0", "1", "2", "3")
    assert placement.workers(cells("cuda", 2, 4), 8) == 1


@pytest.mark.parametrize(
    ("device", "jobs", "expected"), [("cuda", 8, 2), ("cuda", 1, 1), ("cuda-shared", 8, 4)]
)
def test_no_more_workers_than_sets_of_gpus(device: str, jobs: int, expected: int) -> None:
    assert placement.workers(cells(device, 2), jobs) == expected


def test_on_cpu_ranks_there_are_as_many_as_are_wanted_and_no_gpus() -> None:
    assert placement.workers(cells("cpu", 8), 16) == 16
    assert placement.gpu_share(cells("cpu", 2)) == ()


def test_cells_with_more_ranks_than_gpus_are_refused_before_anything_runs() -> None:
    with pytest.raises(BadInput, match="cells of 8 ranks are selected, which need 8 GPUs, and 4"):
        placement.workers(cells("cuda", 2, 8), 1)


def test_gpus_that_went_away_are_no_cpu_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(gpus.VISIBLE, "")
    with pytest.raises(HarnessError, match="no GPUs are left"):
        placement.gpu_share(cells("cuda", 2))
