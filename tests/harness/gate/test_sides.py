"""What a side of a gate may be: each taken exactly, or refused with a sentence."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from trl_compat.errors import BadInput
from trl_compat.gate import sides
from trl_compat.gate.sides import GateSide, SideOptions
from trl_compat.stacks.environments import (
    NoWheel,
    Unavailable,
    Unresolvable,
    WrongFile,
    interpreters,
    locks,
    sdists,
    user_locks,
)
from trl_compat.stacks.environments.interpreters import Interpreter
from trl_compat.stacks.matrix import Matrix, Stack, load

A, B = "a" * 64, "b" * 64
INDEX, MINE = "1" * 64, "2" * 64
DAY = datetime.date(2026, 11, 21)
SIX = {
    "torch": "2.4.1",
    "trl": "0.12.2",
    "transformers": "4.46.3",
    "deepspeed": "0.15.2",
    "accelerate": "0.34.2",
    "peft": "0.13.2",
}
# What every freeze with TRL has besides.
REST = {"numpy": "1.26.4", "safetensors": "0.4.5", "huggingface-hub": "0.26.0"} | dict.fromkeys(
    ("datasets", "tokenizers", "pyyaml", "packaging", "multiprocess", "xxhash", "filelock"), "1.0"
)


@pytest.fixture(autouse=True)
def uv(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """uv as far as it is needed: pins come back with a hash each; says what it was asked."""
    asked: list[str] = []

    def compiles(arguments: Sequence[str], *, text: str | None = None) -> tuple[str, str]:
        lines = (text or "").split()
        asked.append(" ".join([*arguments[:2], *lines]))
        if "trl==99" in lines:
            raise Unresolvable("Because there is no version of trl==99 and you require trl==99, no")
        if "trl==7" in lines:
            raise Unresolvable("Because trl==7 depends on transformers>=9 and you require less")
        if "trl==8" in lines:
            raise Unavailable("error sending request")
        if "flash-attn==2.7.0" in lines:
            raise NoWheel("flash-attn", "Because flash-attn==2.7.0 has no usable wheels")
        if "numpy==0.1" in lines:
            raise WrongFile("numpy==0.1: the file on the index does not match")
        found = [line if "==" in line else f"{line}==1.0" for line in lines]
        out = "".join(f"{line} \\\n    --hash=sha256:{INDEX}\n" for line in found)
        return (
            out,
            'warning: `urllib3==2.0.0` is yanked (reason: "bad")' if "urllib3" in out else "",
        )

    class Resolution:
        def __init__(self, lines: list[str], *_: object) -> None:
            self._lines = lines

        def text(self) -> str:
            return compiles(["pip", "compile"], text="\n".join(self._lines))[0]

    def sdist(name: str, version: str) -> sdists.Sdist:
        return sdists.Sdist(name, version, "https://files.test/x.tar.gz", INDEX)

    monkeypatch.setattr(user_locks, "uv_said", compiles)
    monkeypatch.setattr(user_locks, "Resolution", Resolution)
    monkeypatch.setattr(sdists, "find", sdist)
    monkeypatch.setattr(
        sdists, "entry_of", lambda s: f"{s.name}=={s.version} \\\n    --hash=sha256:{s.sha256}\n"
    )
    monkeypatch.setattr(interpreters, "find", lambda wanted: Interpreter("python", f"{wanted}.1"))
    return asked


@pytest.fixture
def made(tmp_path: Path) -> SideOptions:
    return SideOptions(tmp_path / "locks", sides.THIS_PYTHON, DAY)


def pins(versions: dict[str, str], digest: str = "") -> str:
    more = f" \\\n    --hash=sha256:{digest}" if digest else ""
    return "".join(f"{name}=={version}{more}\n" for name, version in versions.items())


def at(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def versions_of(side: GateSide) -> dict[str, str]:
    return {name: getattr(side.stack, name) for name in SIX}


def test_a_stack_of_the_matrix_is_itself(
    matrix: Matrix, made: SideOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "resolve", lambda *_: locks.lock_of("trl==0.11.4\n"))
    side = sides.side("old", matrix, made)
    assert (side.name, side.stack) == ("old", matrix.stacks["old"])


def test_a_freeze_is_taken_as_it_is_and_named_after_its_digest(
    matrix: Matrix, made: SideOptions, tmp_path: Path, uv: list[str]
) -> None:
    path = at(tmp_path / "requirements.txt", pins(SIX | REST))
    side = sides.side(path, matrix, made)
    assert versions_of(side) == SIX
    assert re.fullmatch(r"lock-[0-9a-f]{12}", side.name)
    assert side.stack.lock is not None
    assert locks.lock_of(side.stack.lock.read_text()) == side.lock
    assert len(uv) == 1  # nothing was resolved
    assert sides.side(path, matrix, made).name == side.name
    other = at(tmp_path / "other.txt", pins(SIX | REST | {"numpy": "1.26.3"}))
    assert sides.side(other, matrix, made).name != side.name


def test_a_hashed_file_is_complete_or_refused(
    matrix: Matrix, made: SideOptions, tmp_path: Path, uv: list[str]
) -> None:
    side = sides.side(at(tmp_path / "whole.txt", pins(SIX, MINE)), matrix, made)
    assert versions_of(side) == SIX
    assert len(uv) == 1
    part = {name: version for name, version in SIX.items() if name != "torch"}
    with pytest.raises(BadInput, match="has TRL but no torch, which TRL requires"):
        sides.side(at(tmp_path / "part.txt", pins(part, MINE)), matrix, made)


def test_the_hashes_of_a_lock_are_kept(matrix: Matrix, made: SideOptions, tmp_path: Path) -> None:
    path = at(tmp_path / "requirements.txt", pins(SIX | REST, MINE))
    text = sides.side(path, matrix, made).lock.text
    assert MINE in text
    assert INDEX not in text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "uv.lock",
            "[[package]]\nname = 'trl'\nversion = '0.12.2'\n"
            f"sdist = {{hash = 'sha256:{A}'}}\nwheels = [{{hash = 'sha256:{B}'}}]",
        ),
        (
            "pylock.toml",
            "[[packages]]\nname = 'TRL'\nversion = '0.12.2'\n"
            f"wheels = [{{hashes = {{sha256 = '{A}'}}}}, {{hashes = {{sha256 = '{B}'}}}}]",
        ),
        (
            "poetry.lock",
            "[[package]]\nname = 'trl'\nversion = '0.12.2'\n"
            f"files = [{{hash = 'sha256:{B}'}}, {{hash = 'sha256:{A}'}}]",
        ),
        ("r.txt", f"trl==0.12.2 \\\n    --hash=sha256:{A} \\\n    --hash=sha256:{B}\npeft==1\n"),
    ],
)
def test_hashes_are_found_in_every_format(tmp_path: Path, name: str, text: str) -> None:
    path = Path(at(tmp_path / name, text))
    assert user_locks.hashes_in(path) == {("trl", "0.12.2"): [f"sha256:{A}", f"sha256:{B}"]}


def test_what_is_no_hash_is_refused(matrix: Matrix, made: SideOptions, tmp_path: Path) -> None:
    path = at(tmp_path / "requirements.txt", pins(SIX | REST, "00"))
    with pytest.raises(BadInput, match="'sha256:00' is not a hash"):
        sides.side(path, matrix, made)


def test_a_lock_without_deepspeed_is_a_stack_without_it(
    matrix: Matrix, made: SideOptions, tmp_path: Path
) -> None:
    without = {name: version for name, version in SIX.items() if name != "deepspeed"}
    side = sides.side(at(tmp_path / "requirements.txt", pins(without | REST)), matrix, made)
    assert side.stack.deepspeed == ""
    assert side.stack.version("deepspeed") is None
    assert "has no deepspeed: failures that require it are not run" in side.notes


def test_a_file_that_names_only_the_top_is_resolved_and_says_so(
    matrix: Matrix, made: SideOptions, tmp_path: Path, uv: list[str]
) -> None:
    side = sides.side(at(tmp_path / "requirements.txt", pins(SIX)), matrix, made)
    assert versions_of(side) == SIX
    assert "not a complete lock: resolved as of 2026-11-21" in side.notes
    assert len(uv) > 1


def test_requirements_get_what_they_do_not_name(matrix: Matrix, made: SideOptions) -> None:
    side = sides.side("trl==0.18.2 transformers==4.52.4", matrix, made)
    assert side.stack.trl == "0.18.2"
    assert side.stack.peft == "1.0"
    assert any("torch, deepspeed, accelerate, peft not pinned" in n for n in side.notes)


def test_a_lock_for_another_python_says_for_which_its_markers_were_read(
    matrix: Matrix, made: SideOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sides, "THIS_PYTHON", "3.99")
    side = sides.side(at(tmp_path / "requirements.txt", pins(SIX | REST)), matrix, made)
    assert f"evaluated for Python 3.99; it is installed for {made.python}" in "".join(side.notes)


def test_yanked_releases_are_named(matrix: Matrix, made: SideOptions, tmp_path: Path) -> None:
    path = at(tmp_path / "requirements.txt", pins(SIX | REST | {"urllib3": "2.0.0"}))
    assert sides.side(path, matrix, made).yanked == ("urllib3==2.0.0 (bad)",)


def test_what_has_no_wheel_is_refused_by_its_name_unless_it_is_allowed(
    matrix: Matrix, made: SideOptions, tmp_path: Path
) -> None:
    path = at(tmp_path / "requirements.txt", pins(SIX | REST | {"flash-attn": "2.7.0"}, MINE))
    with pytest.raises(BadInput, match=r"flash-attn 2\.7\.0 has no wheel .*--build flash-attn$"):
        sides.side(path, matrix, made)
    side = sides.side(path, matrix, replace(made, build=frozenset({"flash-attn"})))
    assert side.lock.packages["flash-attn"] == "2.7.0"
    assert side.stack.build == ("flash-attn",)


def test_deepspeed_is_known_to_have_no_wheel(
    matrix: Matrix, made: SideOptions, tmp_path: Path, uv: list[str]
) -> None:
    side = sides.side(at(tmp_path / "requirements.txt", pins(SIX | REST)), matrix, made)
    assert side.lock.packages["deepspeed"] == "0.15.2"
    assert side.stack.build == ()
    assert "deepspeed" not in uv[0]  # nobody asked uv for a wheel of it


COMMIT = "git+https://github.com/huggingface/trl@724acb9716d5124c83993a3d92b6e6bb8bb73668"


def test_git_is_refused_unless_it_is_allowed(
    matrix: Matrix, made: SideOptions, tmp_path: Path, uv: list[str]
) -> None:
    rest = {name: version for name, version in SIX.items() if name != "trl"} | REST
    path = at(tmp_path / "requirements.txt", pins(rest) + f"trl @ {COMMIT}\n")
    with pytest.raises(BadInput, match=r"trl comes from git \(git\+https.*; .*--build trl$"):
        sides.side(path, matrix, made)
    assert uv == []
    side = sides.side(path, matrix, replace(made, build=frozenset({"trl"})))
    assert side.stack.trl == COMMIT


@pytest.mark.parametrize(
    "url",
    ["https://a.test/trl-0.12.2.tar.gz#sha256=00", "file:///home/a/trl-0.12.2.tar.gz"],
)
def test_a_source_package_from_elsewhere_is_refused(
    matrix: Matrix, made: SideOptions, tmp_path: Path, uv: list[str], url: str
) -> None:
    rest = {name: version for name, version in SIX.items() if name != "trl"} | REST
    path = at(tmp_path / "requirements.txt", pins(rest) + f"trl @ {url}\n")
    for allowed in (made, replace(made, build=frozenset({"trl"}))):
        with pytest.raises(BadInput, match=r"trl would have to be built from .*trl-0"):
            sides.side(path, matrix, allowed)
    assert uv == []


def test_a_wheel_from_elsewhere_is_taken_from_the_index_which_is_said(
    matrix: Matrix, made: SideOptions, tmp_path: Path
) -> None:
    rest = {name: version for name, version in SIX.items() if name != "torch"} | REST
    url = "https://download.pytorch.test/whl/torch-2.4.1%2Bcpu-cp311-cp311-linux_x86_64.whl"
    path = at(tmp_path / "requirements.txt", pins(rest) + f"torch @ {url}\n")
    side = sides.side(path, matrix, made)
    assert side.lock.packages["torch"] == "2.4.1+cpu"
    assert f"torch is installed from the index, not from {url}" in side.notes


def test_a_file_with_another_hash_is_said(
    matrix: Matrix, made: SideOptions, tmp_path: Path
) -> None:
    path = at(tmp_path / "requirements.txt", pins(SIX | REST | {"numpy": "0.1"}, MINE))
    with pytest.raises(BadInput, match=r"numpy==0\.1: the file on the index does not match"):
        sides.side(path, matrix, made)


@pytest.mark.parametrize("python", ["3.6", "2.7", "banana", "3"])
def test_a_python_that_no_cell_can_run_on_is_refused(
    matrix: Matrix, made: SideOptions, tmp_path: Path, python: str
) -> None:
    asked = replace(made, python=python)
    path = at(tmp_path / "requirements.txt", pins(SIX | REST))
    for text in (path, "trl==0.18.2"):
        with pytest.raises(
            BadInput, match=r"cells require Python 3\.9 or newer|not a Python version"
        ):
            sides.side(text, matrix, asked)


def test_a_stack_that_cannot_be_is_no_slip_of_the_user(matrix: Matrix, made: SideOptions) -> None:
    with pytest.raises(sides.NoSuchStack, match="trl==7 depends on transformers>=9"):
        sides.side("trl==7", matrix, made)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("trl==99", "trl==99: there is no version of trl==99 on the package indexes"),
        ("trl==8", "trl==8: a source cannot be reached: error sending request"),
        ("olds", "if you meant a stack: unknown stack 'olds'; did you mean 'old'"),
        ("missing.txt", "missing.txt: no such file"),
        ("", "the stack is empty"),
        ("trl==", "is neither a file nor 'current' nor requirements"),
        ("requests==2.0", "names none of torch, trl"),
        ("trl[vllm]==0.18.2", "URLs, extras and markers are not supported here"),
        ("trl@git+https://github.com/huggingface/trl@abc", "URLs, extras and markers"),
        ("trl;python_version>'3'", "URLs, extras and markers"),
    ],
)
def test_what_means_nothing_is_refused_with_a_sentence(
    matrix: Matrix, made: SideOptions, text: str, said: str
) -> None:
    with pytest.raises(BadInput, match=said):
        sides.side(text, matrix, made)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (pins({n: v for n, v in SIX.items() if n != "trl"} | REST), "no TRL in it"),
        (pins(SIX | REST) + "trl==0.13.0\n", "two versions of trl"),
        ("trl = = 1\n", "this line is not a requirement of trl"),
        ("trl[peft]==0.12.2\ntorch==2.4.1\ntransformers\naccelerate\n", "requires extras"),
        ("trl @ git+https://github.com/huggingface/trl@main\n", "may move"),
    ],
)
def test_a_file_that_is_no_stack_is_refused_with_a_sentence(
    matrix: Matrix, made: SideOptions, tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(BadInput, match=said):
        sides.side(at(tmp_path / "requirements.txt", text), matrix, made)


def test_a_lock_without_what_trl_needs_is_refused(
    matrix: Matrix, made: SideOptions, tmp_path: Path
) -> None:
    text = "[metadata]\nlock-version = '2.1'\n[[package]]\nname = 'trl'\nversion = '0.12.2'\n"
    with pytest.raises(BadInput, match="has TRL but no torch and no transformers"):
        sides.side(at(tmp_path / "poetry.lock", text), matrix, made)


LOCKED = """
models: [m]
profiles: {p: {about: a, select: [{}]}}
stacks:
  mine: {as_of: 2026-11-21, torch: 2.4.1, trl: 0.12.2, transformers: 4.46.3, accelerate: 0.34.2, lock: mine.txt}
