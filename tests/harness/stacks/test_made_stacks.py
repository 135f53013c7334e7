"""A stack from its requirements to its environment, of packages that are made by hand.

Nothing is mocked: uv resolves and installs, git fetches, sources are built.  There is no network.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.harness import sources
from trl_compat.errors import BadInput
from trl_compat.gate import sides
from trl_compat.machine import isolation
from trl_compat.stacks.environments import (
    BuildRefused,
    Unresolvable,
    WrongFile,
    build,
    cache,
    interpreters,
    locks,
)
from trl_compat.stacks.environments.damage import Depth
from trl_compat.stacks.environments.without_wheels import KNOWN
from trl_compat.stacks.matrix import Matrix, Stack

DAY = datetime.date(2026, 11, 21)
TRL = "https://github.com/huggingface/trl"
WHEELS = {"transformers": "4.46.3", "accelerate": "0.34.2", "peft": "0.13.2", "numpy": "2.0.0"}
VERSIONS: Mapping[str, Any] = {
    "as_of": DAY,
    "python": sides.THIS_PYTHON,
    "torch": "2.4.1",
    "trl": "0.12.2",
    "deepspeed": "0.15.2",
    **{name: version for name, version in WHEELS.items() if name != "numpy"},
}
STACK = Stack.model_validate(VERSIONS)
SECRET = "hf_secret"
ZERO = "0" * 64


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("build")


@pytest.fixture
def links(tmp_path: Path, tools: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All that the stack needs; DeepSpeed as a source package whose build imports torch."""
    folder = tmp_path / "links"
    folder.mkdir()
    for name, version in WHEELS.items():
        sources.wheel(folder, name, version)
    sources.wheel(folder, "torch", "2.4.1+cpu", "numpy")
    sources.wheel(folder, "trl", "0.12.2", "transformers", "accelerate")
    for tool in KNOWN["deepspeed"].tools:
        if tool != "numpy":
            sources.wheel(folder, tool.replace("-", "_"), "1.0")
    imports = "import torch; os.environ['TORCH'] = torch.version"
    sources.sdist(
        folder, "deepspeed", "0.15.2", sources.files("deepspeed", "0.15.2", before=imports)
    )
    sources.sdist(folder, "sly", "1.0", sources.files("sly", "1.0", before=writes(tmp_path)))
    sources.only_from(folder, monkeypatch, tmp_path)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "build").symlink_to(tools)
    monkeypatch.setenv("HF_TOKEN", SECRET)
    return folder


def writes(folder: Path) -> str:
    """What a hostile build does first."""
    return sources.reaching_out(folder, ("127.0.0.1", 9))


def nothing_seen(folder: Path, environment: build.Environment, package: str) -> bool:
    """Whether a build that tried to saw nothing of the user, and could write nothing of it."""
    assert seen(environment, package)["tried"], "it was not built from its source"
    planted = folder / "planted"
    if "writing" in isolation.available():
        assert not planted.exists()
    told = planted.read_text() if planted.exists() else ""
    return SECRET not in told + str(seen(environment, package))


def made(stack: Stack) -> build.Environment:
    return build.ensure("made", stack)


def seen(environment: build.Environment, package: str) -> dict[str, Any]:
    """In what surroundings a package was built."""
    (site,) = environment.folder.glob("lib/python*/site-packages")
    found: dict[str, Any] = json.loads((site / package / "seen.json").read_text())
    return found


@pytest.fixture(autouse=True)
def not_in_use(tmp_path: Path) -> Any:
    yield
    for folder in (tmp_path / "cache").glob("environments/*"):
        if folder.is_dir():
            build.put_aside(folder)


