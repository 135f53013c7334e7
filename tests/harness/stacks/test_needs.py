"""Before anything is built, a run says what it takes, and refuses where the disk has less."""

from __future__ import annotations

import datetime
import http.server
import os
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.recorded_runs import OLD, as_expected
from trl_compat import results
from trl_compat.cli.matrix import conduct
from trl_compat.errors import BadInput
from trl_compat.files import project
from trl_compat.running import matrix_run
from trl_compat.stacks.environments import Unavailable, interpreters, locks, resolving
from trl_compat.stacks.environments.lock_text import Entry, entries
from trl_compat.stacks.environments.uv import uv
from trl_compat.stacks.held import needs, uv_cache, wheel_sizes
from trl_compat.stacks.held.needs import MARGIN, OF_ITS_OWN, Missing
from trl_compat.stacks.held.wheel_sizes import WheelSize
from trl_compat.stacks.matrix import Stack

GB = 10**9
VERSIONS = {
    "trl": "1.16.0",
    "transformers": "5.23.0",
    "deepspeed": "0.19.8",
    "accelerate": "1.15.0",
    "peft": "0.21.2",
}
SIZES = {
    "torch==2.4.1": WheelSize(1 * GB, 2 * GB),
    "torch==2.6.0": WheelSize(2 * GB, 3 * GB),
    "trl==1.16.0": WheelSize(10**6, 3 * 10**6),
    "odd==1.0": WheelSize(),
}


def a_stack(torch: str) -> Stack:
    day, python = datetime.date(2026, 11, 19), interpreters.own().version
    return Stack.model_validate({"as_of": day, "torch": torch, "python": python, **VERSIONS})


def a_lock(*pins: str) -> locks.Lock:
    return locks.lock_of("".join(f"{pin} \\\n    --hash=sha256:{'0' * 64}\n" for pin in pins))


