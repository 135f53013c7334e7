"""The files of a new failure: what there is to fill in, and what is refused."""

from __future__ import annotations

import ast
import datetime
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.harness.fake_project import CLI
from tests.harness.new_failures import filled_in, snapshot
from trl_compat import advisories
from trl_compat.errors import BadInput
from trl_compat.files import project
from trl_compat.publishing.adding import starting, todo
from trl_compat.publishing.adding.starting import Shape
from trl_compat.publishing.lint import lint
from trl_compat.shipped import releases

DAY = datetime.date(2026, 11, 22)
ALL = ("advisory", "reproduction", "fix", "sabotage")
SHAPES = {
    "loud": (Shape(), ALL),
    "of a trainer": (Shape(trainer="OnlineDPOTrainer"), ALL),
    "of a trainer that the runtime does not know": (Shape(trainer="dpo"), ALL),
    "silent": (Shape(violates="adds-up"), ("advisory", "fix")),
    "a setting": (Shape(setting=True), ("advisory", "reproduction", "sabotage")),
    "silent, a setting": (Shape(violates="adds-up", setting=True), ("advisory",)),
    "masks": (Shape(trainer="PPO", masks=True), ("advisory",)),
}


@pytest.fixture
def where(checkout: Path) -> project.Project:
    # Not the one for runs: nothing is run here.
    return project.at(checkout)


@pytest.mark.parametrize(("shape", "kinds"), SHAPES.values(), ids=SHAPES)
def test_the_shape_decides_which_files_there_are(
    where: project.Project, shape: Shape, kinds: tuple[str, ...]
) -> None:
    before = snapshot(where.root)
    paths = starting.start(where, "new-one", shape, DAY)
    named = starting.files(where.root, "new-one")
    assert paths == [named[kind] for kind in kinds]
    assert snapshot(where.root).keys() - before.keys() == set(paths)
    for path in paths:
        found = list(todo.left([path]))
        assert found
        assert all(one.sentence.endswith(".") for one in found), found
        if path.suffix == ".py":
            ast.parse(path.read_text())


@pytest.mark.parametrize(("shape", "kinds"), SHAPES.values(), ids=SHAPES)
def test_a_record_can_be_read_only_when_it_is_filled_in(
    where: project.Project, shape: Shape, kinds: tuple[str, ...]
) -> None:
    paths = starting.start(where, "new-one", shape, DAY)
    with pytest.raises(BadInput, match=r"new-one\.yaml:\d+: "):
        advisories.load(where.advisories, where.reproductions)
    filled_in(paths)
    assert not list(todo.left(paths))
    catalogue = advisories.load(where.advisories, where.reproductions)
    record = catalogue.records["new-one"]
    assert bool(record.reproduction) is ("reproduction" in kinds)
    assert record.masks is shape.masks
    assert {symptom.violates or "" for symptom in record.symptoms.values()} == {shape.violates}
    assert [bool(fix.entry) for fix in record.fixes] == ([] if shape.masks else ["fix" in kinds])
    complaints = lint(catalogue, releases.known(), None, where.reproductions)
    mine = [c.text for c in complaints if c.failure == "new-one" and "still to be" in c.text]
    assert len(mine) == 1  # what cells are to show is not written by hand


def test_the_trainer_is_a_condition_as_records_spell_it(where: project.Project) -> None:
    (path, *_) = starting.start(where, "new-one", Shape(trainer="NashMDTrainer"), DAY)
    assert "conditions: {trainer: Nash-MD}" in path.read_text()


def test_every_value_of_the_invariant_is_there_to_choose_from(where: project.Project) -> None:
    (path, *_) = starting.start(where, "new-one", Shape(violates="adds-up"), DAY)
    assert "      sum: observe  # what came out\n" in path.read_text()


