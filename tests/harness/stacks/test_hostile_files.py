"""Any file that a user brings is answered or refused in one sentence, in bounded time and memory.

A pull request can bring any file.  Nothing here is timed: what would not end would never end.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.harness.doctor_runs import CLI, OLD
from tests.harness.hostile import doctor, refused
from tests.harness.lock_texts import WRITERS
from trl_compat import results
from trl_compat.errors import BadInput
from trl_compat.files import reading
from trl_compat.gate import sides
from trl_compat.stacks import sources
from trl_compat.stacks.environments import user_locks as given_locks
from trl_compat.usage import configs, ignores, scripts
from trl_compat.usage.conditions import UsageBuilder


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("pipe", "pipe: not a regular file"),
        ("link.txt", "link.txt: not a regular file"),
        ("loop.txt", "loop.txt: cannot be read"),
        ("socket", "socket: cannot be read"),
        ("folder", "folder: is a folder"),
        ("/dev/zero", "/dev/zero: not a regular file"),
        ("x" * 5000, "cannot be read (File name too long)"),
    ],
)
def test_only_regular_files_are_opened(odd: Path, name: str, said: str) -> None:
    refused(doctor(odd, name), said)
    with pytest.raises(BadInput):
        sources.read(odd / name)
    asked = sides.SideOptions(odd, "3.11", datetime.date(2026, 1, 1))
    table: Any = type("Matrix", (), {"stacks": {}})
    with pytest.raises(BadInput):
        sides.side(str(odd / name), table, asked)


@pytest.mark.parametrize("option", ["--config", "--ds-config", "--script", "--pyproject"])
def test_no_option_waits_for_a_pipe(odd: Path, option: str) -> None:
    refused(doctor(odd, "ok.txt", option, "pipe"), "pipe: not a regular file")


def test_what_is_piped_in_is_read(tmp_path: Path) -> None:
    command = [str(CLI), "doctor", "-", "--format", "json"]
    done = subprocess.run(command, input=OLD.encode(), capture_output=True, check=False)
    assert done.returncode == 1
    assert json.loads(done.stdout)["reports"][0]["source"]["name"] == "standard input"
    done = subprocess.run(command, input=b"\xff", capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (2, b"")


def test_a_file_that_a_requirements_file_names_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for number in range(40):
        named = f"{number + 1}.txt"
        (tmp_path / f"{number}.txt").write_text(f"-r {named}\n-r ./{named}\n-r sub/../{named}\n")
    (tmp_path / "40.txt").write_text("trl==0.12.2\n-r 0.txt\n-c 40.txt\n")
    assert sources.read(tmp_path / "0.txt").versions == {"trl": "0.12.2"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("trl==0.12.2\n-r pipe\n", "r.txt:2: pipe: not a regular file"),
        ("-r https://user:hunter2@example.org/x.txt", "r.txt:1: refers to a file by URL"),
        ("trl==0.12.2" + " " * 40_000 + "x", "r.txt:1: a line of 40012 characters"),
        ("trl==0.12.2\n" + "x==1\n" * 100_000, "r.txt:5001: more than 5000 requirements"),
        ("trl==0." + "1" * 3900, "not a version"),
        ("trl==" + "1" * 5000, "a line of 5005 characters"),
        ("trl==0.12.2; " + "(" * 1500 + "os_name=='x'" + ")" * 1500, "r.txt:1: this line is not"),
        ("trl==0.12.2; python_version ~= 'abc'", "r.txt:1: invalid marker"),
        ("trl==0.12.2; 'a' in extras", "r.txt:1: invalid marker"),
        ("trl==0.12.2; nonsense == 'a'", "r.txt:1: this line is not a requirement of trl"),
        ("_trl_==1\ntrl==1", "r.txt:1: this line is not a requirement; write"),
        ("PASSWORD=hunter2", "r.txt:1: this line is not a requirement; write"),
        ("\nhunter2:x:0:0:root\n", "r.txt:2: this line is not a requirement; write requirements"),
        ("trl @ https://user:hunter2@example.org/trl.zip?t=hunter2", "example.org/trl.zip, whose"),
        ("-e /home/me/trl", "folder /home/me/trl, whose commit is unknown"),
        (b"trl==0.12.2\0", "r.txt: not a text file"),
        ("trl==0.12.2\0".encode("utf-16"), "r.txt: not a text file"),
        (b"\xff\xfe\x00\xd8\x00\xd8", "r.txt:1: not UTF-8"),
        ("trl==0.12.2\n# é\n".encode("latin-1"), "r.txt:2: not UTF-8; save it as UTF-8"),
        (b"trl==0.12.2 # \xed\xa0\x80", "r.txt:1: not UTF-8"),
        (b"x" * (9 << 20), "r.txt: larger than the limit of 8 MiB"),
    ],
)
def test_a_requirements_file_that_cannot_be_read_is_one_sentence(
    odd: Path, text: str | bytes, said: str
) -> None:
    (odd / "r.txt").write_bytes(text if isinstance(text, bytes) else text.encode())
    done = doctor(odd, "r.txt")
    refused(done, said)
    assert b"hunter2" not in done.stderr


@pytest.mark.parametrize(
    "text",
    [
        "#" + " " * 40_000 + "\ntrl==0.12.2\n",
        "trl==0.12.2 " + " " * 400_000 + "# c\n",
        "trl==0.12.2 " + " #" * 400_000,
        "trl==0.12.2 --hash" + " --has" * 200_000,
        "trl==0.12.2 " + " ".join(["--hash=sha256:" + "0" * 64] * 50_000),
        "\n" * 1_000_000 + "trl==0.12.2",
        "\\\n" * 300_000 + "trl==0.12.2",
        "trl==0.12.2\r\n\r\n# end\r\n",
        "\ufefftrl==0.12.2",
        "-e git+https://user:hunter2@example.org/mine\ntrl==0.12.2",
        "git+https://user:hunter2@example.org/mine\ntrl==0.12.2",
        "trl==0.12.2\nnumpy>=" + "1" * 3900,
    ],
)
def test_a_long_line_takes_no_longer_than_its_length(tmp_path: Path, text: str) -> None:
    (tmp_path / "r.txt").write_text(text, encoding="utf-8")
    found = sources.read(tmp_path / "r.txt")
    assert found.versions["trl"] == "0.12.2"
    assert "hunter2" not in " ".join(found.notes)


def test_a_token_in_a_git_url_is_not_printed(tmp_path: Path) -> None:
    commit = "724acb9716d5124c83993a3d92b6e6bb8bb73668"
    line = f"trl @ git+https://me:hunter2@github.com/huggingface/trl@{commit}\n"
    (tmp_path / "r.txt").write_text(line)
    for form in ("text", "json", "markdown", "github", "sarif"):
        done = doctor(tmp_path, "r.txt", "--format", form)
        assert done.returncode == 1
        assert b"hunter2" not in done.stdout + done.stderr


DEEP = "(" * 4000 + "os_name=='x'" + ")" * 4000
UV = 'version = 1\nrequires-python = ">=3.9"\n'
TRL = '[[package]]\nname = "trl"\nversion = "0.12.2"\n'
PYLOCK = 'lock-version = "1.0"\ncreated-by = "x"\n'
POETRY = '[metadata]\nlock-version = "2.1"\n'
ROOT_OF = '[[package]]\nname = "m"\nsource = { virtual = "." }\ndependencies = ['


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("uv.lock", "x = " + "[" * 100_000, "more values than any lock"),
        ("uv.lock", "x = " + "[" * 40_000, "nested too deep"),
        ("uv.lock", "x = " + "{a=" * 40_000, "nested too deep"),
        ("uv.lock", ".".join("a" * 60_000) + " = 1", "uv.lock:1: a key of more than 64 parts"),
        ("uv.lock", "\nx = {" + ".".join(['"."'] * 60_000) + " = 1}", "uv.lock:2: a key of more"),
        ("uv.lock", "[" + " . ".join("a" * 60_000) + "]", "uv.lock:1: a key of more"),
        ("uv.lock", "x = " + "1" * 5000, "an invalid number or date"),
        ("uv.lock", "x = 2024-13-45", "not valid TOML (line 1, column 9)"),
        ("uv.lock", "secret = hunter2", "not valid TOML (line 1, column 10)"),
        ("uv.lock", "".join(f"k{n}=1\n" for n in range(200_000)), "more values than any lock"),
        ("uv.lock", UV + "".join(f'[[package]]\nname = "p{n}"\n' for n in range(10_001)),
         "more than 10000 packages"),
        ("uv.lock", UV + "".join(f'[[package]]\nname = "p{n}"\nversion = "1"\n'
                                 for n in range(100_000)), "more values than any lock"),
        ("uv.lock", UV + ROOT_OF + "{name='x'}," * 20_000 + "]\n"
         + "[[package]]\nname='x'\nversion='1'\n" * 5000, "a package occurs 5000 times"),
        ("uv.lock", UV + ROOT_OF + f"{{name='trl', marker=\"{DEEP}\"}}]\n"
         + TRL, "invalid marker"),
        ("uv.lock", UV + ROOT_OF + "{name='trl', marker=\"os_name ~= 'x'\"}]\n" + TRL,
         "invalid marker"),
        ("uv.lock", UV.replace(">=3.9", "hunter2") + TRL, "has an invalid Python range"),
        ("uv.lock", UV + TRL.replace("0.12.2", "1" * 9000), "not a version"),
        ("poetry.lock", TRL + f'markers = "{DEEP}"\n' + POETRY,
         "invalid marker"),
        ("pylock.toml", PYLOCK + "[[packages]]\nname='trl'\nversion='0.12.2'\n"
         + f'marker="{DEEP}"\n', "unreadable"),
        ("uv.lock", b"version = 1 # \xff", "uv.lock:1: not UTF-8"),
    ],
)  # fmt: skip
def test_a_lock_that_cannot_be_read_is_one_sentence(
    tmp_path: Path, name: str, text: str | bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    done = doctor(tmp_path, name)
    refused(done, said)
    assert b"hunter2" not in done.stderr
    with contextlib.suppress(BadInput):
        given_locks.hashes_in(tmp_path / name)


def test_results_and_hashes_are_read_under_the_same_rules(odd: Path) -> None:
    for name in ("pipe", "folder"):
        with pytest.raises(BadInput, match=f"{name}: "):
            results.read(odd / name)
        with pytest.raises(BadInput, match=f"{name}: "):
            ignores.read(odd / name, ())
    (odd / "results.json").write_text('{"cells":' + "[" * 100_000)
    with pytest.raises(BadInput, match="not a results file"):
        results.read(odd / "results.json")
    for text in ("package = 7", "package = [7]", '[[package]]\nname = "x"\nsdist = 7', UV + "[x"):
        (odd / "uv.lock").write_text(text)
        with pytest.raises(BadInput):
            given_locks.hashes_in(odd / "uv.lock")


def test_an_environment_with_odd_metadata_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "trl-0.12.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: trl\nVersion: 0.12.2\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert sources.installed().versions == {"trl": "0.12.2"}
    origin = info / "direct_url.json"
    for text in ("{", "[1]", "7", '{"vcs_info": 7}', '{"vcs_info": {"a": 1}}', "[" * 60_000):
        origin.write_text(text)
        with pytest.raises(BadInput, match=r"its direct_url\.json cannot be read"):
            sources.installed()
    origin.unlink()
    os.mkfifo(origin)
    with pytest.raises(BadInput, match=r"its direct_url\.json cannot be read"):
        sources.installed()
    origin.unlink()
    info.rename(tmp_path / "trl-odd.dist-info")
    with pytest.raises(BadInput, match="trl has no version"):
        sources.installed()


@pytest.mark.parametrize("says", ["[]", "{}", '["3.11.1", 7]', "[7, []]", '["x", []]', "[" * 9999])
def test_an_interpreter_that_says_something_else_is_refused(tmp_path: Path, says: str) -> None:
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\ncat <<'E'\n{says}\nE\n")
    path.chmod(0o700)
    with pytest.raises(BadInput, match="not a working Python interpreter"):
        sources.installed(path)


# Pieces from which anything is put together that is nearly a file of some kind.
PIECES = st.sampled_from(
    [
        *(
            "trl",
            "==",
            "0.12.2",
            "torch",
            ">=",
            ",",
            ";",
            "\n",
            "\\\n",
            " ",
            "#",
            "-r ",
            "-e ",
            "@",
        ),
        *("git+https://", "file:", "/", "[", "]", "{", "}", "'", '"', "(", ")", "=", ".", "=="),
        *("version", "package", "name", "1", "9" * 30, "marker", "python_version", "<", "extra"),
        *("distributed_type", ":", "DEEPSPEED", "- ", "&a ", "*a", "!!int ", "zero_stage", "\t"),
        *('{"zero_optimization": {"stage": ', "GRPOTrainer(", "import ", "def f():", "if x:\n "),
        *("\u202e", "\x1b[31m", "::error::", "é", "\ud7ff", "[[package]]\n", "source = "),
    ]
)
TEXTS = st.one_of(
    st.lists(PIECES, max_size=40).map("".join).map(str.encode),
    st.text(max_size=80).map(lambda text: text.encode("utf-8", "replace")),
    st.binary(max_size=80),
)


def readers() -> dict[str, Callable[[Path], object]]:
    return {
        "requirements.txt": sources.read,
        "uv.lock": sources.read,
        "pylock.toml": sources.read,
        "a.yaml": lambda path: configs.read_accelerate(path, UsageBuilder()),
        "ds.json": lambda path: configs.read_deepspeed(path, UsageBuilder()),
        "train.py": lambda path: scripts.read(path, UsageBuilder()),
        "pyproject.toml": lambda path: ignores.read(path, ("ppo-zero3-save",)),
        "results.json": results.read,
        "hashes.txt": given_locks.hashes_in,
        "hashes.lock": given_locks.hashes_in,
        "extras.txt": sides._extras_in,
    }


HEADS = {
    "uv.lock": (b"", UV.encode(), (UV + ROOT_OF).encode(), (UV + TRL).encode()),
    "pylock.toml": (b"", PYLOCK.encode(), (PYLOCK + "[[packages]]\nname='trl'\n").encode()),
    "a.yaml": (
        b"",
        b"distributed_type: MULTI_GPU\n",
        b"distributed_type: DEEPSPEED\ndeepspeed_config: ",
    ),
    "ds.json": (b"", b'{"zero_optimization": '),
    "train.py": (b"", b"SFTTrainer(m, "),
    "pyproject.toml": (b"", b"[tool.trl-compat]\n", b"[tool.trl-compat]\nignore = [{"),
    "requirements.txt": (b"", b"trl==0.12.2\n", b"trl==0.12.2; "),
}


@pytest.mark.parametrize("name", readers())
@settings(
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_every_reader_answers_or_refuses(tmp_path: Path, name: str, data: st.DataObject) -> None:
    head = data.draw(st.sampled_from(HEADS.get(name, (b"",))))
    (tmp_path / name).write_bytes(head + data.draw(TEXTS))
    with contextlib.suppress(BadInput):
        readers()[name](tmp_path / name)


@pytest.mark.parametrize("name", WRITERS)
@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_a_damaged_lock_is_a_source_or_refused(
    tmp_path: Path, name: str, data: st.DataObject
) -> None:
    whole = WRITERS[name]({"trl": "0.12.2", "torch": "2.4.1", "transformers": "4.46.3"}).encode()
    at = data.draw(st.integers(0, len(whole)))
    gone = data.draw(st.integers(0, 30))
    (tmp_path / name).write_bytes(whole[:at] + data.draw(TEXTS) + whole[at + gone :])
    with contextlib.suppress(BadInput):
        assert isinstance(sources.read(tmp_path / name), sources.Source)


def test_the_limits_leave_room_for_what_people_have(tmp_path: Path) -> None:
    # Three times what the largest environment of a stack has, with 80 hashes for each package.
    lock = "".join(
        f"package-{n}==1.{n} \\\n"
        + " \\\n".join(["    --hash=sha256:" + "0" * 64] * 80)
        + "\n    # via trl\n"
        for n in range(600)
    )
    (tmp_path / "r.txt").write_text(lock + OLD)
    assert sources.read(tmp_path / "r.txt").versions["trl"] == "0.12.2"
    wheels = (
        "wheels = [\n" + '{ url = "https://e.org/a.whl", hash = "sha256:00", size = 1 },\n' * 60
    )
    text = UV + "".join(
        f'[[package]]\nname = "p{n}"\nversion = "1.{n}"\n{wheels}]\n' for n in range(600)
    )
    (tmp_path / "uv.lock").write_text(text + TRL)
    assert sources.read(tmp_path / "uv.lock").versions["trl"] == "0.12.2"
    assert len(text) < reading.LARGEST