def test_deepspeed_is_built_against_its_torch_and_locked_by_its_source(links: Path) -> None:
    environment = made(STACK)
    lock = environment.lock
    assert lock.torch == "2.4.1+cpu"
    assert set(lock.packages) == {"torch", "trl", "deepspeed", *WHEELS}
    assert seen(environment, "deepspeed")["env"]["TORCH"] == "2.4.1+cpu"
    assert seen(environment, "deepspeed")["env"]["DS_BUILD_OPS"] == "0"
    assert SECRET not in str(seen(environment, "deepspeed"))
    assert build.wrong_with(environment, Depth.CONTENTS) == ""
    assert made(STACK).instance == environment.instance
    assert locks.kept(STACK, interpreters.own()) == lock.sha256


def test_a_commit_of_trl_is_built_from_its_tree(
    links: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tmp_path / "trl"
    commit = sources.repository(tree, sources.files("trl", "0.13.0.dev0"))
    sources.instead_of(TRL, tree, monkeypatch)
    stack = STACK.model_copy(update={"trl": f"git+{TRL}@{commit[:9]}"})
    environment = made(stack)
    assert environment.lock.packages["trl"] == f"git+{TRL}@{commit}"
    assert "trl==0.13.0.dev0" in environment.made.packages
    assert SECRET not in str(seen(environment, "trl"))
    assert build.wrong_with(environment, Depth.CONTENTS) == ""


def test_a_stack_that_somebody_wrote_down_may_build_what_it_needs(
    links: Path, tmp_path: Path
) -> None:
    environment = made(STACK.model_copy(update={"with_": ("sly==1.0",)}))
    assert nothing_seen(tmp_path, environment, "sly")


@pytest.mark.parametrize("build_", [(), ("trl",)])
def test_a_stack_may_say_that_nothing_else_is_built(
    links: Path, tmp_path: Path, build_: tuple[str, ...]
) -> None:
    with pytest.raises(BuildRefused, match=r"sly 1\.0 has no wheel"):
        made(STACK.model_copy(update={"with_": ("sly==1.0",), "build": build_}))
    assert not (tmp_path / "planted").exists()


def test_a_build_that_fails_makes_a_stack_unresolvable(links: Path) -> None:
    failing = sources.files("peft", "99.0", before="raise SystemExit('a compiler of 1987')")
    sources.sdist(links, "peft", "99.0", failing)
    with pytest.raises(Unresolvable, match=r"building peft 99\.0.*1987"):
        made(STACK.model_copy(update={"peft": "99.0"}))


def test_another_file_under_a_locked_name_is_no_resolution_failure(
    links: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = locks.resolve(STACK, interpreters.own())
    sources.wheel(links, "peft", "0.13.2", "numpy")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "another"))  # as on another day
    with pytest.raises(WrongFile, match=r"peft==0\.13\.2: the file on the index does not match"):
        made(STACK)
    assert locks.resolve(STACK, interpreters.own()) == lock


def test_an_interpreter_that_markers_leave_something_out_for_is_no_damage(
    links: Path, tmp_path: Path
) -> None:
    lock = locks.resolve(STACK, interpreters.own()).text
    path = tmp_path / "mine.txt"
    path.write_text(lock + "colorama==1 ; sys_platform == 'win32' --hash=sha256:" + ZERO + "\n")
    environment = made(STACK.model_copy(update={"lock": path, "torch": "2.4.1"}))
    assert build.wrong_with(environment, Depth.CONTENTS) == ""


@pytest.fixture
def asked(tmp_path: Path) -> sides.SideOptions:
    return sides.SideOptions(tmp_path / "locks", sides.THIS_PYTHON, DAY)


def locked(tmp_path: Path, *more: str) -> str:
    text = locks.resolve(STACK, interpreters.own()).text
    path = tmp_path / "requirements.txt"
    path.write_text("".join([text, *(f"{line}\n" for line in more)]))
    return str(path)