REFUSED = {
    "capital letters": ("New-One", [], "'New-One' is no id"),
    "an underscore": ("new_one", [], "is no id"),
    "a digit first": ("4bit-loss", [], "is no id"),
    "another folder": ("../new-one", [], "is no id"),
    "too long": ("x" * 65, [], "is no id"),
    "a word of Python": ("class", [], "is a word of Python"),
    "a failure": ("saving", [], "'saving' is taken: advisories/saving.yaml exists"),
    "an invariant": ("adds-up", [], "'adds-up' is taken: invariants/adds-up.yaml exists"),
    "a module": ("old-helper", [], "is taken: src/trl_compat/fixes/old_helper.py exists"),
    "a trainer": (
        "new-one",
        ["--trainer", "GRPOO"],
        "unknown trainer 'GRPOO'; did you mean 'GRPO'",
    ),
    "an invariant's name": (
        "new-one",
        ["--violates", "adds-pu"],
        "unknown invariant 'adds-pu'; did you mean 'adds-up'?",
    ),
    "a silent mask": ("new-one", ["--masks", "--violates", "adds-up"], "leave one out"),
    "a mask with a setting": ("new-one", ["--masks", "--setting"], "leave one out"),
}


@pytest.mark.parametrize(("failure", "options", "said"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_is_refused_in_a_sentence_and_nothing_is_written(
    checkout: Path, failure: str, options: list[str], said: str
) -> None:
    (checkout / "src" / "trl_compat" / "fixes" / "old_helper.py").write_text("")
    before = snapshot(checkout)
    done = new(checkout, failure, *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert snapshot(checkout) == before


def test_a_place_that_is_no_checkout_is_refused(tmp_path: Path, checkout: Path) -> None:
    done = new(tmp_path / "nowhere", "new-one")
    assert (done.returncode, "is not a checkout" in done.stderr) == (2, True)
    folder = checkout / "tests" / "harness" / "sabotages"
    folder.rmdir()
    done = new(checkout, "new-one")
    assert (done.returncode, f"{folder}: not found" in done.stderr) == (2, True)


def test_all_files_are_written_or_none(
    where: project.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = snapshot(where.root)
    opened: Any = Path.open

    def full(path: Path, mode: str = "r", **more: str) -> Any:
        if mode == "x" and path.parent.name == "sabotages":
            raise OSError(28, "No space left on device")
        return opened(path, mode, **more)

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(BadInput, match=r"new_one\.py: No space left on device; nothing was"):
        starting.start(where, "new-one", Shape(), DAY)
    monkeypatch.undo()
    assert snapshot(where.root) == before


def test_a_link_that_leads_nowhere_is_not_written_through(where: project.Project) -> None:
    place = where.root / "src" / "trl_compat" / "fixes" / "new_one.py"
    place.symlink_to(where.root / "elsewhere.py")
    with pytest.raises(BadInput, match=r"fixes/new_one\.py exists; nothing was written"):
        starting.start(where, "new-one", Shape(), DAY)
    assert not (where.root / "elsewhere.py").exists()


def test_the_command_ends_with_what_to_fill_in_and_the_next_command(checkout: Path) -> None:
    done = new(checkout, "new-one", "--trainer", "PPO")
    assert (done.returncode, done.stderr) == (0, "")
    wrote, _, rest = done.stdout.partition("to fill in:\n")
    assert wrote.splitlines() == [
        "wrote advisories/new-one.yaml",
        "wrote tests/reproductions/new_one.py",
        "wrote src/trl_compat/fixes/new_one.py",
        "wrote tests/harness/sabotages/new_one.py",
    ]
    places, last = rest.splitlines()[:-1], rest.splitlines()[-1]
    assert places[0] == "  advisories/new-one.yaml:2: Say in one line what fails and where."
    paths = list(starting.files(checkout, "new-one").values())
    assert len(places) == len(list(todo.left(paths)))
    assert last == "then run: trl-compat advisories finish new-one"


def new(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(CLI), "--project", str(root), "advisories", "new", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)
