"""What a node gets is what the command has: the same cells, lock and content keys; no more."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.harness.observations import observed, record
from tests.harness.recorded_runs import LOCK
from trl_compat import advisories
from trl_compat.cells.plan import Cell, Selection, plan
from trl_compat.errors import BadInput
from trl_compat.files import project
from trl_compat.running.campaign import Campaign, RunSpec
from trl_compat.running.engines import node, parcel
from trl_compat.running.execution.watch import Limits
from trl_compat.running.store import CellRecord
from trl_compat.stacks import matrix as tables
from trl_compat.stacks.held import needs


@pytest.fixture
def order(where: project.Project) -> RunSpec:
    table = tables.load(where.matrix_file)
    catalogue = advisories.load(where.advisories, where.reproductions)
    return RunSpec(
        root=where.root,
        matrix_file=where.matrix_file,
        reports=where.reports,
        state=where.state,
        models={"tiny-qwen2": "digest"},
        matrix=table,
        catalogue=catalogue,
        cells=plan(table, catalogue, Selection(stacks=("old",), fixes=("none",))).cells,
        limits=Limits(seconds=70),
    )


def sent(order: RunSpec, folder: Path, **changes: Any) -> Path:
    folder.mkdir()
    kept = CellRecord(key="k", cell_id="a", surroundings=LOCK, observations=(observed(record()),))
    task = parcel.Task(
        code=parcel.code_digest(), cells=order.cells, lock="a lock", records=[kept], jobs=2
    )
    task = task.model_copy(update=changes)
    (folder / parcel.TASK).write_text(task.model_dump_json(by_alias=True))
    (folder / parcel.ORDER).write_text(parcel.order_text(order, order.cells))
    (folder / parcel.FILES).write_bytes(parcel.files_of(order.project))
    return folder


def test_a_cell_has_the_same_content_key_on_a_node(order: RunSpec, tmp_path: Path) -> None:
    there = parcel.unpack(sent(order, tmp_path / "node"))
    assert there.order.cells == order.cells
    assert there.order.limits == order.limits
    for one in order.cells:
        assert Campaign(there.order).key(one, "lock") == Campaign(order).key(one, "lock")


def test_a_node_has_the_lock_and_the_stacks_that_it_needs(order: RunSpec, tmp_path: Path) -> None:
    there = parcel.unpack(sent(order, tmp_path / "node"))
    assert list(there.order.matrix.stacks) == ["old"]
    lock = there.order.matrix.stacks["old"].lock
    assert lock is not None
    assert lock.read_text() == "a lock"


def test_a_node_with_another_package_is_refused(order: RunSpec, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="its trl-compat is not the one of this command"):
        node.run(sent(order, tmp_path / "node", code="other"), node.Voice(io.StringIO()))


def test_a_node_says_each_record_as_soon_as_it_is_kept(
    order: RunSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def runs(campaign: Campaign, cell: Cell) -> None:
        known = campaign.store.read("a")
        assert known is not None
        campaign.store.write(known.model_copy(update={"cell_id": cell.id}))

    closed: list[Campaign] = []
    monkeypatch.setattr(Campaign, "run", runs)
    monkeypatch.setattr(Campaign, "close", lambda campaign: closed.append(campaign))
    monkeypatch.setattr(needs, "check", lambda stacks: "")
    said = io.StringIO()
    node.run(sent(order, tmp_path / "node"), node.Voice(said))
    told = [json.loads(line) for line in said.getvalue().splitlines()]
    assert [next(iter(one)) for one in told] == ["host", "begins", "record", "begins", "record"]
    assert [one["record"]["cell_id"] for one in told[2::2]] == [one.id for one in order.cells]
    assert len(closed) == 1
