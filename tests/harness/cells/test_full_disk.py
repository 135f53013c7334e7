"""A full disk says nothing of a stack; error numbers and what it has left tell that it is full."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.harness.observations import RAISED, SEEN, judge, observed, record
from trl_compat.advisories import Catalogue
from trl_compat.cells.observation import Observation, Stop
from trl_compat.cells.outcome import Outcome
from trl_compat.machine import disk
from trl_compat.running.execution import rank_files
from trl_compat.running.execution.watch import Limits, Watch
from trl_compat.runtime import signature
from trl_compat.runtime.spec import UNRECORDED

LEFT = "0.0 MB free in the folder where cells write"


def raised(exception: str, message: str, *errnos: int) -> dict[str, Any]:
    error = {**SEEN, "exception": exception, "message": message, "errnos": list(errnos)}
    return record("raised", error=error)


TORCH = raised("RuntimeError", "PytorchStreamWriter failed writing file data/2: file write failed")
SAFETENSORS = raised("SafetensorError", "I/O error: No space left on device (os error 28)")
QUOTED = raised("ValueError", "the log says 'OSError: [Errno 28] No space left on device'")


@pytest.mark.parametrize(
    "seen",
    [
        observed(raised("OSError", "x", errno.ENOSPC), None),
        observed(raised("OSError", "x", errno.EDQUOT), None),
        observed(raised("RuntimeError", "unexpected pos", errno.EIO, errno.ENOSPC)),
        # the first to fail had nothing to do with it, maybe
        observed(RAISED, {**raised("OSError", "x", errno.ENOSPC), "ended": 2.0}),
        observed(TORCH, shortage=LEFT),
        observed(SAFETENSORS, shortage=LEFT),
        observed(RAISED, shortage=LEFT),
        observed(record(), None, shortage=LEFT, exit_status=1),
        observed(record(), None, shortage=LEFT, rank_exits={1: -7}, exit_status=1),
        observed(None, None, shortage=LEFT, exit_status=1),
        observed(record(), None, shortage=LEFT, stopped=Stop.LIMIT),
        observed(record(), record(), shortage=LEFT, exit_status=1),
        observed(record(), None, rank_exits={1: UNRECORDED}, exit_status=1),
    ],
)
def test_a_full_disk_is_never_a_verdict_that_is_kept(
    catalogue: Catalogue, seen: Observation
) -> None:
    verdict = judge(catalogue, seen)
    assert verdict.outcome is Outcome.HARNESS_ERROR
    assert verdict.reason.startswith("the disk is full (")
    assert not seen.final


def test_a_check_that_failed_on_a_full_disk_proves_nothing(catalogue: Catalogue) -> None:
    lost = {"exception": "PostConditionFailed", "message": "tensors empty", "where": "check:saved"}
    failure = {"kind": "check", "name": "saved", "at": 1.0, "error": lost}
    seen = observed(record(), record(), failed={0: (failure,)}, shortage=LEFT)
    assert judge(catalogue, seen).outcome is Outcome.HARNESS_ERROR


def test_what_passed_on_a_full_disk_passed(catalogue: Catalogue) -> None:
    seen = observed(record(), record(), shortage=LEFT)
    assert judge(catalogue, seen).outcome is Outcome.PASS
    assert seen.final


def test_a_text_alone_is_no_full_disk(catalogue: Catalogue) -> None:
    quoted = observed(QUOTED)
    assert judge(catalogue, quoted).outcome is Outcome.OTHER_FAILURE
    assert quoted.final


def test_a_library_that_says_so_in_words_is_judged_but_not_for_ever(catalogue: Catalogue) -> None:
    seen = observed(SAFETENSORS)
    assert judge(catalogue, seen).outcome is Outcome.OTHER_FAILURE
    assert not seen.final


def test_the_error_number_is_found_through_the_whole_chain() -> None:
    def save() -> None:
        try:
            try:
                raise OSError(errno.ENOSPC, "No space left on device")
            except OSError as full:
                raise RuntimeError("unexpected pos 64 vs 0") from full
        except RuntimeError:
            raise ValueError("it could not be saved") from None

    with pytest.raises(ValueError, match="it could not be saved") as caught:
        save()
    assert signature.errnos(caught.value) == [errno.ENOSPC]
    assert signature.describe(caught.value)["errnos"] == [errno.ENOSPC]


def test_a_chain_that_leads_to_itself_comes_to_an_end() -> None:
    one, other = OSError(errno.EDQUOT, "x"), ValueError()
    one.__cause__, other.__context__ = other, one
    assert signature.errnos(one) == [errno.EDQUOT]


# What the disk has left.


def statvfs(monkeypatch: pytest.MonkeyPatch, **found: int) -> None:
    whole = {"f_blocks": 10**6, "f_frsize": 4096, "f_bavail": 10**6, "f_files": 0, "f_favail": 0}
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(**{**whole, **found}))


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({}, ""),
        ({"f_bavail": 1}, "0.0 MB free in the folder where cells write"),
        ({"f_files": 100, "f_favail": 3}, "3 free inodes in the folder where cells write"),
        ({"f_blocks": 0, "f_bavail": 0}, ""),  # it keeps no count
    ],
)
def test_what_the_disk_has_left_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, found: dict[str, int], said: str
) -> None:
    statvfs(monkeypatch, **found)
    assert disk.shortage(tmp_path) == said


def test_a_disk_that_was_full_for_a_moment_was_full(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "cell").mkdir()
    watch = Watch(os.getpid(), tmp_path / "cell", 1, Limits())
    with monkeypatch.context() as full:
        statvfs(full, f_bavail=0)
        watch.check()
    watch.check()
    assert watch.shortage == LEFT


def test_a_quota_is_met_by_writing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert disk.refusal(tmp_path) == ""

    def refuse(**_: object) -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    assert disk.refusal(tmp_path) == "Disk quota exceeded in the folder where cells write"


@pytest.mark.parametrize(
    ("line", "full"),
    [
        ("OSError: [Errno 28] No space left on device: '/tmp/torchelastic_1'", True),
        ("OSError: [Errno 122] Disk quota exceeded", True),
        ("ValueError: it said 'OSError: [Errno 28] No space left on device'", False),
        ("OSError: [Errno 2] No such file or directory", False),
    ],
)
def test_a_launcher_that_met_a_full_disk_is_heard(tmp_path: Path, line: str, full: bool) -> None:
    folder = tmp_path / "cell"
    folder.mkdir()
    (folder / "launcher.log").write_text(f"Traceback (most recent call last):\n{line}\n")
    assert bool(rank_files.shortage(folder, went_well=False)) is full
