"""What uv's failures mean: only what is about the packages is held against a stack."""

from __future__ import annotations

from pathlib import Path

import pytest

from trl_compat.errors import BadInput, HarnessError
from trl_compat.stacks.environments import (
    NoSolution,
    NoWheel,
    Unavailable,
    Unresolvable,
    WrongFile,
    uv_errors,
)
from trl_compat.stacks.environments.uv import uv

COMPILE = ["pip", "compile", "-", "--no-deps"]
# As uv 0.13.9 wrote them.
CONFLICT = """\
error: No solution found when resolving dependencies
  cause: Because trl==0.12.2 depends on transformers>=4.46.0 and you require transformers==4.40.0,
         we can conclude that your requirements are unsatisfiable.
"""
NO_WHEEL = """\
error: No solution found when resolving dependencies
  cause: Because sly==1.0 has no usable wheels and you require sly==1.0, we can conclude that your
         requirements are unsatisfiable.

hint: Wheels are required for `sly` because building from source is disabled for all packages
(i.e., with `--no-build`)
"""
UNREACHED = """\
error: Request failed after 3 retries in 7.3s
  cause: Failed to fetch: http://127.0.0.1:9/simple/six/
  cause: error sending request for url (http://127.0.0.1:9/simple/six/)
  cause: tcp connect error
  cause: Connection refused (os error 111)
"""
NOT_THERE = """\
error: Failed to fetch: https://files.test/packages/nope/six-1.17.0-py2.py3-none-any.whl
  cause: HTTP status client error (404 Not Found) for url (https://files.test/packages/nope)
"""
MISMATCH = """\
error: Failed to download `six==1.17.0`
  cause: Hash mismatch for `six==1.17.0`

         Expected:
           sha256:ab638c953e7be027d885b2cbc55f57bb03ffdb35ef565861b6a91765478009dd

         Computed:
           sha256:4721f391ed90541fddacab5acf947aa0d3dc7d27b2e1e8eda2be8970586c3274
"""
BROKEN_WHEEL = """\
error: Failed to download `six==1.99`
  cause: Failed to extract archive: /links/six-1.99-py3-none-any.whl
  cause: Invalid zip file structure
  cause: unable to locate the end of central directory record
"""
NO_HASH = """\
error: In `--require-hashes` mode, all requirements must have a hash, but none were\
 provided for: six
"""
FULL = """\
error: Failed to download `torch==2.4.1`
  cause: failed to write to file `/home/a/.cache/uv/x`: No space left on device (os error 28)
"""
FORBIDDEN = """\
error: failed to create directory `/home/a/.cache/uv/wheels-v8`: Permission denied (os error 13)
"""
NO_NETWORK_FOR_US = """\
error: error sending request for url (https://pypi.org/simple/six/)
  cause: tcp connect error: Operation not permitted (os error 1)
"""
USAGE = "error: unexpected argument '--no-builds' found\n\n  tip: a similar argument exists\n"
PANIC = "thread 'main2' panicked at crates/uv/src/lib.rs:1\ncalled `Option::unwrap()` on `None`\n"


@pytest.mark.parametrize(
    ("status", "stderr", "kind", "said"),
    [
        (1, CONFLICT, NoSolution, "Because trl==0.12.2 depends on transformers"),
        (1, NO_WHEEL, NoWheel, "sly==1.0 has no usable wheels"),
        (2, UNREACHED, Unavailable, "Connection refused"),
        (1, NOT_THERE, Unavailable, "404 Not Found"),
        (2, NO_NETWORK_FOR_US, Unavailable, "error sending request"),
        (1, MISMATCH, WrongFile, "six==1.17.0: the file on the index does not match"),
        (1, BROKEN_WHEEL, Unresolvable, "Invalid zip file structure"),
        (2, FULL, BadInput, "the disk is full"),
        (2, FORBIDDEN, BadInput, "/home/a/.cache/uv/wheels-v8`: Permission denied"),
        (2, NO_HASH, HarnessError, "must have a hash"),
        (2, USAGE, HarnessError, "--no-builds"),
        (101, PANIC, HarnessError, "uv crashed"),
        (-9, "", HarnessError, "uv was killed by SIGKILL"),
        (-250, "", HarnessError, "uv was killed by signal 250"),
        (2, "", HarnessError, "uv failed with exit status 2"),
        (1, "error: something that nobody has seen yet\n", HarnessError, "nobody has seen yet"),
    ],
)
def test_each_failure_has_its_kind(
    status: int, stderr: str, kind: type[Exception], said: str
) -> None:
    error = uv_errors.failure(COMPILE, status, stderr)
    assert type(error) is kind
    assert said in " ".join(str(error).split())
    assert "\n" not in str(error)


def test_what_the_harness_cannot_explain_can_be_run_by_hand() -> None:
    assert "uv pip compile - --no-deps" in str(uv_errors.failure(COMPILE, 2, NO_HASH))


def test_an_argument_that_uv_does_not_know_is_not_held_against_the_stack() -> None:
    with pytest.raises(HarnessError, match="unexpected argument '--frobnicate'"):
        uv([*COMPILE, "--frobnicate"], text="six\n")


def test_a_value_that_uv_does_not_take_is_not_held_against_the_stack() -> None:
    with pytest.raises(HarnessError, match="banana"):
        uv([*COMPILE, "--exclude-newer", "banana"], text="six\n")


def test_a_setting_of_the_user_that_uv_refuses_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_INDEX_STRATEGY", "banana")
    with pytest.raises(BadInput, match="a setting: invalid value 'banana'"):
        uv(COMPILE, text="six\n")


def test_a_settings_file_that_uv_cannot_read_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "uv").mkdir()
    (tmp_path / "uv" / "uv.toml").write_text("index-url = [\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(BadInput, match=r"settings in .*uv\.toml: .*unclosed array"):
        uv(COMPILE, text="six\n")


def test_a_cache_that_cannot_be_written_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.raises(BadInput, match=r"cannot access its files: .*UV_CACHE_DIR"):
        uv(COMPILE, text="six\n")


def test_a_release_that_does_not_exist_is_unresolvable() -> None:
    with pytest.raises(Unresolvable, match="six"):
        uv([*COMPILE, "--no-index"], text="six==1.17.0\n")
