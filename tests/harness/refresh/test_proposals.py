"""New releases ask for stacks; these go into the matrix file, and nothing else in it changes."""

from __future__ import annotations

import dataclasses
import datetime
from pathlib import Path

import pytest
import yaml

from tests.harness.conftest import ROOT
from trl_compat.errors import BadInput
from trl_compat.refresh import edit, holding, proposal
from trl_compat.refresh.days import days, newest_on
from trl_compat.shipped import releases
from trl_compat.shipped.releases import Releases
from trl_compat.stacks import matrix
from trl_compat.stacks.matrix import Matrix
from trl_compat.stacks.stack_lines import written

TODAY = datetime.date(2026, 12, 1)
KNOWN = releases.known()
OWN = ROOT / "matrix.yaml"
HELD = holding.parse(["torch=2.13.0"], KNOWN)


def with_new(yanked: tuple[str, ...] = (), **new: str) -> Releases:
    """The shipped list with some releases more, as ``trl="1.17.0 1.18.0"``."""
    dates = {p: dict(by) for p, by in KNOWN.dates.items()}
    gone = {p: dict(by) for p, by in KNOWN.yanked.items()}
    for package, versions in new.items():
        dates[package] |= dict.fromkeys(versions.split(), "2026-11-30")
        gone.setdefault(package, {}).update({v: "broken" for v in versions.split() if v in yanked})
    return dataclasses.replace(KNOWN, dates=dates, yanked=gone)


def propose(table: Matrix, listed: Releases, *holds: str) -> proposal.Proposal:
    return proposal.propose(table, listed, TODAY, holding.parse(holds, listed))


def newer_than(table: Matrix, found: proposal.Proposal) -> list[dict[str, str]]:
    base = table.stacks[found.base]
    return [
        {
            package: getattr(one.stack, package)
            for package in ("torch", "trl", "transformers", "peft")
            if getattr(one.stack, package) != getattr(base, package)
        }
        for one in found.stacks
    ]


def test_each_release_alone_and_everything_newest(matrix: Matrix) -> None:
    found = propose(matrix, with_new(trl="1.17.0 1.18.0", peft="0.22.0"), "torch=2.13.0")
    assert found.base == "new"
    assert newer_than(matrix, found) == [
        {"trl": "1.17.0"},
        {"trl": "1.18.0"},
        {"peft": "0.22.0"},
        {"trl": "1.18.0", "peft": "0.22.0"},
    ]
    assert {one.stack.as_of for one in found.stacks} == {TODAY}
    assert [one.name for one in found.stacks][-1] == "2026-12-01-newest"


def test_one_package_needs_no_stack_of_everything(matrix: Matrix) -> None:
    found = propose(matrix, with_new(trl="1.17.0"), "torch=2.13.0")
    assert newer_than(matrix, found) == [{"trl": "1.17.0"}]


def test_nothing_new_asks_for_nothing(matrix: Matrix) -> None:
    assert propose(matrix, KNOWN, "torch=2.13.0").stacks == ()


def test_a_yanked_release_is_not_proposed(matrix: Matrix) -> None:
    listed = with_new(("1.18.0",), trl="1.17.0 1.18.0")
    assert newer_than(matrix, propose(matrix, listed, "torch=2.13.0")) == [{"trl": "1.17.0"}]


def test_a_base_that_was_yanked_is_said(matrix: Matrix) -> None:
    gone = {**KNOWN.yanked, "trl": {"1.16.0": "broken wheel"}}
    listed = dataclasses.replace(KNOWN, yanked=gone)
    (sentence,) = propose(matrix, listed, "torch=2.13.0").yanked
    assert sentence == "trl 1.16.0 was yanked from the index: broken wheel"


def test_a_held_package_takes_what_was_named(matrix: Matrix) -> None:
    free = propose(matrix, KNOWN)
    assert {"torch": "2.15.0"} in newer_than(matrix, free)
    held = propose(matrix, KNOWN, "torch=2.14.1")
    assert newer_than(matrix, held) == [{"torch": "2.14.1"}]
    assert "torch 2.15.0" in map(str, held.held_back)


