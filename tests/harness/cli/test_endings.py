"""However a command ends: one sentence, a documented exit code, no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TextIO

import pytest

from tests.harness.conftest import ROOT
from trl_compat.text import streams

SETUP = """
import errno, os, signal, sys
import click
from trl_compat import cli
from trl_compat.errors import BadInput, HarnessError

@cli.cli.command()
def probe():
{body}

sys.argv = ["trl-compat", "probe"]
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)  # whoever runs the tests may be deaf to them
{before}
cli.main()
"""


def run(
    tmp_path: Path,
    body: str,
    before: str = "",
    stdout: int | TextIO = subprocess.PIPE,
    env: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs a command with that body as the console script would."""
    script = SETUP.format(body=textwrap.indent(textwrap.dedent(body), "    "), before=before)
    return subprocess.run(
        [sys.executable, "-c", script],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "TRL_COMPAT_CACHE": str(tmp_path / "cache"), **(env or {})},
    )


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ("raise TypeError('odd')", 70, "the harness failed: TypeError: odd; the traceback is in"),
        ("raise RecursionError", 70, "the harness failed: RecursionError"),
        ("raise MemoryError", 70, "the harness failed: MemoryError"),
        ("raise OSError(errno.EACCES, 'Permission denied')", 70, "Permission denied"),
        ("raise BrokenPipeError(errno.EPIPE, 'Broken pipe')", 70, "the harness failed"),
        ("raise EOFError", 70, "the harness failed: EOFError"),
        ("raise OSError(errno.ENOSPC, 'No space left on device')", 2, "free some space"),
        ("raise BadInput('your file')", 2, "trl-compat: your file"),
        ("raise HarnessError('ours')", 70, "trl-compat: the harness failed: ours"),
        ("raise click.UsageError('no such thing')", 2, "no such thing"),
        ("raise KeyboardInterrupt", 130, "interrupted"),
        ("raise click.Abort", 130, "interrupted"),
        ("os.kill(os.getpid(), signal.SIGTERM); signal.pause()", 130, "interrupted"),
        ("os.kill(os.getpid(), signal.SIGHUP); signal.pause()", 130, "interrupted"),
        ("sys.exit(1)", 1, ""),
        ("sys.exit()", 0, ""),
        ("pass", 0, ""),
    ],
)
def test_every_ending_has_its_exit_code(tmp_path: Path, body: str, code: int, said: str) -> None:
    done = run(tmp_path, body)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_where_it_happened_can_be_found_and_asked_for(tmp_path: Path) -> None:
    done = run(tmp_path, "raise TypeError('odd')")
    kept = tmp_path / "cache" / "traceback.txt"
    assert str(kept) in done.stderr
    assert "in probe" in kept.read_text()
    done = run(tmp_path, "raise TypeError('odd')", env={"TRL_COMPAT_TRACEBACK": "1"})
    assert done.returncode == 70
    assert "Traceback (most recent call last)" in done.stderr


def test_a_cache_that_cannot_be_written_to_costs_no_sentence(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file in its place")
    done = run(tmp_path, "raise TypeError('odd')")
    assert done.returncode == 70
    assert done.stderr.endswith("TypeError: odd; set TRL_COMPAT_TRACEBACK=1 to see the traceback\n")


def test_under_nohup_a_terminal_that_closes_ends_nothing(tmp_path: Path) -> None:
    deaf = "signal.signal(signal.SIGHUP, signal.SIG_IGN)"
    done = run(tmp_path, "os.kill(os.getpid(), signal.SIGHUP); click.echo('on')", before=deaf)
    assert (done.returncode, done.stdout) == (0, "on\n")


def test_a_second_polite_end_does_not_disturb_the_cleaning_up(tmp_path: Path) -> None:
    body = """
    try:
        os.kill(os.getpid(), signal.SIGHUP)
        signal.pause()
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
        click.echo("cleaned up")
    """
    done = run(tmp_path, body)
    assert (done.returncode, done.stdout) == (130, "cleaned up\n")


@pytest.mark.parametrize("code", [0, 1, 2])
def test_a_reader_that_stops_reading_ends_nothing(tmp_path: Path, code: int) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    body = f"click.echo('x' * 10**6); print('more'); sys.exit({code})"
    done = run(tmp_path, body, stdout=writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (code, "")


def test_little_output_that_nobody_reads_ends_nothing(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = run(tmp_path, "print('x')", stdout=writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_output_for_which_there_is_no_room_is_said(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        done = run(tmp_path, "print('x')", stdout=full)
    assert done.returncode == 2
    assert done.stderr.startswith("trl-compat: No space left on device; free some space")
    assert len(done.stderr.splitlines()) == 1


def test_closed_streams_cost_nothing(tmp_path: Path) -> None:
    body = "click.echo('x'); click.echo('y', err=True); sys.exit(1)"
    closed = "os.close(1); os.close(2); sys.stdout = sys.stderr = None"
    assert run(tmp_path, body, before=closed).returncode == 1


def test_what_an_encoding_lacks_is_written_all_the_same(tmp_path: Path) -> None:
    done = run(tmp_path, "print('✅')", env={"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stdout) == (0, "\\u2705\n")


def test_a_terminal_that_has_gone_is_written_to_in_vain() -> None:
    terminal, ours = os.openpty()
    stream = streams.outliving(ours, lines=True)
    os.close(terminal)
    print("x", file=stream)
    print("y", file=stream)
    stream.flush()
    os.close(ours)


def test_a_stream_says_what_else_goes_wrong() -> None:
    with open("/dev/full", "wb", buffering=0) as full:
        stream = streams.outliving(full.fileno(), lines=True)
        with pytest.raises(OSError, match="No space left"):
            print("x", file=stream)
        print("y", file=stream)  # said already