"""  # noqa: E501


def test_a_lock_in_the_matrix_is_honoured_and_lies_beside_it(tmp_path: Path) -> None:
    path = Path(at(tmp_path / "matrix.yaml", LOCKED))
    without = {name: v for name, v in SIX.items() if name not in ("deepspeed", "peft")}
    at(tmp_path / "mine.txt", pins(without | {"torch": "2.4.1+cpu"}, MINE))
    stack = load(path).stacks["mine"]
    interpreter = Interpreter("python", "3.11.1")
    lock = locks.resolve(stack, interpreter)
    assert lock.packages["torch"] == "2.4.1+cpu"
    assert locks.kept(stack, interpreter) == lock.sha256


@pytest.mark.parametrize(
    ("change", "said"),
    [({"trl": "0.13.0"}, "has trl 0.13.0, its stack 0.12.2"), ({"peft": "1"}, "its stack none")],
)
def test_a_lock_about_other_versions_than_its_stack_is_refused(
    tmp_path: Path, change: dict[str, str], said: str
) -> None:
    without = {name: v for name, v in SIX.items() if name not in ("deepspeed", "peft")}
    path = at(tmp_path / "mine.txt", pins(without | change, MINE))
    stack = Stack.model_validate({"as_of": DAY, **without, "lock": path})
    with pytest.raises(BadInput, match=said):
        locks.resolve(stack, Interpreter("python", "3.11.1"))


def test_only_a_stack_with_a_lock_may_lack_a_package() -> None:
    without = {name: version for name, version in SIX.items() if name != "peft"}
    with pytest.raises(ValueError, match="peft: missing"):
        Stack.model_validate({"as_of": DAY, **without})
