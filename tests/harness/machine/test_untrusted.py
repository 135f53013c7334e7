"""Whatever a rank leaves in its folder: the harness follows nothing and waits for nothing."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from trl_compat.machine import processes, untrusted
from trl_compat.machine.untrusted import Folder
from trl_compat.running.execution import rank_files, watch
from trl_compat.running.execution.watch import Limits, Watch

SECRET = b"a secret of the user\n" * 100
READ = (
    "rank0.json",
    "rank0.failed",
    "rank0.pid",
    "rank0.log",
    "rank0.left",
    "rank0.collectives.json",
    "launcher.log",
)


@pytest.fixture
def cell(tmp_path: Path) -> Path:
    folder = tmp_path / "scratch" / "cell"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file of the user, outside of what is the cell's."""
    path = tmp_path / "victim"
    path.write_bytes(SECRET)
    return path


def link(path: Path, victim: Path) -> None:
    path.symlink_to(victim)


def hard_link(path: Path, victim: Path) -> None:
    os.link(victim, path)


def pipe(path: Path, victim: Path) -> None:
    os.mkfifo(path)


def folder(path: Path, victim: Path) -> None:
    path.mkdir()


def listener(path: Path, victim: Path) -> None:
    before = Path.cwd()
    os.chdir(path.parent)  # the name of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(before)


def chain(path: Path, victim: Path) -> None:
    path.symlink_to(path.name)


LEAVINGS = (link, hard_link, pipe, folder, listener, chain)
leaving = pytest.mark.parametrize("leave", LEAVINGS, ids=lambda leave: leave.__name__)


@leaving
@pytest.mark.parametrize("name", READ)
def test_nothing_but_a_file_of_its_own_is_read(
    cell: Path, victim: Path, leave: Callable[[Path, Path], None], name: str
) -> None:
    leave(cell / name, victim)
    refused = r"not a regular file|other hard links"
    with Folder(cell) as left:
        with pytest.raises(OSError, match=refused):
            left.read(name, 10**6)
        with pytest.raises(OSError, match=refused):
            left.tail(name, 10**6)
        with pytest.raises(OSError, match=refused):
            left.behind(name, 0, 10**6)
    assert victim.read_bytes() == SECRET


@leaving
@pytest.mark.parametrize("name", READ)
def test_every_reader_comes_to_an_end_and_tells_nothing(
    cell: Path, victim: Path, leave: Callable[[Path, Path], None], name: str
) -> None:
    leave(cell / name, victim)
    looking = Watch(os.getpid(), cell, 1, Limits())
    looking.check()
    looking.all_recorded()
    assert looking.pids() == {}
    records, unreadable = rank_files.records(cell, 1)
    failed, unread = rank_files.failed(cell, 1)
    said = rank_files.output(cell, 1)
    assert (records, failed, rank_files.rank_exits(cell)) == ({}, {}, {})
    assert "secret" not in said
    about = unreadable + unread
    assert bool(about) == (name in ("rank0.json", "rank0.failed"))
    assert not about or about[0].startswith(f"{name} cannot be read (it is ")
    assert ("[rank0.log cannot be read: it is" in said) == (name == "rank0.log")