@pytest.mark.parametrize(
    ("hold", "said"),
    [
        ("torhc=2.13.0", "torhc"),
        ("torch=two", "'two' is not a version"),
        ("torch=2.13.7", "torch 2.13.7 does not exist"),
        ("torch=9.0", "newer than the list"),
        ("transformers=5.10.0", "was yanked"),
    ],
)
def test_what_cannot_be_held_is_refused(hold: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        holding.parse([hold], KNOWN)


def test_torch_alone_is_held_to_the_builds_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRL_COMPAT_CACHE", str(tmp_path))
    with pytest.raises(BadInput, match=r"no environment in .* has a build of torch"):
        holding.parse(["torch"], KNOWN)
    lock = tmp_path / "environments" / "some" / "lock.txt"
    lock.parent.mkdir(parents=True)
    lock.write_text("tqdm==4.0\ntorch==2.13.0+cpu \\\n    --hash=x\n")
    assert [str(v) for v in holding.parse(["torch"], KNOWN)["torch"]] == ["2.13.0"]


def test_a_matrix_of_trees_has_nothing_to_compare_with(matrix: Matrix) -> None:
    trees = matrix.model_copy(update={"stacks": {"tree": matrix.stacks["tree"]}})
    with pytest.raises(BadInput, match="no stack of releases"):
        propose(trees, KNOWN)


@pytest.mark.parametrize("path", [OWN, None], ids=["own", "small"])
def test_stacks_are_added_behind_the_others_and_all_else_stays(
    path: Path | None, project_folder: Path
) -> None:
    path = path or project_folder / "matrix.yaml"
    text, table = path.read_text(), matrix.load(path)
    found = propose(table, with_new(trl="1.17.0", peft="0.22.0"))
    after = edit.with_stacks(text, path, found.stacks)
    added = [line for line in after.splitlines() if line not in text.splitlines()]
    assert [line.split(":")[0].strip() for line in added] == [one.name for one in found.stacks]
    assert [line for line in after.splitlines() if line not in added] == text.splitlines()
    written = project_folder / "written.yaml"
    written.write_text(after)
    stacks = matrix.load(written).stacks
    by_hand = [name for name, stack in stacks.items() if not stack.grid]
    known = [name for name, stack in table.stacks.items() if not stack.grid]
    assert by_hand == [*known, *(one.name for one in found.stacks)]
    for one in found.stacks:
        assert stacks[one.name].model_copy(update={"why": ""}) == one.stack


@pytest.mark.parametrize(
    "end", ["", "\n", "\n\n# about what follows\nexcludes: []\n", "\n  # of the last stack\n"]
)
def test_however_the_section_ends(project_folder: Path, end: str) -> None:
    stack = written(newest_on(datetime.date(2026, 11, 19), KNOWN, HELD))
    text = (
        "models: [tiny-qwen2]\nprofiles: {default: {about: x, select: [{}]}}\n"
        f"stacks:\n  # first\n  one: {stack} # same line{end}"
    )
    path = project_folder / "matrix.yaml"
    path.write_text(text)
    found = propose(matrix.load(path), with_new(trl="1.17.0"), "torch=2.13.0")
    after = edit.with_stacks(text, path, found.stacks)
    path.write_text(after)
    assert list(matrix.load(path).stacks) == ["one", "2026-12-01-trl-1.17.0"]
    ours = [line for line in after.splitlines() if "2026-12-01-trl" in line]
    assert [line for line in after.splitlines() if line not in ours] == text.splitlines()


@pytest.mark.parametrize("version", ["2", "2.10", "1e5", "5.0.0rc1", "2.13.0+cpu", "1!2.0"])
def test_a_version_is_written_so_that_it_is_read_as_it_was(version: str) -> None:
    known = newest_on(datetime.date(2026, 11, 19), KNOWN, HELD)
    odd = known.model_copy(update={"python": "3.12", "torch": version, "build": ("deepspeed",)})
    text = written(odd, "with torch alone")
    read = yaml.safe_load(text)
    assert (read["torch"], read["python"], read["build"]) == (version, "3.12", ["deepspeed"])
    assert read["as_of"] == known.as_of


def test_stacks_in_one_line_are_not_edited(project_folder: Path, matrix: Matrix) -> None:
    found = propose(matrix, with_new(trl="1.17.0"))
    with pytest.raises(BadInput, match="write a stack in each line"):
        edit.with_stacks("stacks: {a: {}}\n", project_folder, found.stacks)


def test_a_day_has_what_was_out_on_it() -> None:
    held = holding.parse(["torch=2.10.0,2.13.0"], KNOWN)
    before = newest_on(datetime.date(2026, 6, 2), KNOWN, held)
    assert (before.torch, before.trl, before.transformers) == ("2.10.0", "1.5.1", "5.9.0")
    after = newest_on(datetime.date(2026, 7, 8), KNOWN, held)
    assert (after.torch, after.as_of) == ("2.13.0", datetime.date(2026, 7, 8))


def test_days_of_the_past_name_what_moved_and_what_was_yanked() -> None:
    first, last = datetime.date(2026, 6, 1), datetime.date(2026, 6, 17)
    start, found = days(first, last, KNOWN, holding.parse(["torch=2.10.0"], KNOWN))
    assert start.transformers == "5.9.0"
    told = {str(d.date): ([str(r) for r in d.moved], [str(r) for r in d.yanked]) for d in found}
    assert told["2026-06-03"] == (["transformers 5.10.1"], ["transformers 5.10.0"])
    assert told["2026-06-15"] == (["transformers 5.12.1"], [])  # and 5.10.4, which is not newest
    assert told["2026-06-17"] == ([], [])  # torch, which is held


@pytest.mark.parametrize(
    ("first", "last", "said"),
    [
        ("2026-06-02", "2026-06-01", "the first day is after the last"),
        ("2026-06-01", "2027-06-01", "the list of releases has the days after"),
        ("2019-01-01", "2026-06-01", "the list of releases has the days after"),
    ],
)
def test_days_that_cannot_be_replayed_are_refused(first: str, last: str, said: str) -> None:
    day = datetime.date.fromisoformat
    with pytest.raises(BadInput, match=said):
        days(day(first), day(last), KNOWN, {})
