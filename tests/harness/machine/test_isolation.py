"""Only what was seen to work as a whole on this machine is done, and the rest is said."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trl_compat.machine import isolation, processes
from trl_compat.machine.isolation import Containment
from trl_compat.machine.parts import Part, missing

LOOPBACK = (
    "import socket\n"
    "server = socket.create_server(('127.0.0.1', 0))\n"
    "socket.create_connection(server.getsockname(), 5)\n"
)
linux = pytest.mark.skipif(sys.platform != "linux", reason="of Linux")
room = pytest.mark.skipif(
    not isolation.containment().room, reason="no user namespaces on this machine"
)


@pytest.fixture
def tried_again() -> Iterator[None]:
    isolation.containment.cache_clear()
    yield
    isolation.containment.cache_clear()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., processes.Contained]]:
    """Starts Python code as processes of cells are started."""
    begun = []

    def start(code: str, *arguments: str) -> processes.Contained:
        one = processes.spawn(
            [sys.executable, "-I", "-S", "-c", code, *arguments],
            env={"HOME": str(tmp_path)},
            cwd=tmp_path,
            stderr=tmp_path / "log",
            pipes=False,
            reach=isolation.Reach(isolation.interpreter_files(Path(sys.executable)), (tmp_path,)),
        )
        begun.append(one)
        return one

    yield start
    for one in begun:
        one.end()


def test_loopback_works_in_a_cell(start: Callable[..., processes.Contained]) -> None:
    assert start(LOOPBACK).process.wait(30) == 0


@linux
@pytest.mark.parametrize(
    ("end", "status"), [("sys.exit(7)", 7), ("os.kill(os.getpid(), 9)", -9), ("os.abort()", -6)]
)
def test_the_way_it_ends_is_passed_on(
    start: Callable[..., processes.Contained], end: str, status: int
) -> None:
    assert start(f"import os, sys; {end}").process.wait(30) == status


@room
def test_what_is_left_is_counted(start: Callable[..., processes.Contained]) -> None:
    one = start("import os, time\nfor _ in range(3):\n    if not os.fork(): time.sleep(100)")
    assert one.process.wait(30) == 0
    assert one.end() == 3


@linux
def test_a_keeper_whose_harness_is_gone_starts_nothing(tmp_path: Path) -> None:
    command = isolation.keep(
        [sys.executable, "-c", "open('started', 'w')"],
        cwd=tmp_path,
        reach=isolation.Reach((), (tmp_path,)),
    )
    another = command[-1].replace(f'"parent": {os.getpid()}', '"parent": 1')
    done = subprocess.run([*command[:-1], another], check=False, cwd=tmp_path)
    assert done.returncode == isolation.NO_ROOM
    assert not (tmp_path / "started").exists()


@pytest.mark.usefixtures("tried_again")
def test_what_does_not_work_as_a_whole_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "TRIAL", "raise SystemExit('the loopback is not there')")
    assert isolation.containment() == Containment()
    assert missing(isolation.available()) == [part.otherwise for part in Part]


@linux
@pytest.mark.usefixtures("tried_again")
def test_the_best_that_works_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def only_without_a_room(wanted: Containment) -> bool:
        tried.append(wanted)
        return not wanted.room

    monkeypatch.setattr(isolation, "_works", only_without_a_room)
    assert isolation.containment() == tried[1]
    assert (tried[0].room, tried[1].room, tried[1].network) == (True, False, True)
    assert Part.SOCKETS.otherwise in missing(isolation.available())


def test_a_folder_that_holds_the_home_of_the_user_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{home}:{tmp_path}:{home}/lib::relative")
    shown = isolation.interpreter_files(home / "bin" / "python")
    command = isolation.keep(["x"], cwd=home, reach=isolation.Reach(shown, ()))
    assert f'"{home}"' not in command[-1].partition('"readable"')[2]
    assert f'"{tmp_path}"' not in command[-1]
    assert f'"{home}/lib"' in command[-1]


def contained(code: str, folder: Path, limit: float = 30) -> subprocess.CompletedProcess[str]:
    return processes.run_contained(
        [sys.executable, "-I", "-S", "-c", code],
        env={"HOME": str(folder)},
        cwd=folder,
        reach=isolation.Reach(isolation.interpreter_files(Path(sys.executable)), (folder,)),
        limit=limit,
    )


def test_what_somebody_elses_code_says_is_kept_to_its_end(tmp_path: Path) -> None:
    done = contained("print('x' * 300_000, flush=True); raise SystemExit('at the end')", tmp_path)
    assert done.returncode == 1
    assert done.stdout.endswith("at the end\n")
    assert len(done.stdout) <= processes.OUTPUT_LIMIT


def test_somebody_elses_code_is_stopped_at_its_limit(tmp_path: Path) -> None:
    assert contained("import time; time.sleep(100)", tmp_path, limit=1).returncode == -9


LOOK_AROUND = """
import os, socket, sys
print(socket.gethostname(), sorted(name for _, name in socket.if_nameindex()))
try:
    os.listdir(sys.argv[1])
    print("reads it")
except OSError:
    print("cannot read it")
"""


@room
def test_ranks_that_others_must_reach_have_the_network_and_no_more(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    python = Path(sys.executable)
    done = processes.run_contained(
        [str(python), "-I", "-c", LOOK_AROUND, str(outside)],
        env={},
        cwd=inside,
        reach=isolation.Reach(isolation.interpreter_files(python), (inside,)),
        limit=60,
        how=isolation.on_the_network("192.0.2.7"),
    )
    interfaces = sorted(name for _, name in socket.if_nameindex())
    assert done.stdout.splitlines() == [f"192.0.2.7 {interfaces}", "cannot read it"]
    assert socket.gethostname() != "192.0.2.7"