@leaving
def test_cutting_a_log_touches_nothing_else(
    cell: Path, victim: Path, leave: Callable[[Path, Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "LOG_LIMIT", 1000)
    leave(cell / "rank0.log", victim)
    looking = Watch(os.getpid(), cell, 1, Limits())
    looking.check()
    assert victim.read_bytes() == SECRET
    assert looking.log_bytes_dropped == 0


def test_a_long_log_is_cut_to_its_end_under_the_rank_that_writes_it(
    cell: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "LOG_LIMIT", 1000)
    monkeypatch.setattr(watch, "LOG_TAIL", 10)
    log = os.open(cell / "rank0.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(log, b"x" * 2000 + b"the end...")
    looking = Watch(os.getpid(), cell, 1, Limits())
    looking.check()
    os.write(log, b" and more")
    os.close(log)
    assert (cell / "rank0.log").read_bytes() == b"the end... and more"
    assert looking.log_bytes_dropped == 2000


def test_a_log_that_was_deleted_or_replaced_is_no_matter(
    cell: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "LOG_LIMIT", 10)
    log = cell / "rank0.log"
    log.write_bytes(b"x" * 100)
    looking = Watch(os.getpid(), cell, 1, Limits())
    log.unlink()
    looking.check()
    log.write_text("another")
    looking.check()
    assert rank_files.output(cell, 1) == "===== rank0 =====\nanother\n"


def test_a_folder_that_is_replaced_by_a_link_is_not_followed(cell: Path, victim: Path) -> None:
    (cell / "victim").write_bytes(b"the cell's own")
    left = Folder(cell)
    cell.rename(cell.with_name("moved"))
    cell.symlink_to(victim.parent)
    assert left.read("victim", 10**6) == b"the cell's own"
    for reader in (Folder, lambda path: rank_files.records(path, 1)):
        with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
            reader(cell)


def test_only_so_much_is_read(cell: Path) -> None:
    with (cell / "rank0.json").open("wb") as file:
        file.truncate(10**12)  # it takes no room
    (said,) = rank_files.records(cell, 1)[1]
    assert said == "rank0.json cannot be read (it has 1000000000000 bytes)"
    with Folder(cell) as left:
        assert left.tail("rank0.json", 10) == bytes(10)
        assert left.behind("rank0.json", 10**11, 10) == bytes(10)


@leaving
def test_only_a_pipe_of_its_own_is_written_to(
    cell: Path, victim: Path, leave: Callable[[Path, Path], None]
) -> None:
    leave(cell / "rank0.ask", victim)
    with (
        Folder(cell) as left,
        pytest.raises(OSError, match=r"levels|FIFO|No such device|directory"),
    ):
        left.poke("rank0.ask")
    assert victim.read_bytes() == SECRET


def test_a_pipe_of_somebody_else_is_not_written_to(cell: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "control")
    others = os.open(tmp_path / "control", os.O_RDWR | os.O_NONBLOCK)
    os.link(tmp_path / "control", cell / "rank0.ask")
    with Folder(cell) as left, pytest.raises(OSError, match="not a FIFO of this cell"):
        left.poke("rank0.ask")
    with pytest.raises(BlockingIOError):
        os.read(others, 1)
    os.close(others)


def test_a_rank_that_waits_is_asked(cell: Path) -> None:
    os.mkfifo(cell / "rank0.ask")
    question = os.open(cell / "rank0.ask", os.O_RDWR | os.O_NONBLOCK)
    with Folder(cell) as left:
        left.poke("rank0.ask")
    assert os.read(question, 10) == b"?"
    os.close(question)


@pytest.mark.parametrize("pid", ["-1", "0", "1", "ours", "9" * 30, "x", ""])
def test_no_process_but_those_of_the_cell_is_sent_a_signal(
    cell: Path, pid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[object] = []
    monkeypatch.setattr(os, "kill", lambda *what: sent.append(what))
    monkeypatch.setattr(processes, "descendants", lambda _: [])
    (cell / "rank0.pid").write_text(str(os.getpid()) if pid == "ours" else pid)
    (cell / "rank0.log").write_text("")
    assert Watch(os.getpid(), cell, 1, Limits()).interrogate() == ({}, {})
    assert sent == []


@leaving
def test_the_logs_of_the_harness_are_not_written_through_what_cells_left(
    cell: Path, victim: Path, leave: Callable[[Path, Path], None]
) -> None:
    leave(cell / "preload.log", victim)
    log = untrusted.appended(cell / "preload.log")
    os.write(log, b"a line")
    os.close(log)
    assert victim.read_bytes() == SECRET
    assert rank_files.last_words(cell / "preload.log") == "a line"


def test_a_log_of_the_harness_goes_on_where_it_ended(cell: Path) -> None:
    for _ in range(2):
        log = untrusted.appended(cell / "preload.log")
        os.write(log, b"a line\n")
        os.close(log)
    assert (cell / "preload.log").read_text() == "a line\na line\n"
    assert rank_files.last_words(cell / "preload.log") == "a line\na line\n"


def test_the_launchers_summary_is_read_in_one_go(cell: Path) -> None:
    summary = (
        "[0]:\n  rank      : 1 (local_rank: 1)\n  exitcode  : -9 (pid: 5)\n  error_file: <N/A>\n"
    )
    (cell / "launcher.log").write_text(
        "rank : 1\n" * 100_000 + summary + "exitcode : " + "9" * 5000
    )
    assert rank_files.rank_exits(cell) == {1: -9}


def test_lines_without_end_are_cut_before_anybody_looks_for_paths_in_them(cell: Path) -> None:
    (cell / "rank0.log").write_text("/a" * 20_000)
    longest = max(map(len, rank_files.output(cell, 1).splitlines()))
    assert longest <= 2001
