"""matrix.yaml is checked when it is read, and says where it is wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.harness.conftest import ROOT
from trl_compat import advisories
from trl_compat.cells.plan import Selection, plan
from trl_compat.errors import BadInput
from trl_compat.stacks import matrix


def test_the_projects_own_matrix_and_advisories_are_valid() -> None:
    table = matrix.load(ROOT / "matrix.yaml")
    catalogue = advisories.load(ROOT / "advisories", ROOT / "tests" / "reproductions")
    for profile in table.profiles:
        assert plan(table, catalogue, Selection(profile=profile)).cells


def test_smoke_has_at_most_three_stacks() -> None:
    table = matrix.load(ROOT / "matrix.yaml")
    assert len({s for block in table.profiles["smoke"].select for s in block.stacks}) <= 3


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("profiles:", "profilse:", r":\d+: unknown key 'profilse'; did you mean 'profiles'"),
        ("trl: 0.11.4,", "trl: 0.11.4, colour: red,", r":4: unknown key 'stacks.old.colour'"),
        ("torch: 2.4.1", "torch: 2.10", r":4: .*'2.1' was read as a number"),
        ("trl: 0.11.4", "trl: banana", r":4: .*'banana' is neither a version"),
        ("models: [tiny-qwen2]", "models: [tiny-qwen3]", r"did you mean 'tiny-qwen2'"),
        ("stack: new", "stack: nwe", r"unknown stack 'nwe'; did you mean 'new'"),
        ("  old:", "  ../old:", r"stack name '../old' may contain only"),
        ("  new:", "  old:", r":6: key 'old' occurs twice"),
        ("models: [tiny-mistral", "models: [tiny-mistral]]", r"not valid YAML"),
        ("as_of: 2026-11-19", "as_of: someday", r"as_of"),
        ("reason: the model", "cause: the model", r"excludes.0"),
    ],
)
def test_a_mistake_is_named_with_file_line_and_key(
    project_folder: Path, old: str, new: str, said: str
) -> None:
    path = project_folder / "matrix.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(BadInput, match=said) as error:
        matrix.load(path)
    assert str(path) in str(error.value)


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file"):
        matrix.load(tmp_path / "nothing.yaml")


def test_loading_runs_nothing(project_folder: Path) -> None:
    path = project_folder / "matrix.yaml"
    path.write_text("models: !!python/object/apply:os.system ['touch pwned']\n")
    with pytest.raises(BadInput, match="not valid YAML"):
        matrix.load(path)


def test_git_commits_have_no_version(project_folder: Path) -> None:
    stack = matrix.load(project_folder / "matrix.yaml").stacks["tree"]
    assert stack.version("trl") is None
    assert stack.commit("trl") == "724acb971"
    assert "trl @ git+https://github.com/huggingface/trl@724acb971" in stack.requirements()


def test_an_exclude_may_name_versions_and_several_failures(tmp_path: Path) -> None:
    exclude = "{versions: {trl: '<1.0'}, failure: [ppo-zero3-save, logps], variant: [zero2, zero3]"
    table = changed(tmp_path, exclude)
    place = {"failure": "logps", "variant": "zero3", "model": "tiny-qwen2"}
    assert table.excluded(stack="trl-0.12.2", **place) == "a reason that is long enough"
    assert table.excluded(stack="trl-1.12.0", **place) is None
    assert table.excluded(stack="trl-0.12.2", **{**place, "failure": "ranks"}) is None
    assert table.excluded(stack="trl-0.12.2", **{**place, "variant": "ddp"}) is None
    commit = next(name for name, stack in table.stacks.items() if stack.commit("trl"))
    assert table.excluded(stack=commit, **place) is None  # no range speaks of a commit


@pytest.mark.parametrize(
    ("versions", "said"),
    [
        ("{tlr: '<1.0'}", "unknown package 'tlr'; did you mean 'trl'?"),
        ("{trl: '1.0'}", "'1.0' is not a version range"),
    ],
)
def test_the_versions_of_an_exclude_are_ranges_of_packages(
    tmp_path: Path, versions: str, said: str
) -> None:
    with pytest.raises(BadInput, match=re.escape(said)):
        changed(tmp_path, f"{{versions: {versions}, failure: logps")


def changed(folder: Path, exclude: str) -> matrix.Matrix:
    """The committed matrix with one more exclude, of which the reason is added."""
    text = (ROOT / "matrix.yaml").read_text(encoding="utf-8")
    line = f"  - {exclude}, reason: a reason that is long enough}}\n"
    path = folder / "matrix.yaml"
    path.write_text(text.replace("\nexcludes:\n", f"\nexcludes:\n{line}"), encoding="utf-8")
    return matrix.load(path)
