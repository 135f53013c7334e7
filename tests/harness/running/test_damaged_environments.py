"""Nothing is believed of what was observed in a damaged environment, and the run goes on."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness import made_environment
from tests.harness.made_environment import LOCK, replace, site
from tests.harness.observations import RAISED, observed, record
from trl_compat import advisories
from trl_compat.cells.observation import Launch, Observation
from trl_compat.cells.outcome import Outcome
from trl_compat.cells.plan import Cell, Selection, plan
from trl_compat.errors import BadInput, HarnessError
from trl_compat.files import project
from trl_compat.running import campaign as campaigns
from trl_compat.running.campaign import Campaign, RunSpec
from trl_compat.running.execution.watch import Limits
from trl_compat.stacks import matrix
from trl_compat.stacks.environments import Unavailable, build, damage, interpreters, locks
from trl_compat.stacks.environments.build import Environment

Harm = Callable[[Path], None]
GONE = record("not-applicable", error={**RAISED["error"], "message": "TRL has no PPO trainer yet"})


def without_trl(folder: Path) -> None:
    shutil.rmtree(site(folder) / "trl-1.12.0.dist-info")


def without_a_module(folder: Path) -> None:
    (site(folder) / "trl" / "trainer.py").unlink()


def with_another_module(folder: Path) -> None:
    replace(site(folder) / "six.py", "moves = 2\n")


class Runner:
    """In place of what runs cells: gives what is planned, and harms the environment meanwhile."""

    planned: dict[str, tuple[Observation, Harm | None]]
    started: list[Runner]

    def __init__(self, environment: Environment, **_: object) -> None:
        self.environment, self.closed = environment, False
        self.started.append(self)

    def folder(self, name: str) -> Path:
        return Path("/nowhere") / name

    def run(self, spec: Any, *, limits: Limits, launch: Launch) -> Observation:
        seen, harm = self.planned.get(f"{spec.variant} {launch}", self.planned[spec.variant])
        if harm is not None:
            harm(self.environment.folder)
        return seen.model_copy(update={"launch": launch})

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def order(project_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunSpec]:
    advisory = project_folder / "advisories" / "saving.yaml"
    advisory.write_text(advisory.read_text().replace("[zero3]\n", "[zero2, zero3]\n"))
    monkeypatch.setenv("TRL_COMPAT_CACHE", str(project_folder / "cache"))
    monkeypatch.setattr(interpreters, "find", lambda _: interpreters.own())
    monkeypatch.setattr(locks, "resolve", lambda *_: LOCK)
    monkeypatch.setattr(locks, "kept", lambda *_: LOCK.sha256)
    monkeypatch.setattr(build, "make", lambda folder, *_: made_environment.make(folder))
    monkeypatch.setattr(campaigns, "StackRunner", Runner)
    good, bad = (observed(record(), record()), None), (observed(RAISED, RAISED), None)
    monkeypatch.setattr(
        Runner, "planned", {"ddp": good, "zero2": good, "zero3": bad}, raising=False
    )
    monkeypatch.setattr(Runner, "started", [], raising=False)
    where = project.at(project_folder)
    yield RunSpec(
        root=where.root,
        matrix_file=where.matrix_file,
        reports=where.reports,
        state=where.state,
        matrix=matrix.load(where.matrix_file),
        catalogue=advisories.load(where.advisories, where.reproductions),
        models={"tiny-qwen2": "digest"},
        cells=plan(
            matrix.load(where.matrix_file),
            advisories.load(where.advisories, where.reproductions),
            Selection(stacks=("old",), fixes=("none",)),
        ).cells,
        limits=Limits(),
    )
    for runner in Runner.started:
        build.put_aside(runner.environment.folder)


def outcomes(campaign: Campaign, cells: list[Cell]) -> dict[str, str]:
    """What is on disk of each cell, by variant."""
    found = {}
    for cell in cells:
        kept = campaign.store.read(cell.id)
        assert kept is not None
        found[cell.variant] = str(campaign.verdict(cell, kept).outcome)
    return found


def run(order: RunSpec, **planned: tuple[Observation, Harm | None]) -> Campaign:
    Runner.planned.update(planned)
    campaign = Campaign(order)
    for cell in order.cells:
        campaign.run(cell)
    campaign.close()
    return campaign


def test_a_sound_run_is_believed(order: RunSpec) -> None:
    campaign = run(order)
    assert [cell.variant for cell in order.cells] == ["ddp", "zero2", "zero3"]
    assert outcomes(campaign, order.cells) == {
        "ddp": "pass",
        "zero2": "pass",
        "zero3": "reproduced",
    }
    assert all(campaign.known(cell) for cell in order.cells)


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (without_trl, "trl 1.12.0: its dist-info is missing"),
        (shutil.rmtree, "it is missing"),
        (lambda f: made_environment.add(f, "pip", "24.0", {}), "pip 24.0 was added"),
        (lambda f: shutil.rmtree(f / "bin"), "its interpreter is missing"),
    ],
)
def test_what_was_seen_as_expected_in_another_environment_is_not_believed(
    order: RunSpec, harm: Harm, said: str
) -> None:
    campaign = run(order, zero2=(observed(record(), record()), harm))
    assert outcomes(campaign, order.cells) == {
        "ddp": "harness-error",  # nobody has looked at the files since
        "zero2": "harness-error",
        "zero3": "masked",  # in the environment that was made again, its control is to run again
    }
    kept = campaign.store.read(order.cells[1].id)
    assert kept is not None
    assert kept.observations[0].not_started == (
        Outcome.HARNESS_ERROR,
        f"the environment of old was damaged while its cells ran ({said}); run the same command "
        "again to rebuild it",
    )
    assert [campaign.known(cell) is None for cell in order.cells] == [True, True, False]
    assert [runner.closed for runner in Runner.started] == [True, True]
    Runner.planned["zero2"] = Runner.planned["ddp"]
    for cell in order.cells[:2]:
        Campaign(order).run(cell)
    assert outcomes(campaign, order.cells)["zero3"] == "reproduced"


@pytest.mark.parametrize("harm", [without_trl, without_a_module, with_another_module])
@pytest.mark.parametrize("seen", [observed(GONE, GONE), observed(record(), None), observed()])
def test_a_surprise_is_not_believed_of_damaged_files(
    order: RunSpec, harm: Harm, seen: Observation
) -> None:
    campaign = run(order, zero3=(seen, harm))
    assert outcomes(campaign, order.cells)["zero3"] == "harness-error"
    assert not campaign.unconfirmed(order.cells[2])  # there is nothing to confirm


def test_a_surprise_in_a_sound_environment_stays_one_and_vouches_for_what_was_before(
    order: RunSpec,
) -> None:
    campaign = run(order, zero2=(observed(GONE, GONE), None), zero3=(observed(RAISED), without_trl))
    assert outcomes(campaign, order.cells) == {
        "ddp": "pass",
        "zero2": "not-applicable",
        "zero3": "harness-error",
    }


def test_damaged_files_are_found_when_the_stack_is_left(order: RunSpec) -> None:
    campaign = run(order, zero3=(observed(RAISED, RAISED), without_a_module))
    assert set(outcomes(campaign, order.cells).values()) == {"harness-error"}
    again = run(order, zero3=(observed(RAISED, RAISED), None))
    assert outcomes(again, order.cells)["zero3"] == "reproduced"


def test_a_confirmation_in_a_damaged_environment_is_not_believed(order: RunSpec) -> None:
    campaign = run(order, zero2=(observed(GONE, GONE), None))
    cell = order.cells[1]
    assert campaign.unconfirmed(cell)
    Runner.planned["zero2 torchrun"] = (observed(GONE, GONE), without_a_module)
    confirming = Campaign(order)
    assert confirming.confirm(cell).outcome is Outcome.HARNESS_ERROR
    confirming.close()
    assert confirming.known(cell) is None


def test_every_run_of_a_repeated_cell_is_checked(order: RunSpec) -> None:
    repeated = order.model_copy(update={"repeat": 3})
    campaign = run(repeated, zero2=(observed(record(), record()), without_trl_once()))
    assert outcomes(campaign, order.cells)["zero2"] == "harness-error"


def without_trl_once() -> Harm:
    done: list[Path] = []

    def harm(folder: Path) -> None:
        if not done:
            without_trl(folder)
        done.append(folder)

    return harm


def test_what_is_damaged_again_and_again_is_given_up(order: RunSpec) -> None:
    good = observed(record(), record())
    campaign = run(order, ddp=(good, without_trl), zero2=(good, without_trl))
    kept = campaign.store.read(order.cells[2].id)
    assert kept is not None
    assert kept.observations[0].not_started is not None
    assert "damaged again after it was rebuilt" in kept.observations[0].not_started[1]
    assert len(Runner.started) == 2


def test_another_run_that_makes_it_again_meanwhile_is_noticed(order: RunSpec) -> None:
    def by_another_run(folder: Path) -> None:
        without_trl(folder)
        folder.rename(folder.with_name("aside"))
        made_environment.make(folder)

    campaign = run(order, zero2=(observed(record(), record()), by_another_run))
    assert outcomes(campaign, order.cells)["zero2"] == "harness-error"
    assert campaign.known(order.cells[2])


def test_an_environment_that_was_damaged_between_two_runs_is_made_again_first(
    order: RunSpec,
) -> None:
    run(order)
    folder = Runner.started[0].environment.folder
    without_a_module(folder)
    (site(folder) / "planted.py").touch()
    (folder.parent / "planted").touch()
    campaign = run(order)
    assert not (folder.parent / "planted").exists()
    assert set(outcomes(campaign, order.cells).values()) == {"pass", "reproduced"}
    found = damage.noted(folder)
    assert found is not None
    assert damage.find(folder, found, damage.Depth.CONTENTS) == []


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (Unavailable("the index"), "unavailable"),
        (HarnessError("uv crashed"), "harness-error"),
    ],
)
def test_what_keeps_an_environment_from_being_made_is_kept_with_its_kind(
    order: RunSpec, monkeypatch: pytest.MonkeyPatch, error: Exception, outcome: str
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(build, "ensure", fail)
    assert set(outcomes(run(order), order.cells).values()) == {outcome}


def test_bad_input_is_the_users_for_every_cell(
    order: RunSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise BadInput("the disk is full")

    monkeypatch.setattr(build, "ensure", fail)
    campaign = Campaign(order)
    for cell in order.cells:
        with pytest.raises(BadInput, match="the disk is full"):
            campaign.run(cell)
        assert campaign.store.read(cell.id) is None
