"""What an environment is, and which ones no cell can run in."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.harness import small_stack
from trl_compat.checking import importing
from trl_compat.checking.examining import Found, examine
from trl_compat.errors import BadInput
from trl_compat.stacks.matrix import Stack


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "venv"
    small_stack.make(folder)
    return folder


@pytest.fixture
def venv(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "venv", symlinks=True))


def examined(venv: Path, state: Path | None = None) -> Found:
    return examine(venv / "bin" / "python", state or venv.parent / "state")


def refused(venv: Path) -> str:
    with pytest.raises(BadInput) as error:
        examined(venv)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_an_environment_becomes_a_stack_of_its_very_versions(venv: Path) -> None:
    found = examined(venv)
    assert {p: getattr(found.stack, p) for p in small_stack.VERSIONS} == small_stack.VERSIONS
    assert str(found.stack.version("python")).startswith("3.")
    assert found.record.python == venv / "bin" / "python"
    assert found.name.startswith("installed-trl-1.16.0-")


def test_the_stack_survives_the_way_to_a_worker(venv: Path) -> None:
    stack = examined(venv).stack
    assert Stack.model_validate_json(stack.model_dump_json(by_alias=True)) == stack


@pytest.mark.parametrize("package", ["deepspeed", "peft"])
def test_what_is_not_installed_is_no_part_of_the_stack(venv: Path, package: str) -> None:
    small_stack.remove(venv, package)
    stack = examined(venv).stack
    assert getattr(stack, package) == ""
    assert Stack.model_validate_json(stack.model_dump_json(by_alias=True)) == stack


@pytest.mark.parametrize("package", ["torch", "trl", "transformers", "accelerate"])
def test_an_environment_without_what_every_cell_needs_is_refused(venv: Path, package: str) -> None:
    small_stack.remove(venv, package)
    assert f"{package} is not installed there; name the interpreter of" in refused(venv)


def test_everything_that_is_missing_is_named_at_once(venv: Path) -> None:
    for package in ("torch", "trl"):
        small_stack.remove(venv, package)
    assert "torch and trl are not installed there" in refused(venv)


def test_a_package_without_its_modules_is_half_installed(venv: Path) -> None:
    small_stack.remove(venv, "deepspeed", info=False)
    told = "deepspeed 0.19.8 is only half installed: none of its modules is there; reinstall it"
    assert told in refused(venv)


def test_a_package_without_some_of_its_modules_is_half_installed(venv: Path) -> None:
    (small_stack.site(venv) / "trl" / "more.py").unlink()
    assert "1 of its 2 modules are missing, trl/more.py among them" in refused(venv)


def test_a_python_that_is_too_old_is_told_with_the_oldest_that_works(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho \'["3.8.18", "{python}", "/nowhere", ["/nowhere"], []]\'\n')
    python.chmod(0o755)
    with pytest.raises(BadInput, match=r"Python 3\.8\.18: cells require Python 3\.9 or newer"):
        examine(python, tmp_path / "state")


def test_a_folder_is_no_interpreter_but_has_one(venv: Path) -> None:
    with pytest.raises(BadInput, match=r"a folder.*name its interpreter: .*/bin/python$"):
        examine(venv, venv.parent / "state")


@pytest.mark.parametrize("text", ["", "#!/bin/sh\nexit 3\n", "#!/bin/sh\necho hello\n"])
def test_what_is_no_interpreter_is_refused(tmp_path: Path, text: str) -> None:
    program = tmp_path / "python"
    program.write_text(text)
    program.chmod(0o755)
    with pytest.raises(BadInput, match="not a working Python interpreter"):
        examine(program, tmp_path / "state")


def test_an_interpreter_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file"):
        examine(tmp_path / "python", tmp_path / "state")


@pytest.mark.parametrize("inside", ["reports", "lib/reports", "bin/reports"])
def test_results_are_never_written_into_the_environment(venv: Path, inside: str) -> None:
    with pytest.raises(BadInput, match="name another folder: --reports FOLDER"):
        examined(venv, venv / inside)
    assert not (venv / inside).exists()


def test_looking_changes_nothing(venv: Path) -> None:
    (small_stack.site(venv) / "sitecustomize.py").write_text("import trl\n")  # is imported at once

    def everything() -> dict[str, float]:
        return {str(path): path.lstat().st_mtime for path in venv.rglob("*")}

    before = everything()
    examined(venv)
    assert everything() == before


def test_the_same_packages_elsewhere_are_the_same_stack(venv: Path, tmp_path: Path) -> None:
    here = examined(venv)
    other = Path(shutil.copytree(venv, tmp_path / "other", symlinks=True))
    text = (other / "pyvenv.cfg").read_text()
    (other / "pyvenv.cfg").write_text(text)
    info = small_stack.site(other) / "trl-1.16.0.dist-info"
    (info / "INSTALLER").write_text("another\n")
    there = examined(other, tmp_path / "elsewhere")
    assert here.name == there.name
    assert here.record.bytecode.parent.name != there.record.bytecode.parent.name


@pytest.mark.parametrize("change", ["edited", "upgraded", "added"])
def test_other_packages_or_other_files_are_another_stack(venv: Path, change: str) -> None:
    before = examined(venv).record.sha256
    place = small_stack.site(venv)
    match change:
        case "edited":
            (place / "trl" / "more.py").write_text("what = 2\n")
        case "upgraded":
            (place / "peft-0.21.2.dist-info").rename(place / "peft-0.21.3.dist-info")
        case "added":
            small_stack.add(venv, "six", "1.17.0", {"six.py": ""})
    assert examined(venv).record.sha256 != before


def test_this_harness_beside_a_stack_does_not_make_it_another(venv: Path) -> None:
    before = examined(venv).name
    small_stack.add(venv, "trl_compat", "0.1.0", {"trl_compat/__init__.py": ""})
    assert examined(venv).name == before


def test_a_commit_is_taken_for_what_it_is(venv: Path) -> None:
    commit = "724acb971" + "0" * 31
    info = small_stack.site(venv) / "trl-1.16.0.dist-info"
    (info / "direct_url.json").write_text(
        '{"url": "https://github.com/huggingface/trl", '
        f'"vcs_info": {{"vcs": "git", "commit_id": "{commit}"}}}}'
    )
    found = examined(venv)
    assert found.stack.commit("trl") == commit
    assert found.name.startswith("installed-trl-git-724acb971-")


def test_a_tree_of_no_known_commit_is_refused_with_what_can_be_done(venv: Path) -> None:
    place = small_stack.site(venv)
    (place / "trl-1.16.0.dist-info").rename(place / "trl-1.17.0.dev0.dist-info")
    told = refused(venv)
    assert "trl 1.17.0.dev0 is not a release, and its commit is unknown" in told
    assert "install a release there, or a commit by its address" in told
    assert "doctor" not in told


def test_cells_reach_packages_that_are_links_into_a_cache(venv: Path, tmp_path: Path) -> None:
    """As installers make them that are told to link: each file for itself."""
    cache, place = tmp_path / "cache" / "trl", small_stack.site(venv) / "trl"
    shutil.copytree(place, cache)
    (cache / "deep").mkdir()
    (cache / "deep" / "one.py").write_text("")
    (place / "deep").mkdir()
    for path in ("__init__.py", "more.py", "deep/one.py"):
        (place / path).unlink(missing_ok=True)
        (place / path).symlink_to(cache / path)
    record = examined(venv).record
    assert cache in record.readable
    assert cache / "deep" not in record.readable
    assert importing.imports(record, ["trl", "trl.deep.one"]).failed == {}


def test_cells_reach_what_is_installed_from_a_folder(venv: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (project / "mine.py").write_text("")
    (project / "data.bin").write_text("")
    (small_stack.site(venv) / "mine.pth").write_text(f"{project}\n")
    found = examined(venv)
    assert project in found.record.readable
    listed = {path for path in found.record.listing.read_text().split('"') if "project" in path}
    assert listed == {str(project / "mine.py")}  # of somebody's project, the modules only