class Machine:
    """A machine with locks, free bytes and a cache of uv's, none of which is real."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.locks: dict[str, locks.Lock] = {}
        self.cached: set[str] = set()
        self.free = 1000 * GB
        self.calls = 0
        self.ours = folder / "ours"
        monkeypatch.setenv("TRL_COMPAT_CACHE", str(self.ours))
        monkeypatch.delenv("UV_LINK_MODE", raising=False)
        monkeypatch.setattr(locks, "kept_lock", lambda stack, _: self.locks.get(stack.torch))
        monkeypatch.setattr(locks, "kept", self._kept)
        monkeypatch.setattr(needs, "_uncached", self._uncached)
        monkeypatch.setattr(wheel_sizes, "measure", self._measure)
        monkeypatch.setattr(uv_cache, "folder", lambda: folder / "uv")
        monkeypatch.setattr(needs, "_free", lambda _: self.free)

    def _kept(self, stack: Stack, _: Any) -> str | None:
        lock = self.locks.get(stack.torch)
        return lock.sha256 if lock else None

    def _uncached(self, wanted: list[Entry], _: Any) -> list[str]:
        self.calls += 1
        pins = [f"{entry.name}=={entry.version}" for entry in wanted]
        return [pin for pin in pins if pin not in self.cached]

    def _measure(self, wanted: list[Entry], _: Any) -> dict[str, WheelSize]:
        pins = [f"{entry.name}=={entry.version}" for entry in wanted]
        return {pin: SIZES[pin] for pin in pins}

    def build(self, name: str, torch: str) -> None:
        folder = self.ours / "environments" / f"{name}-{self.locks[torch].sha256[:12]}"
        folder.mkdir(parents=True)
        (folder / "lock.txt").touch()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    made = Machine(monkeypatch, tmp_path)
    made.locks = {v: a_lock(f"torch=={v}", "trl==1.16.0") for v in ("2.4.1", "2.6.0")}
    return made


def test_what_is_built_needs_nothing_and_asks_nobody(machine: Machine) -> None:
    machine.build("a", "2.4.1")
    machine.free = 0
    assert needs.check({"a": a_stack("2.4.1")}) == ""
    assert needs.check({}) == ""
    assert machine.calls == 0


def test_each_download_is_counted_once(machine: Machine) -> None:
    stacks = {"a": a_stack("2.4.1"), "b": a_stack("2.4.1"), "c": a_stack("2.6.0")}
    said = needs.check(stacks)
    assert said == (
        "3 environments to build: 3.0 GB to download (torch 2.4.1, 2.6.0); 5.4 GB on disk, "
        "1000.0 GB free"
    )


def test_what_uv_has_is_not_downloaded(machine: Machine) -> None:
    machine.cached = {"torch==2.4.1", "trl==1.16.0"}
    said = needs.check({"a": a_stack("2.4.1")})
    assert said.startswith("1 environment to build: every package is in uv's cache; 130 MB")


def test_a_disk_that_has_less_is_refused(machine: Machine) -> None:
    least = 2 * GB + 3 * 10**6 + OF_ITS_OWN + MARGIN
    machine.free = least
    assert needs.check({"a": a_stack("2.4.1")})
    machine.free = least - 1
    with pytest.raises(BadInput) as raised:
        needs.check({"a": a_stack("2.4.1")})
    for said in ("takes 2.1 GB and 2.0 GB", "4.1 GB are free", "cache prune", "--profile smoke"):
        assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_size_that_nobody_tells_makes_it_a_lower_bound(machine: Machine) -> None:
    machine.locks["2.4.1"] = a_lock("torch==2.4.1", "odd==1.0")
    said = needs.check({"a": a_stack("2.4.1")})
    assert "at least 1.0 GB to download (torch 2.4.1); at least 2.1 GB on disk" in said


def test_a_stack_without_a_lock_counts_with_its_torch(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = lambda *_: "torch==2.6.0\n"  # noqa: E731
    monkeypatch.setattr(resolving, "compile_requirements", compiled)
    del machine.locks["2.6.0"]
    said = needs.check({"a": a_stack("2.6.0")})
    assert "at least 2.0 GB to download (torch 2.6.0); at least 3.1 GB on disk" in said

    def unreachable(*_: Any) -> str:
        raise Unavailable("no index")

    monkeypatch.setattr(resolving, "compile_requirements", unreachable)
    assert "what is downloaded is not known yet" in needs.check({"a": a_stack("2.6.0")})


def test_copies_are_counted_for_each_environment(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_LINK_MODE", "copy")
    stacks = {"a": a_stack("2.4.1"), "b": a_stack("2.4.1")}
    assert "6.3 GB on disk" in needs.check(stacks)  # once in uv's cache, once in each
    machine.cached = {"torch==2.4.1", "trl==1.16.0"}
    assert "uv's cache; at least 260 MB on disk" in needs.check(stacks)


def test_two_file_systems_are_asked_separately(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(needs, "_device", lambda path: "ours" in str(path))
    free = {"ours": 1000 * GB, "uv": 4 * GB}
    monkeypatch.setattr(needs, "_free", lambda path: free["ours" if "ours" in str(path) else "uv"])
    with pytest.raises(BadInput, match=r"takes 2\.0 GB and 2\.0 GB to work with, 4\.0 GB are"):
        needs.check({"a": a_stack("2.4.1")})
    free["uv"] = 5 * GB
    assert "1000.0 GB free" in needs.check({"a": a_stack("2.4.1")})


def test_a_group_has_each_package_once() -> None:
    text = a_lock("a==1", "b==1", "a==2", "a==3", "b==2").text
    groups = needs.batches(entries(text))
    assert [[f"{e.name}{e.version}" for e in group] for group in groups] == [
        ["a1", "b1"],
        ["a2", "b2"],
        ["a3"],
    ]


def test_a_run_that_is_refused_loses_nothing(
    where: project.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrix_run, "execute", as_expected)
    options = matrix_run.Options(jobs=1)
    assert conduct(where, OLD, options) == 0

    def refuses(stacks: dict[str, Stack]) -> str:
        if stacks:
            raise BadInput("the disk has too little room")
        return ""

    monkeypatch.setattr(needs, "check", refuses)
    assert conduct(where, OLD, options) == 0  # all of it is known: nothing is built
    before = (where.reports / "results.json").read_bytes()
    with pytest.raises(BadInput, match="too little room"):
        conduct(where, OLD, options.model_copy(update={"fresh": True}))
    assert (where.reports / "results.json").read_bytes() == before
    assert results.read(where.reports / "results.json") is not None


def test_the_sentence_is_shown_before_the_cells(
    where: project.Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(matrix_run, "execute", as_expected)
    monkeypatch.setattr(needs, "check", lambda _: "1 environment to build: 2.1 GB to download")
    conduct(where, OLD, matrix_run.Options(jobs=1))
    assert "1 environment to build: 2.1 GB to download" in capsys.readouterr().out


def a_wheel(folder: Path, version: str) -> Path:
    info = f"tiny_thing-{version}.dist-info"
    files = {
        "tiny_thing.py": "x" * 100_000,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: tiny-thing\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    folder.mkdir(exist_ok=True)
    path = folder / f"tiny_thing-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
        rows = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
        wheel.writestr(f"{info}/RECORD", rows)
    return path


def missing_for(*pins: str) -> list[Missing]:
    found = tuple(entries("".join(f"{pin}\n" for pin in pins)))
    return [Missing("a", interpreters.own(), found, complete=True)]


@pytest.fixture
def no_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRL_COMPAT_CACHE", str(tmp_path / "ours"))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "wheels"


def test_uv_itself_says_what_it_lacks(
    no_index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels = [a_wheel(no_index, "1.0"), a_wheel(no_index, "2.0")]
    monkeypatch.setenv("UV_FIND_LINKS", str(no_index))
    lacking = missing_for("tiny-thing==1.0", "tiny-thing==2.0")
    found = needs.needs(lacking, linked=True)
    assert found.download == sum(path.stat().st_size for path in wheels)
    assert 200_000 < found.cache < 220_000
    assert not found.uncertain

    command = ["pip", "install", "--quiet", "--target", str(tmp_path / "target")]
    command += ["--python", interpreters.own().path, "tiny-thing==1.0"]
    uv(command)
    found = needs.needs(lacking, linked=True)
    assert found.download == wheels[1].stat().st_size


def test_what_uv_cannot_say_makes_it_a_lower_bound(no_index: Path) -> None:
    found = needs.needs(missing_for("no-such-thing==1.0"), linked=True)
    assert found.uncertain
    assert found.sentence(0).startswith(
        "1 environment to build: what is downloaded is not known yet; at least 130 MB on disk"
    )


class Files(http.server.SimpleHTTPRequestHandler):
    """A server of files that knows ranges, or does not."""

    ranges = True

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        wanted = self.headers.get("Range", "")
        data = Path(self.translate_path(self.path)).read_bytes()
        if not wanted or not self.ranges:
            self.send_response(200)
        else:
            first, last = map(int, wanted.removeprefix("bytes=").split("-"))
            data = data[first : last + 1]
            self.send_response(206)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def served(no_index: Path) -> Iterator[str]:
    no_index.mkdir()
    handler = lambda *more: Files(*more, directory=str(no_index))  # noqa: E731
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("ranges", [True, False])
def test_a_wheel_s_table_of_contents_tells_what_it_holds(
    no_index: Path, served: str, ranges: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Files, "ranges", ranges)
    wheel = a_wheel(no_index, "1.0")
    pin = "tiny-thing==1.0"
    monkeypatch.setattr(wheel_sizes, "_places", lambda *_: {pin: (f"{served}/{wheel.name}", None)})
    found = wheel_sizes.measure([], interpreters.own())[pin]
    assert found.download == wheel.stat().st_size
    assert (found.unpacked is not None) is ranges
    if found.unpacked is not None:
        assert 100_000 < found.unpacked < 110_000


def test_a_server_that_says_nothing_tells_no_size(
    no_index: Path, served: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheel_sizes, "_places", lambda *_: {"a==1": (f"{served}/none.whl", None)})
    assert wheel_sizes.measure([], interpreters.own()) == {"a==1": WheelSize()}