def test_a_gate_builds_nothing_that_a_lock_names(
    links: Path, tmp_path: Path, asked: sides.SideOptions, matrix: Matrix
) -> None:
    path = locked(tmp_path, f"sly==1.0 --hash=sha256:{ZERO}")
    with pytest.raises(BadInput) as error:
        sides.side(path, matrix, asked)
    assert str(error.value) == (
        f"{path}: sly 1.0 has no wheel for this machine; it would have to be built, which runs its "
        "code; if you trust it, allow the build: --build sly"
    )
    for text in ("trl==0.12.2 sly", "trl==0.12.2 sly>=0.5"):
        with pytest.raises(BadInput):
            sides.side(text, matrix, asked)
    assert not (tmp_path / "planted").exists()


def test_what_is_allowed_is_built_without_the_users_environment(
    links: Path, tmp_path: Path, asked: sides.SideOptions, matrix: Matrix
) -> None:
    import hashlib

    digest = hashlib.sha256((links / "sly-1.0.tar.gz").read_bytes()).hexdigest()
    path = locked(tmp_path, f"sly==1.0 --hash=sha256:{digest}")
    side = sides.side(path, matrix, replace(asked, build=frozenset({"sly"})))
    environment = build.ensure(side.name, side.stack)
    assert nothing_seen(tmp_path, environment, "sly")


def test_a_source_with_another_hash_than_the_locks_is_not_built(
    links: Path, tmp_path: Path, asked: sides.SideOptions, matrix: Matrix
) -> None:
    path = locked(tmp_path, f"sly==1.0 --hash=sha256:{ZERO}")
    side = sides.side(path, matrix, replace(asked, build=frozenset({"sly"})))
    with pytest.raises(
        WrongFile, match=r"sly 1\.0: the source package on the index does not match"
    ):
        build.ensure(side.name, side.stack)
    assert not (tmp_path / "planted").exists()


def test_a_gate_fetches_no_git_repository(
    links: Path,
    tmp_path: Path,
    asked: sides.SideOptions,
    matrix: Matrix,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts = {**sources.files("sly", "1.0", before=writes(tmp_path)), "setup.py": writes(tmp_path)}
    commit = sources.repository(tmp_path / "sly", parts)
    sources.instead_of("https://git.test/a/sly", tmp_path / "sly", monkeypatch)
    path = locked(tmp_path, f"sly @ git+https://git.test/a/sly@{commit}")
    with pytest.raises(BadInput, match=r"sly comes from git .*--build sly$"):
        sides.side(path, matrix, asked)
    assert not (cache.root() / "git").exists()
    assert not (tmp_path / "planted").exists()
    side = sides.side(path, matrix, replace(asked, build=frozenset({"sly"})))
    environment = build.ensure(side.name, side.stack)
    assert nothing_seen(tmp_path, environment, "sly")


def test_a_freeze_with_a_package_from_a_folder_of_wheels_can_be_installed(
    links: Path, tmp_path: Path, asked: sides.SideOptions, matrix: Matrix
) -> None:
    lock = locks.resolve(STACK, interpreters.own())
    sources.wheel(links, "safetensors", "0.4.5")
    sources.wheel(links, "huggingface_hub", "0.26.0")
    pins = {**lock.packages, "safetensors": "0.4.5", "huggingface-hub": "0.26.0"}
    path = tmp_path / "freeze.txt"
    path.write_text("".join(f"{name}=={version}\n" for name, version in pins.items()))
    side = sides.side(str(path), matrix, asked)
    environment = build.ensure(side.name, side.stack)
    assert build.wrong_with(environment, Depth.CONTENTS) == ""


def test_requirements_are_resolved_with_deepspeed_built_against_the_torch_that_they_lead_to(
    links: Path, asked: sides.SideOptions, matrix: Matrix
) -> None:
    side = sides.side("trl==0.12.2 transformers<5", matrix, asked)
    assert side.lock.packages["deepspeed"] == "0.15.2"
    assert seen(build.ensure(side.name, side.stack), "deepspeed")["env"]["TORCH"] == "2.4.1+cpu"
