"""Stacks drawn at random are ones that users could have had."""

from __future__ import annotations

import datetime

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tests.harness.conftest import ROOT
from trl_compat.errors import BadInput
from trl_compat.files import project
from trl_compat.packages import PACKAGES
from trl_compat.running import bench, drawn_stacks
from trl_compat.shipped import releases, requires
from trl_compat.stacks import matrix

HELD = tuple(map(Version, ("2.4.1", "2.8.0", "2.13.0")))


def test_the_same_seed_draws_the_same_stacks() -> None:
    assert drawn_stacks.draw(5, 3, HELD) == drawn_stacks.draw(5, 3, HELD)
    assert set(drawn_stacks.draw(5, 3, HELD)) != set(drawn_stacks.draw(5, 4, HELD))


def test_a_drawn_stack_is_of_one_day_and_fits_its_own_requirements() -> None:
    known, wanted = releases.known(), requires.known()
    stacks = drawn_stacks.draw(40, 0, HELD)
    assert len({stack.trl for stack in stacks.values()}) > 20
    for name, stack in stacks.items():
        assert Version(stack.torch) in HELD
        for package in PACKAGES:
            version = getattr(stack, package)
            assert known.dates[package][version] <= stack.as_of.isoformat(), name
            for other, range_ in wanted.get(package, {}).get(version, {}).items():
                assert SpecifierSet(range_).contains(getattr(stack, other), prereleases=True), name


def test_torch_is_the_newest_build_of_its_day_that_is_held() -> None:
    for stack in drawn_stacks.draw(20, 1, HELD).values():
        dates = releases.known().dates["torch"]
        later = [v for v in HELD if v > Version(stack.torch)]
        assert all(datetime.date.fromisoformat(dates[str(v)]) > stack.as_of for v in later)


@pytest.mark.parametrize(
    ("count", "torches", "said"), [(1, (), "holds no build of torch"), (10**5, HELD, "only ")]
)
def test_what_cannot_be_drawn_is_refused(
    count: int, torches: tuple[Version, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawn_stacks, "ATTEMPTS", 1 if count > 1 else 200)
    monkeypatch.setattr(drawn_stacks, "_drawn", lambda chance, torches: None)
    with pytest.raises(BadInput, match=said):
        drawn_stacks.draw(count, 0, torches)


def test_every_drawn_stack_has_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawn_stacks, "held_torches", lambda: list(HELD))
    table = bench.drawn(matrix.load(ROOT / "matrix.yaml"), 4, 0)
    cells = bench.cells_of(table, project.at(ROOT), bench.DRAWN, None)
    assert {cell.stack for cell in cells} == set(table.stacks)
    assert {cell.model for cell in cells} == {"tiny-qwen2"}


@pytest.mark.parametrize("count", [1, 3, 10, 11, None])
def test_torchrun_has_a_sample_at_equal_distances(
    count: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawn_stacks, "held_torches", lambda: list(HELD))
    table = bench.drawn(matrix.load(ROOT / "matrix.yaml"), 10, 0)
    cells = bench.cells_of(table, project.at(ROOT), bench.DRAWN, None)
    sample = bench.sampled(cells, count)
    assert len(sample) == (count or len(cells))
    if count == 10:  # a stack has about a tenth of the cells
        assert len({cell.stack for cell in sample}) >= 8
