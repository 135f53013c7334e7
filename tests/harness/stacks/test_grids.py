"""Stacks that are made by rule: which they are, what they are called, and what is refused."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import itertools
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from tests.harness.commands import run
from tests.harness.conftest import ROOT
from trl_compat.errors import BadInput
from trl_compat.files.names import LONGEST_OF_STACK, STACK_NAME
from trl_compat.packages import PACKAGES
from trl_compat.shipped import releases
from trl_compat.stacks import matrix
from trl_compat.stacks.grids import expansion, sampling
from trl_compat.stacks.grids.expansion import GridStack, expanded
from trl_compat.stacks.grids.rules import Shelf
from trl_compat.stacks.grids.schema import Grid, Sample
from trl_compat.text.nearest import unknown_name

KNOWN = releases.known()
# A small index of our own: what a rule means there is seen at a glance.
DATES = {
    "trl": {"0.9.0": "2024-01-01", "0.9.1": "2024-02-01", "0.10.0": "2024-03-01", "1.0.0": "2025-01-01"},  # noqa: E501
    "transformers": {"4.0.0": "2023-01-01", "4.1.0": "2024-01-15", "4.1.1": "2024-02-20",
                     "4.2.0": "2024-08-01", "5.0.0": "2025-01-01", "5.1.0rc1": "2025-02-01",
                     "5.1.0": "2025-03-01"},
    "deepspeed": {"0.1.0": "2023-06-01", "0.2.0": "2024-06-01"},
    "accelerate": {"0.5.0": "2023-06-01", "1.0.0": "2024-02-15", "1.1.0": "2025-02-01"},
    "peft": {"0.1.0": "2023-06-01"},
    "torch": {"2.0.0": "2023-01-01", "2.1.0": "2024-02-10", "2.2.0": "2025-01-10"},
}  # fmt: skip
REQUIRES = {
    "trl": {
        "0.9.0": {"transformers": ">=4.0.0", "python": ">=3.9"},
        "0.9.1": {"transformers": ">=4.1.0"},
        "0.10.0": {"transformers": "<4.2.0"},
        "1.0.0": {"transformers": ">=4.2.0", "python": ">=3.12"},
    },
    "transformers": {"5.1.0": {"accelerate": ">=1.1.0"}},
}
YANKED = {"transformers": {"5.0.0": "it was built from the wrong branch"}}
SHELF = Shelf(releases.Releases("2025-03-02", DATES, YANKED), requires=REQUIRES)


def rows(axes: dict[str, Any], **more: Any) -> tuple[GridStack, ...]:
    grid = Grid.model_validate({"about": "a test", "axes": axes, **more})
    return expanded(grid, SHELF).stacks


def column(package: str, axes: dict[str, Any], **more: Any) -> list[str]:
    return [getattr(stack, package) for stack in rows(axes, **more)]


@pytest.mark.parametrize(
    ("rule", "versions"),
    [
        ("0.9.0", ["0.9.0"]),
        (["0.9.0", "1.0.0"], ["0.9.0", "1.0.0"]),
        ({"every_minor_since": "0.9"}, ["0.9.1", "0.10.0", "1.0.0"]),
        ({"every_minor_since": "0.9", "until": "0.10"}, ["0.9.1", "0.10.0"]),
        ({"every_release_since": "0.9.1"}, ["0.9.1", "0.10.0", "1.0.0"]),
        ({"every_release_since": "0.9", "until": "0.10.0"}, ["0.9.0", "0.9.1", "0.10.0"]),
        ({"newest": 3}, ["0.9.1", "0.10.0", "1.0.0"]),
        ({"newest_minors": 2}, ["0.10.0", "1.0.0"]),
        ("newest", ["1.0.0"]),
        ([{"newest": 1}, "1.0.0", "newest"], ["1.0.0"]),
    ],
)
def test_a_rule_means_releases(rule: Any, versions: list[str]) -> None:
    assert column("trl", {"trl": rule}) == versions


@pytest.mark.parametrize(
    ("trl", "rule", "version"),
    [
        ("0.9.0", "oldest-allowed", "4.0.0"),
        ("0.9.1", "oldest-allowed", "4.1.0"),
        ("0.10.0", "oldest-allowed", "4.1.0"),  # its own range has no lower end
        ("0.9.0", "on-the-day", "4.0.0"),
        ("0.9.1", "on-the-day", "4.1.0"),
        ("0.10.0", "on-the-day", "4.1.1"),
        ("0.9.1", {"days_later": 182}, "4.2.0"),
        ("0.9.1", {"days_later": 181}, "4.1.1"),
        ("0.10.0", {"days_later": 300}, "4.1.1"),  # 4.2.0 is more than it allows
        ("1.0.0", "on-the-day", "4.2.0"),  # 5.0.0 was yanked
        ("0.9.0", "newest", "5.1.0"),
        ("0.10.0", "newest", "5.1.0"),  # more than it allows: the resolver says so
        ("0.9.0", {"newest_of": ["4.0.0", "4.2.0"], "released_by": ["trl"]}, "4.0.0"),
    ],
)
def test_a_rule_follows_the_trl_of_its_row(trl: str, rule: Any, version: str) -> None:
    assert column("transformers", {"trl": trl, "transformers": rule}) == [version]


def test_what_is_no_axis_fits_what_was_chosen() -> None:
    (stack,) = rows({"trl": "0.9.1", "transformers": "newest"})
    assert stack.accelerate == "1.1.0"  # newer than TRL's day, because transformers asks for it
    (stack,) = rows({"trl": "0.9.1"})
    assert (stack.accelerate, stack.torch, stack.peft) == ("0.5.0", "2.0.0", "0.1.0")


def test_builds_of_torch_are_taken_by_the_days_of_the_packages_that_are_named() -> None:
    builds = ["2.0.0", "2.2.0"]
    axes = {"trl": "0.9.1", "deepspeed": "0.2.0", "transformers": "5.1.0"}
    torch = {"newest_of": builds, "released_by": ["trl"]}
    assert column("torch", {**axes, "torch": torch}) == ["2.0.0"]
    torch = {"newest_of": builds, "released_by": ["trl", "transformers"]}
    assert column("torch", {**axes, "torch": torch}) == ["2.2.0"]
    assert column("torch", {**axes, "torch": {"newest_of": builds}}) == ["2.2.0"]


def test_the_day_of_a_stack_is_after_its_last_release_and_not_after_the_list() -> None:
    def day(trl: str, **more: Any) -> str:
        return str(rows({"trl": trl}, **more)[0].as_of)

    assert day("0.9.1") == "2024-02-04"
    assert day("0.9.1", days_after=0) == "2024-02-01"
    assert day("0.9.1", as_of="2024-05-05") == "2024-05-05"
    assert str(rows({"trl": "1.0.0", "transformers": "newest"})[0].as_of) == "2025-03-02"


def test_the_python_is_one_that_every_release_is_for() -> None:
    assert column("python", {"trl": ["0.9.0", "1.0.0"]}) == ["3.11", "3.12"]
    assert column("python", {"trl": "1.0.0"}, python="3.13") == ["3.13"]


def test_rules_that_mean_the_same_versions_make_one_stack() -> None:
    axes = {"trl": "0.9.0", "transformers": ["4.0.0", "on-the-day", "oldest-allowed"]}
    assert len(rows(axes)) == 1


def test_one_axis_at_a_time_moves_around_the_base() -> None:
    axes = {"trl": ["0.9.0", "0.9.1"], "transformers": ["4.0.0", "4.1.0", "4.2.0"]}
    found = rows(axes, sample="one-at-a-time", base={"trl": "0.9.1", "transformers": "4.1.0"})
    pairs = [(stack.trl, stack.transformers) for stack in found]
    assert sorted(pairs) == [
        ("0.9.0", "4.1.0"),
        ("0.9.1", "4.0.0"),
        ("0.9.1", "4.1.0"),
        ("0.9.1", "4.2.0"),
    ]


@pytest.mark.parametrize("strength", [2, 3])
def test_a_covering_sample_has_every_combination_of_so_many_axes(strength: int) -> None:
    sizes = (9, 5, 4, 3)
    sample = {2: Sample.PAIRWISE, 3: Sample.THREE_WAY}[strength]
    found = sampling.rows(sizes, sample, 1, (0, 0, 0, 0))
    for axes in itertools.combinations(range(4), strength):
        seen = {tuple(row[axis] for axis in axes) for row in found}
        wanted = set(itertools.product(*(range(sizes[axis]) for axis in axes)))
        assert seen == wanted
    assert len(found) < 9 * 5 * 4 * 3 / 2


def test_the_seed_decides_the_sample() -> None:
    one, same, other = (
        sampling.rows((9, 5, 4), Sample.PAIRWISE, seed, (0, 0, 0)) for seed in (1, 1, 2)
    )
    assert one == same != other


def test_an_exclude_takes_away_only_what_it_names() -> None:
    axes = {
        "trl": ["0.9.0", "0.9.1", "0.10.0"],
        "transformers": ["4.0.0", "4.1.0", "4.1.1"],
        "deepspeed": ["0.1.0", "0.2.0"],
    }
    exclude = {"trl": "<0.10", "transformers": "<4.1", "reason": "these two never met"}
    found = rows(axes, sample="pairwise", excludes=[exclude])
    assert not [s for s in found if s.trl != "0.10.0" and s.transformers == "4.0.0"]
    for one, other in itertools.combinations(axes, 2):
        seen = {(getattr(s, one), getattr(s, other)) for s in found}
        wanted = set(itertools.product(axes[one], axes[other]))
        if (one, other) == ("trl", "transformers"):
            wanted -= {("0.9.0", "4.0.0"), ("0.9.1", "4.0.0")}
        assert seen == wanted
    grid = Grid.model_validate({"about": "x", "axes": axes, "excludes": [exclude]})
    assert expanded(grid, SHELF).left_out == {"these two never met": 4}


def test_a_name_has_the_parts_that_tell_stacks_apart() -> None:
    stack = rows({"trl": "0.9.0"})[0]
    other = dataclasses.replace(stack, torch="2.2.0")
    later = dataclasses.replace(stack, as_of=datetime.date(2025, 1, 1))
    plain = "grid-trl-0.9.0-transformers-4.0.0-deepspeed-0.1.0"
    assert list(expansion.names([stack, stack])) == [plain]
    assert list(expansion.names([stack, other])) == [f"{plain}-torch-2.0.0", f"{plain}-torch-2.2.0"]
    assert list(expansion.names([stack, later])) == [
        f"{plain}-as-of-2024-01-04",
        f"{plain}-as-of-2025-01-01",
    ]


def test_a_name_that_would_be_too_long_is_cut_and_tells_apart_all_the_same() -> None:
    stack = rows({"trl": "0.9.0"})[0]
    stacks = [
        dataclasses.replace(
            stack, torch=f"2.{n}.0", accelerate=f"1.{n}.0", peft=f"0.{n}.0", as_of=day
        )
        for n in (100, 200)
        for day in (datetime.date(2024, 1, 1), datetime.date(2025, 1, 1))
    ]
    names = list(expansion.names(stacks))
    assert len(set(names)) == 4
    assert all(STACK_NAME.fullmatch(name) and len(name) == LONGEST_OF_STACK for name in names)
    start = "grid-trl-0.9.0-transformers-4.0.0-deepspeed-0.1.0-torch-2.100.0-accelerate-1.100.0-"
    assert names[0].startswith(start)
    two = [dataclasses.replace(stack, torch=torch) for torch in ("2.12.0", "2.13.0")]
    longer = [dataclasses.replace(one, transformers="4.100.100") for one in two]
    assert [name[-12:] for name in expansion.names(longer)] == ["torch-2.12.0", "torch-2.13.0"]


# What a file may say wrongly, as it stands in it, and the sentence for it.
WRONG = [
    ("trl: []", r":4: grids.g.axes.trl: .*axis is empty"),
    ("trl:", r":4: grids.g.axes: axis trl is empty"),
    ("transformers: newest", r"grids.g.axes.trl: Field required"),
    ("trl: 0.9", r"quote the version \('0.9' was read as a number\)"),
    ("trll: newest", r":4: unknown key 'grids.g.axes.trll'; did you mean 'trl'"),
    ("trl: newset", r"'newset' is neither a version nor a rule; did you mean 'newest'"),
    ("trl: on-the-day", "'on-the-day' depends on the TRL release itself"),
    ("trl: {newest: 0}", "greater than or equal to 1"),
    ("trl: {newest: 2, newest_minors: 2}", r"has one rule \(newest, newest_minors found\)"),
    ("trl: true", "'True' is neither a version nor a rule; available: newest, oldest-allowed"),
    ("trl: {newest: yes}", "newest: Input should be a valid integer"),
    ("trl: {nwest: 2}", "unknown key 'grids.g.axes.trl.0.nwest'; did you mean 'newest'"),
    ("trl: {until: 1.0.0}", "has one rule"),
    ("trl: 0.9.7", r":3: grid 'g': axis trl: trl 0.9.7 does not exist .*; did you mean 0.9"),
    ("trl: 99.0.0", r"trl 99.0.0 is not in the list of releases, whose newest is \d"),
    ('trl: {every_minor_since: "99.0"}', "'every_minor_since: 99.0' matches no release of trl"),
    ("trl: newest, transformers: 4.46.0", "transformers 4.46.0 was yanked .*: This version"),
    ("trl: 0.9.6, accelerate: oldest-allowed", "TRL 0.9.6 has no lower bound for accelerate"),
    ("trl: newest, torch: {newest_of: [2.4.1], released_by: [trll]}", "unknown package 'trll'"),
    ("trl: newest, torch: {newest_of: [2.4.1], released_by: [torch]}", "newest_of itself"),
    ("trl: git+https://github.com/a/b@0123456", "is neither a version nor a rule"),
]


@pytest.mark.parametrize(("axes", "said"), WRONG)
def test_a_mistake_is_one_sentence(tmp_path: Path, axes: str, said: str) -> None:
    path = matrix_with(tmp_path, axes)
    with pytest.raises(BadInput, match=said) as error:
        matrix.load(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("sample: pairwsie", "sample"),
        ("base: {trl: newest}", "base belongs to sample: one-at-a-time"),
        ("sample: one-at-a-time, base: {trl: 0.9.3}", "'0.9.3' is not a value of the axis"),
        ("sample: one-at-a-time, base: {peft: newest}", "peft is not an axis of this grid"),
        ("excludes: [{reason: because it is}]", "names the version range of at least one"),
        ("excludes: [{trl: banana, reason: because it is}]", "'banana' is not a version range"),
        ("excludes: [{trl: '>=0', reason: because it is}]", "its excludes leave no stack"),
        ("days_after: -1", "days_after"),
        ("python: '3.8'", "grids.g.python: Python 3.8: cells require Python 3.9 or newer"),
    ],
)
def test_a_mistake_beside_the_axes_is_one_sentence(tmp_path: Path, more: str, said: str) -> None:
    path = matrix_with(tmp_path, "trl: newest", more)
    with pytest.raises(BadInput, match=said):
        matrix.load(path)


def test_a_grid_of_a_million_is_refused_with_the_sample_that_fits(tmp_path: Path) -> None:
    axes = ", ".join(f"{package}: {{newest: 10}}" for package in PACKAGES)
    path = matrix_with(tmp_path, axes)
    said = (
        r"grid 'g': 'sample: full' gives 1,000,000 stacks; a grid may have 5,000; "
        r"'sample: pairwise' gives 1\d\d$"
    )
    with pytest.raises(BadInput, match=said):
        matrix.load(path)


def test_a_covering_sample_that_is_too_large_names_the_next_smaller(tmp_path: Path) -> None:
    axes = "trl: {newest: 60}, transformers: {newest: 100}, deepspeed: {newest: 100}"
    said = r"'sample: pairwise' gives at least 10,000 .*; 'sample: one-at-a-time' gives 258$"
    with pytest.raises(BadInput, match=said):
        matrix.load(matrix_with(tmp_path, axes, "sample: pairwise"))


def test_a_covering_sample_that_takes_too_long_says_so(tmp_path: Path) -> None:
    axes = "trl: {newest: 70}, transformers: {newest: 70}, deepspeed: {newest: 10}"
    said = "'sample: pairwise' gives at least 4,900 stacks; that takes too long to work out; 'samp"
    with pytest.raises(BadInput, match=said):
        matrix.load(matrix_with(tmp_path, axes, "sample: pairwise"))


def matrix_with(folder: Path, axes: str, more: str = "") -> Path:
    path = folder / "matrix.yaml"
    inner = "axes:\n      trl:" if axes == "trl:" else f"axes: {{{axes}}}"
    lines = ["models: [tiny-qwen2]", "grids:", "  g:", f"    {inner}", "    about: a test"]
    lines += [f"    {one}" for one in split(more)]
    lines += ["stacks: {}", "profiles: {default: {about: x, select: [{grids: [g]}]}}"]
    path.write_text("\n".join(lines) + "\n")
    return path


def split(more: str) -> list[str]:
    return more.replace(", base", "\nbase").splitlines()


def test_a_stack_of_two_grids_is_in_both(tmp_path: Path) -> None:
    path = matrix_with(tmp_path, "trl: [1.0.0, 1.1.0]")
    text = path.read_text().replace(
        "stacks:", "  h:\n    about: x\n    axes: {trl: [1.1.0, 1.2.0]}\nstacks:"
    )
    path.write_text(text)
    table = matrix.load(path)
    assert [stack.grid for stack in table.stacks.values()] == ["g", "g", "h"]
    assert len(table.stacks_of("h")) == 2
    assert table.stacks_of("g")[1] == table.stacks_of("h")[0]


def test_names_for_the_stacks_of_grids_are_not_given_by_hand(tmp_path: Path) -> None:
    path = matrix_with(tmp_path, "trl: newest")
    stack = ", ".join(f"{p}: {KNOWN.newest(p)}" for p in PACKAGES)
    for name, more in (("grid-mine", ""), ("mine", ", grid: g")):
        text = f"stacks:\n  {name}: {{as_of: 2026-01-01, {stack}{more}}}"
        other = tmp_path / f"{name}.yaml"
        other.write_text(path.read_text().replace("stacks: {}", text))
        with pytest.raises(BadInput, match=rf":7: stacks.{name}: .*for the stacks that grids make"):
            matrix.load(other)


def test_a_matrix_with_grids_survives_the_way_to_a_worker() -> None:
    table = matrix.load(ROOT / "matrix.yaml")
    again = matrix.Matrix.model_validate_json(table.model_dump_json(by_alias=True))
    assert again.stacks == table.stacks


def test_a_matrix_without_grids_needs_no_library_for_samples(
    project_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "covertable", None)
    sampling._covering.cache_clear()
    assert matrix.load(project_folder / "matrix.yaml").stacks
    axes = "trl: {newest: 3}, transformers: {newest: 3}, deepspeed: {newest: 3}"
    with pytest.raises(BadInput, match="needs the package covertable"):
        matrix.load(matrix_with(project_folder, axes, "sample: pairwise"))


def test_the_projects_grids_are_the_same_everywhere() -> None:
    """By rule: every minor with every value of the other axes, and one digest for all machines."""
    table = matrix.load(ROOT / "matrix.yaml")
    made = [stack for stack in table.stacks.values() if stack.grid]
    minors = {(v.major, v.minor) for v in KNOWN.final("trl") if v >= Version("0.9")}
    seen = Counter((Version(s.trl).major, Version(s.trl).minor) for s in made)
    assert set(seen) == minors
    assert len(made) >= 100
    assert sum(count for minor, count in seen.items() if (0, 19) <= minor <= (0, 27)) >= 12
    assert len({s.deepspeed for s in made}) >= 20
    assert len({s.transformers for s in made}) >= 20
    assert len({s.torch for s in made}) <= 10


def test_an_array_has_the_same_rows_on_every_machine() -> None:
    found = sampling.rows((38, 4, 4), Sample.PAIRWISE, 1, (0, 0, 0))
    digest = hashlib.sha256(repr(found).encode()).hexdigest()[:16]
    assert (len(found), digest) == (152, "e533374fc37781b0")


def test_the_stacks_of_a_selection_are_listed_without_running_anything(
    project_folder: Path,
) -> None:
    text = (project_folder / "matrix.yaml").read_text()
    (project_folder / "matrix.yaml").write_text(
        text.replace("stacks:\n", "grids: {g: {about: x, axes: {trl: [1.0.0, 1.1.0]}}}\nstacks:\n")
    )
    done = run("--project", str(project_folder), "matrix", "--grid", "g", "--list-stacks")
    assert done.returncode == 0
    assert "grid-trl-1.0.0-transformers-5.4.0-deepspeed-0.18.9" in done.stdout
    assert "2 stacks, " in done.stdout
    wrong = run("--project", str(project_folder), "matrix", "--grid", "h", "--list-stacks")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
    assert "unknown grid 'h'" in wrong.stderr


def test_a_name_that_is_near_nothing_does_not_list_a_hundred_stacks() -> None:
    said = unknown_name("stack", "zzz", [f"grid-{number}" for number in range(100)])
    assert said.endswith(" and 60 more")
    assert len(said) < 500
