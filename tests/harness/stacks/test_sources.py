"""What someone has is read exactly; what is not certain is refused in one sentence."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trl_compat.advisories import Catalogue
from trl_compat.cells.expectations import expect
from trl_compat.cells.outcome import Outcome
from trl_compat.errors import BadInput
from trl_compat.stacks import sources

COMMIT = "724acb9716d5124c83993a3d92b6e6bb8bb73668"


def read(folder: Path, text: str, name: str = "requirements.txt") -> sources.Source:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return sources.read(path)


def test_a_requirements_file_is_read_as_pip_reads_it(tmp_path: Path) -> None:
    (tmp_path / "more.txt").write_text("DeepSpeed == 0.15.2 # not 0.16\n")
    (tmp_path / "constraints.txt").write_text("accelerate==0.34.2\n")
    found = read(
        tmp_path,
        f"""\ufeff# made by hand
--index-url https://example.org/simple
-r more.txt
-c constraints.txt
trl[peft,quantization]==0.12.2 ; python_version >= "3.8" \\
    --hash=sha256:00 \\
    --hash=sha256:01
torch==2.4.1+cu121
peft==0.13.2; sys_platform == "plan9"
transformers>=4.45,<4.47   # a range
accelerate
evaluate @ git+https://github.com/huggingface/evaluate@main
safetensors @ git+https://github.com/huggingface/safetensors.git@{COMMIT}#subdirectory=x
-e .
""",
    )
    assert found.versions == {
        "trl": "0.12.2",
        "torch": "2.4.1+cu121",
        "deepspeed": "0.15.2",
        "accelerate": "0.34.2",
    }
    assert found.unpinned == {"transformers": "<4.47,>=4.45"}
    assert found.commits == {
        "safetensors": f"git+https://github.com/huggingface/safetensors.git@{COMMIT}"
    }
    assert (found.kind, found.complete) == ("requirements", False)
    assert not found.absent("peft")  # a package that is not named may still be installed


def test_a_freeze_is_complete(tmp_path: Path) -> None:
    pins = "trl==0.12.2\ntorch==2.4.1\ntransformers==4.46.3\naccelerate==0.34.2\nnumpy==2\n"
    by_hand = pins + "huggingface_hub==0.26.5\nsafetensors==0.4.5\ndatasets==3.1.0\n"
    # Names what its author knows of; DeepSpeed may be installed by another line.
    assert not read(tmp_path, by_hand).absent("deepspeed")
    rest = ("tokenizers", "PyYAML", "packaging", "multiprocess", "xxhash", "filelock")
    found = read(tmp_path, by_hand + "".join(f"{name}==1.0\n" for name in rest))
    assert found.complete
    assert found.absent("deepspeed")
    # A package without a name may be any.
    unnamed = read(tmp_path, by_hand + "".join(f"{n}==1\n" for n in rest) + "./wheels/mine\n")
    assert not unnamed.absent("deepspeed")


@pytest.mark.parametrize(
    "line",
    [
        f"trl @ git+https://github.com/huggingface/trl@{COMMIT}",
        f"trl @ git+ssh://git@github.com/huggingface/trl@{COMMIT}",
        f"-e git+https://github.com/huggingface/trl@{COMMIT}#egg=trl",
        f"git+https://github.com/huggingface/trl@{COMMIT}#egg=trl",
        f"git+https://github.com/huggingface/trl.git@{COMMIT}",
        f"-e git+https://github.com/huggingface/trl@{COMMIT}",
    ],
)
def test_a_commit_is_a_version_of_its_own(tmp_path: Path, line: str) -> None:
    found = read(tmp_path, line + "\n")
    assert found.commit("trl") == COMMIT
    assert found.version("trl") is None


def test_the_name_of_a_wheel_states_its_version(tmp_path: Path) -> None:
    line = "torch @ https://example.org/whl/torch-2.4.1%2Bcpu-cp311-cp311-linux_x86_64.whl#sha256=0"
    assert read(tmp_path, f"trl==0.12.2\n{line}\n").versions["torch"] == "2.4.1+cpu"


def test_the_output_of_powershell_is_text_too(tmp_path: Path) -> None:
    (tmp_path / "r.txt").write_text("trl==0.12.2\r\n", encoding="utf-16")
    assert sources.read(tmp_path / "r.txt").versions == {"trl": "0.12.2"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("torch==2.4.1\n", "no TRL in it"),
        ("trl==0.12.2; python_version < '3'\n", "no TRL in it"),
        ("trl==0.12.2\ntrl==0.13.0\n", "two versions of trl, 0.12.2 and 0.13.0"),
        ("trl==0.12.2\ntrl>=0.13\n", "pinned to 0.12.2 and required as >=0.13"),
        (
            "trl=0.12.2\n",
            r"requirements.txt:1: this line is not a requirement of trl; write requirements",
        ),
        ("trl @ git+https://github.com/huggingface/trl@main\n", "'main', a branch or tag"),
        ("trl @ git+https://github.com/huggingface/trl\n", "default branch"),
        ("trl @ https://example.org/trl.zip\n", "whose file name has no version"),
        ("-e ./trl\n", "folder ./trl, whose commit is unknown"),
        ("-r missing.txt\n", r"requirements.txt:1: .*missing.txt: no such file"),
        ("trl\0\n", "not a text file"),
    ],
)
def test_what_is_not_certain_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        read(tmp_path, text)


UV = """
version = 1
requires-python = ">=3.11"
[[package]]
name = "mine"
version = "0.1.0"
source = { virtual = "." }
dependencies = [{ name = "trl" }, { name = "old", marker = "sys_platform == 'plan9'" }]
[package.optional-dependencies]
zero = [{ name = "deepspeed" }]
[[package]]
name = "trl"
version = "0.12.2"
source = { registry = "https://pypi.org/simple" }
dependencies = [
  { name = "torch", version = "2.4.1", source = { registry = "a" }, marker = "os_name == 'x'" },
  { name = "torch", version = "2.4.1+cpu", source = { registry = "b" }, marker = "os_name != 'x'" },
]
[[package]]
name = "torch"
version = "2.4.1"
source = { registry = "a" }
[[package]]
name = "torch"
version = "2.4.1+cpu"
source = { registry = "b" }
[[package]]
name = "deepspeed"
version = "0.15.2"
source = { registry = "https://pypi.org/simple" }
[[package]]
name = "old"
version = "1"
source = { registry = "https://pypi.org/simple" }
dependencies = [{ name = "peft" }]
[[package]]
name = "peft"
version = "0.1"
source = { registry = "https://pypi.org/simple" }
"""


def test_a_uv_lock_is_walked_for_this_platform(tmp_path: Path) -> None:
    found = read(tmp_path, UV, "uv.lock")
    assert found.versions == {"trl": "0.12.2", "torch": "2.4.1+cpu", "deepspeed": "0.15.2"}
    assert found.absent("peft")


def test_a_uv_lock_with_two_versions_here_is_refused(tmp_path: Path) -> None:
    both = UV.replace(", marker = \"os_name == 'x'\"", "").replace(
        ", marker = \"os_name != 'x'\"", ""
    )
    with pytest.raises(BadInput, match=r"two versions of torch, 2\.4\.1 and 2\.4\.1\+cpu"):
        read(tmp_path, both, "uv.lock")


def test_a_uv_lock_whose_extras_exclude_each_other_is_refused(tmp_path: Path) -> None:
    chosen = UV.replace("os_name == 'x'", "extra == 'extra-4-mine-gpu'")
    chosen = chosen.replace("os_name != 'x'", "extra == 'extra-4-mine-cpu'")
    with pytest.raises(BadInput, match=r"two versions of torch.*uv export --extra"):
        read(tmp_path, chosen, "uv.lock")
    one = chosen.replace("2.4.1+cpu", "2.4.1").replace('registry = "b"', 'registry = "a"')
    only = one.rpartition('[[package]]\nname = "torch"')
    rest = only[2].partition("[[package]]")
    assert read(tmp_path, only[0] + "[[package]]" + rest[2], "uv.lock").versions["torch"] == "2.4.1"


def test_a_uv_lock_takes_trl_from_git(tmp_path: Path) -> None:
    registry = 'version = "0.12.2"\nsource = { registry = "https://pypi.org/simple" }'
    url = f"https://github.com/huggingface/trl?rev=724acb971#{COMMIT}"
    git = f'version = "0.15.0.dev0"\nsource = {{ git = "{url}" }}'
    assert registry in UV
    found = read(tmp_path, UV.replace(registry, git), "uv.lock")
    assert found.commits["trl"] == f"git+https://github.com/huggingface/trl@{COMMIT}"


PYLOCK = f"""
lock-version = "1.0"
created-by = "test"
requires-python = ">=3.9"
[[packages]]
name = "trl"
vcs = {{ type = "git", url = "https://github.com/huggingface/trl", commit-id = "{COMMIT}" }}
[[packages]]
name = "torch"
version = "2.4.1"
marker = "sys_platform == 'plan9'"
sdist = {{ url = "https://example.org/torch-2.4.1.tar.gz", hashes = {{ sha256 = "0" }} }}
[[packages]]
name = "torch"
version = "2.4.1+cpu"
marker = "sys_platform != 'plan9'"
sdist = {{ url = "https://example.org/torch-2.4.1+cpu.tar.gz", hashes = {{ sha256 = "0" }} }}
[[packages]]
name = "peft"
version = "0.13.2"
marker = "'x' in extras"
sdist = {{ url = "https://example.org/peft-0.13.2.tar.gz", hashes = {{ sha256 = "0" }} }}
"""


def test_a_pylock_is_read_with_its_markers(tmp_path: Path) -> None:
    found = read(tmp_path, PYLOCK, "pylock.gpu.toml")
    assert (found.kind, found.versions) == ("pylock", {"torch": "2.4.1+cpu"})
    assert found.commit("trl") == COMMIT


POETRY = f"""
[[package]]
name = "trl"
version = "0.12.2"
optional = false
[[package]]
name = "torch"
version = "2.4.1"
markers = "sys_platform == 'plan9'"
[[package]]
name = "torch"
version = "2.5.0"
markers = {{ main = "sys_platform != 'plan9'", dev = "os_name == 'x'" }}
[[package]]
name = "accelerate"
version = "1.0.0"
[package.source]
type = "git"
url = "https://github.com/huggingface/accelerate.git"
reference = "main"
resolved_reference = "{COMMIT}"
[metadata]
lock-version = "2.1"
python-versions = ">=3.10"
"""


def test_a_poetry_lock_is_read_with_its_markers(tmp_path: Path) -> None:
    found = read(tmp_path, POETRY, "poetry.lock")
    assert (found.kind, found.versions) == ("poetry.lock", {"torch": "2.5.0", "trl": "0.12.2"})
    assert found.commit("accelerate") == COMMIT


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        ("version = 1\n[[", "uv.lock", "not valid TOML"),
        ("version = 2\n[[package]]\nname='trl'\n", "uv.lock", "uv.lock of version 1, the only"),
        ('lock-version = "9.0"\ncreated-by="x"\npackages=[]\n', "pylock.toml", "not supported"),
        ('lock-version = "1.0"\npackages=[]\n', "pylock.toml", "created-by"),
        ("a = 1\n", "other.lock", "not a uv.lock, pylock.toml or poetry.lock"),
        ("", "pyproject.toml", "ranges, not versions"),
        (POETRY.replace(" == 'plan9'", " != 'plan9'"), "poetry.lock", "two versions of torch"),
        (POETRY.replace("sys_platform == 'plan9'", "plan9"), "poetry.lock", "poetry.lock: "),
    ],
)
def test_a_lock_that_cannot_be_read_is_refused(
    tmp_path: Path, text: str, name: str, said: str
) -> None:
    with pytest.raises(BadInput, match=said):
        read(tmp_path, text, name)


def mutations(data: Any) -> Iterator[Any]:
    """A document with each of its parts, one by one, replaced by something else, or gone."""
    children = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in list(children):
        rest = {k: v for k, v in data.items() if k != key} if isinstance(data, dict) else []
        yield rest
        junks: tuple[Any, ...] = (7, "x", [], {}, [7], True, [{}])
        for junk in junks:
            changed = data.copy()
            changed[key] = junk
            yield changed
        if isinstance(value, dict | list):
            for inner in mutations(value):
                changed = data.copy()
                changed[key] = inner
                yield changed


@pytest.mark.parametrize(
    ("name", "text"), [("uv.lock", UV), ("pylock.toml", PYLOCK), ("poetry.lock", POETRY)]
)
def test_a_damaged_lock_is_read_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    path = tmp_path / name
    tried = refused = 0
    for damaged in mutations(tomllib.loads(text)):
        monkeypatch.setattr("trl_compat.files.reading.toml_of", lambda _, d=damaged: d)
        tried += 1
        try:
            sources.read(path)
        except BadInput:
            refused += 1
    assert tried > refused > 10


def test_only_packages_under_test_must_be_certain(tmp_path: Path) -> None:
    found = read(tmp_path, "trl==0.12.2\nnumpy==1.26.4\nnumpy==2.0.0\npytz===2004d\n")
    assert found.notes == (
        "two versions of numpy, 1.26.4 and 2.0.0, both for this machine",
        "pytz 2004d: not a version",
    )
    assert not found.absent("python")


def test_expectations_work_on_what_was_read(tmp_path: Path, catalogue: Catalogue) -> None:
    released = read(tmp_path, "trl==0.12.2\ntransformers==4.46.3\n")
    tree = read(tmp_path, f"trl @ git+https://github.com/huggingface/trl@{COMMIT}\n")
    fixed = read(tmp_path, "trl==1.12.0\ntransformers==5.0.0\n")
    for source, outcome in (
        (released, Outcome.REPRODUCED),
        (tree, Outcome.REPRODUCED),
        (fixed, Outcome.PASS),
    ):
        assert expect(source, catalogue["saving"], "zero3", catalogue.masks).outcome is outcome


def environment(folder: Path, **packages: str) -> Path:
    for name, version in packages.items():
        info = folder / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    return folder


def test_an_environment_is_read_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment(tmp_path, trl="0.12.2", torch="2.4.1+cpu", deepspeed="0.15.2")
    (tmp_path / "torch.py").write_text("raise SystemExit('imported')")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    found = sources.installed()
    assert found.versions == {"trl": "0.12.2", "torch": "2.4.1+cpu", "deepspeed": "0.15.2"}
    assert found.python == ".".join(str(part) for part in sys.version_info[:3])
    assert found.absent("peft")


def test_an_environment_knows_its_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment(tmp_path, trl="0.15.0.dev0")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(BadInput, match=r"trl 0\.15\.0\.dev0 is not a release"):
        sources.installed()
    origin = {"url": "https://github.com/huggingface/trl", "vcs_info": {"commit_id": COMMIT}}
    (tmp_path / "trl-0.15.0.dev0.dist-info" / "direct_url.json").write_text(json.dumps(origin))
    assert sources.installed().commit("trl") == COMMIT


def test_another_interpreter_is_asked_where_its_packages_are(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no TRL in it"):
        sources.installed(Path(sys.executable))
    with pytest.raises(BadInput, match="no such file"):
        sources.installed(tmp_path / "python")
    (tmp_path / "python").write_text("")
    with pytest.raises(BadInput, match="not a working Python interpreter"):
        sources.installed(tmp_path / "python")
