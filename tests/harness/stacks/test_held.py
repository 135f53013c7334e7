"""What the cache holds is counted once, and only what nobody needs is removed."""

from __future__ import annotations

import datetime
import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from filelock import FileLock

from trl_compat.cli import cli
from trl_compat.errors import BadInput
from trl_compat.stacks.environments import build, locks
from trl_compat.stacks.held import counting, inventory, pruning, uv_cache
from trl_compat.stacks.held.inventory import Inventory, Kind
from trl_compat.stacks.held.pruning import Removal, Request, Wanted

MB = 2**20
SITE = Path("lib", "python3.11", "site-packages")
DAY = datetime.timedelta(days=1)


def write(path: Path, size: int = MB) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(size))
    return path


class Disk:
    """A cache of the harness's and one of uv's, with a build of torch of a megabyte."""

    def __init__(self, folder: Path) -> None:
        self.ours, self.uv = folder / "ours", folder / "uv"

    def wheel(self, version: str, name: str = "torch", index: str = "pypi") -> Path:
        """A wheel in uv's cache; the file that environments link to."""
        archive = self.uv / "archive-v0" / f"{name}{version}"
        large = write(archive / name / "large.so")
        write(archive / f"{name}-{version}.dist-info" / "METADATA", 100)
        place = self.uv / "wheels-v8" / index / name
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{version}-cp311-cp311-linux").symlink_to(archive)
        for end in (".http", ".msgpack", ".lock"):
            (place / f"{version}-cp311-cp311-linux{end}").touch()
        return large

    def environment(self, stack: str, torch: str, large: Path | None = None) -> Path:
        """An environment with a build of torch, linked where there is one to link to."""
        lock = locks.lock_of(f"torch=={torch} \\\n    --hash=sha256:00\n# {stack}\n")
        folder = self.ours / "environments" / f"{stack}-{lock.sha256[:12]}"
        info = folder / SITE / f"torch-{torch}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").touch()
        (info / "RECORD").write_text(f"torch/large.so,,{MB}\n")
        (folder / SITE / "torch").mkdir()
        if large is not None:
            os.link(large, folder / SITE / "torch" / "large.so")
        write(folder / "bytecode" / "torch.pyc", MB // 2)
        (folder / build.IN_USE).touch()
        (folder / "lock.txt").write_text(lock.text)
        return folder

    def take(self) -> Inventory:
        return inventory.take(self.ours, self.uv)

    def prune(self, request: Request, now: float | None = None) -> list[Removal]:
        return pruning.plan(self.take(), request, now or time.time())


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk(tmp_path)
    monkeypatch.setenv("TRL_COMPAT_CACHE", str(made.ours))
    monkeypatch.setenv("UV_CACHE_DIR", str(made.uv))
    return made


def only(*stacks: str, packages: tuple[str, ...] = ()) -> Wanted:
    return Wanted(dict.fromkeys(stacks, ""), frozenset(packages))


def whats(removals: list[Removal]) -> list[str]:
    return [one.what.partition(" ")[2].rpartition("-")[0] or one.what for one in removals]


def test_each_file_is_counted_once(disk: Disk) -> None:
    large = disk.wheel("2.4.1")
    disk.environment("a", "2.4.1", large)
    disk.environment("b", "2.4.1", large)
    held = disk.take()
    assert [thing.stack for thing in held.of(Kind.ENVIRONMENT)] == ["a", "b"]
    for thing in held.of(Kind.ENVIRONMENT):
        assert thing.size.shared == MB
        assert MB // 2 <= thing.size.own < MB // 2 + 64 * 1024
    assert 2 * MB <= held.total < 2 * MB + 256 * 1024
    assert held.uv is not None
    assert held.uv.size.shared == MB


def test_what_was_measured_is_not_walked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = (tmp_path / name for name in "abc")
    for name in ("__init__.py", "lib/deep/large.so", "lib/small.so"):
        write(first / "torch" / name)
        for other in (second, third):
            (other / "torch" / name).parent.mkdir(parents=True, exist_ok=True)
            os.link(first / "torch" / name, other / "torch" / name)
    write(third / "torch" / "added.py")
    walked: list[str] = []
    real = os.scandir

    def scandir(path: str) -> Any:
        walked.append(path)
        return real(path)

    monkeypatch.setattr(counting.os, "scandir", scandir)  # type: ignore[attr-defined]
    ledger = counting.Ledger()
    assert ledger.measure(first) == counting.Size(own=0, shared=3 * MB)
    walked.clear()
    assert ledger.measure(second) == counting.Size(own=0, shared=3 * MB)
    assert walked == [str(second), str(second / "torch")]
    assert ledger.measure(third) == counting.Size(own=MB, shared=3 * MB)
    assert ledger.total == 4 * MB


def test_a_file_with_all_its_names_in_one_environment_is_its_own(disk: Disk) -> None:
    folder = disk.environment("a", "2.4.1")
    os.link(folder / "bytecode" / "torch.pyc", folder / "bytecode" / "again.pyc")
    (thing,) = disk.take().of(Kind.ENVIRONMENT)
    assert thing.size.shared == 0
    assert thing.size.own < MB


def test_a_build_of_torch_names_the_stacks_that_have_it(disk: Disk) -> None:
    disk.environment("a", "2.4.1")
    disk.environment("b", "2.15.0")
    disk.environment("c", "2.4.1")
    builds = {one.version: one for one in disk.take().builds}
    assert builds["2.4.1"].stacks == ("a", "c")
    assert builds["2.4.1"].size == MB


def test_a_stack_that_the_matrix_does_not_have_is_pruned(disk: Disk) -> None:
    kept, gone = disk.environment("kept", "2.4.1"), disk.environment("gone", "2.4.1")
    found = disk.prune(Request(only("kept")))
    assert [one.paths for one in found] == [(gone,)]
    pruning.remove(found, disk.take(), lambda *_: None)
    assert kept.is_dir()
    assert not gone.exists()
    assert list((disk.ours / "damaged").iterdir()) == []


def test_an_environment_of_an_older_lock_is_pruned(disk: Disk) -> None:
    folder = disk.environment("kept", "2.4.1")
    now = Wanted({"kept": "0123456789ab"}, frozenset())
    assert [one.paths for one in disk.prune(Request(now))] == [(folder,)]
    same = Wanted({"kept": folder.name[-12:]}, frozenset())
    assert disk.prune(Request(same)) == []


def test_what_a_run_uses_is_kept(disk: Disk) -> None:
    folder = disk.environment("gone", "2.4.1")
    told: list[str] = []
    with (folder / build.IN_USE).open() as used:
        fcntl.flock(used, fcntl.LOCK_SH)
        found = disk.prune(Request(only()))
        pruning.remove(found, disk.take(), lambda _, why: told.append(why))
    assert told == ["a run uses it"]
    assert folder.is_dir()


def test_what_a_run_makes_is_kept(disk: Disk) -> None:
    folder = disk.environment("gone", "2.4.1")
    told: list[str] = []
    with FileLock(f"{folder}.lock"):
        found = disk.prune(Request(only()))
        pruning.remove(found, disk.take(), lambda _, why: told.append(why))
    assert told == ["a run is making or checking it"]
    assert folder.is_dir()


def test_what_was_not_used_for_long_is_pruned_on_request(disk: Disk) -> None:
    old, new = disk.environment("old", "2.4.1"), disk.environment("new", "2.4.1")
    for name in (build.IN_USE, "lock.txt"):
        os.utime(old / name, (0, time.time() - 31 * 86400))
    request = Request(only("old", "new"), unused_for=30 * DAY)
    assert [one.paths for one in disk.prune(request)] == [(old,)]
    assert disk.prune(Request(only("old", "new"), unused_for=32 * DAY)) == []
    assert disk.prune(Request(only("old", "new"))) == []
    assert new.is_dir()


def test_use_is_noted(disk: Disk) -> None:
    folder = disk.environment("a", "2.4.1")
    for name in (build.IN_USE, "lock.txt"):
        os.utime(folder / name, (0, 0))
    try:
        build._use(folder)
    finally:
        os.close(build._in_use.pop(folder))
    (thing,) = disk.take().of(Kind.ENVIRONMENT)
    assert thing.used is not None
    assert thing.used > time.time() - 3600


def test_only_a_stack_that_is_named_is_pruned(disk: Disk) -> None:
    disk.environment("gone", "2.4.1")
    named = disk.environment("named", "2.4.1")
    found = disk.prune(Request(only(), stacks=("named",)))
    assert [one.paths for one in found] == [(named,)]
    with pytest.raises(BadInput, match="unknown environment 'namd'; did you mean 'named'"):
        disk.prune(Request(only(), stacks=("namd",)))


def test_a_build_that_is_linked_or_needed_stays_in_uv_s_cache(disk: Disk) -> None:
    linked, theirs = disk.wheel("2.4.1"), disk.wheel("2.8.0", index="index/0123")
    disk.wheel("2.13.0+cpu")
    disk.wheel("2.6.0")
    disk.wheel("12.1", name="nvidia-cublas-cu12")
    disk.wheel("1.0", name="numpy")
    disk.environment("kept", "2.4.1", linked)
    os.link(theirs, disk.uv.parent / "an-environment-of-the-user")
    wanted = only("kept", packages=("torch==2.13.0",))
    assert disk.prune(Request(wanted)) == []
    found = disk.prune(Request(wanted, uv=True))
    assert [one.what for one in found] == ["uv's nvidia-cublas-cu12 12.1", "uv's torch 2.6.0"]
    assert all(MB <= one.freed < MB + 64 * 1024 for one in found)


def test_a_build_goes_with_the_last_environment_that_has_it(disk: Disk) -> None:
    large = disk.wheel("2.4.1")
    disk.environment("a", "2.4.1", large)
    disk.environment("b", "2.4.1", large)
    found = disk.prune(Request(only("b"), uv=True))
    assert [one.paths[0].name for one in found] == [disk.take().things[0].name]
    found = disk.prune(Request(only(), uv=True))
    assert len(found) == 3
    assert sum(one.freed for one in found) >= 2 * MB


def test_uv_still_knows_what_is_left_in_its_cache(disk: Disk) -> None:
    disk.wheel("2.6.0")
    disk.wheel("2.4.1")
    found = disk.prune(Request(only(packages=("torch==2.4.1",)), uv=True))
    pruning.remove(found, disk.take(), lambda *_: None)  # with the real uv
    assert [wheel.version for wheel in uv_cache.wheels(disk.uv)] == ["2.4.1"]
    assert [path.name for path in (disk.uv / "archive-v0").iterdir()] == ["torch2.4.1"]


def test_what_is_foreign_or_broken_is_named_and_left_alone(disk: Disk) -> None:
    disk.environment("whole", "2.4.1")
    broken = disk.environment("broken", "2.4.1")
    (broken / "lock.txt").write_bytes(b"\xff\xfe")
    changed = disk.environment("changed", "2.4.1")
    (changed / "lock.txt").write_text("torch==2.4.2\n")
    unfinished = disk.ours / "environments" / "unfinished-0123456789ab"
    unfinished.mkdir()
    foreign = [
        write(disk.ours / "environments" / "notes.txt"),
        write(disk.ours / "backup" / "file").parent,
        write(disk.ours / "wheels" / "mine" / "file").parent,
    ]
    link = disk.ours / "environments" / "link-0123456789ab"
    link.symlink_to(disk.uv)
    others = {broken, changed, unfinished, link, *foreign}
    held = disk.take()
    assert {thing.path for thing in held.of(Kind.OTHER)} == others
    assert all(thing.problem for thing in held.of(Kind.OTHER))
    assert not {path for one in disk.prune(Request(only())) for path in one.paths} & others


def test_tools_and_wheels_that_no_stack_needs_are_pruned(disk: Disk) -> None:
    for name, torch in (("deepspeed-py3.11-0", "2.4.1"), ("deepspeed-py3.11-1", "2.6.0")):
        info = disk.ours / "build" / name / SITE / f"torch-{torch}.dist-info"
        info.mkdir(parents=True)
    for name in ("deepspeed-0.15.1", "deepspeed-0.16.5", "trl-724acb971", "trl-6a05feff0"):
        write(disk.ours / "wheels" / f"{name}-py3.11-0123456789ab" / "made.whl")
    disk.environment("kept", "2.4.1")
    wanted = only("kept", packages=("deepspeed==0.15.1", "trl==724acb971"))
    found = [one.paths[0].name for one in disk.prune(Request(wanted))]
    assert found == [
        "deepspeed-py3.11-1",
        "deepspeed-0.16.5-py3.11-0123456789ab",
        "trl-6a05feff0-py3.11-0123456789ab",
    ]


MATRIX = """
models: [tiny-qwen2]
stacks:
  kept: {as_of: 2024-10-20, torch: 2.4.1, trl: 0.11.4, transformers: 4.45.2, deepspeed: 0.15.2,
    accelerate: 0.34.2, peft: 0.13.2}
profiles:
  default: {about: all, select: [{models: [tiny-qwen2]}]}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "matrix.yaml").write_text(MATRIX)
    return folder


def call(root: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, ["--project", str(root), "cache", *words])


@pytest.mark.usefixtures("disk")
def test_an_empty_cache_is_one_sentence(root: Path) -> None:
    for words in ((), ("prune",), ("prune", "--yes")):
        done = call(root, *words)
        assert (done.exit_code, len(done.output.splitlines())) == (0, 1), done.output
        assert "nothing is held" in done.output
    assert json.loads(call(root, "--json").output)["total"] == 0


def test_the_command_shows_what_is_held(disk: Disk, root: Path) -> None:
    disk.environment("kept", "2.4.1", disk.wheel("2.4.1"))
    write(disk.ours / "environments" / "notes\x1b[31m.txt")
    done = call(root)
    assert done.exit_code == 0
    for said in (
        "1 environment in",
        "kept",
        "torch 2.4.1",
        "uv's cache",
        "Not recognized",
        "Total",
    ):
        assert said in done.output
    assert "\x1b" not in done.output
    data = json.loads(call(root, "--json").output)
    (one,) = data["environments"]
    assert (one["stack"], one["shared"]) == ("kept", MB)
    assert data["torch"] == [{"version": "2.4.1", "size": MB, "stacks": ["kept"]}]


def test_nothing_is_removed_without_yes(disk: Disk, root: Path) -> None:
    gone, kept = disk.environment("gone", "2.4.1"), disk.environment("kept", "2.4.1")
    done = call(root, "prune")
    assert done.exit_code == 0
    assert "would remove environment gone-" in done.output
    assert "add --yes" in done.output
    assert gone.is_dir()
    done = call(root, "prune", "--yes", "--json")
    assert [row["removed"] for row in json.loads(done.output)] == [True]
    assert kept.is_dir()
    assert not gone.exists()
    assert call(root, "prune").output == "nothing to remove\n"


@pytest.mark.parametrize("text", ["30", "d", "-1d", "1.5d", "30 days", "999999d", ""])
def test_a_time_that_is_none_is_said(text: str) -> None:
    with pytest.raises(BadInput, match="is not a time such as 30d, 12h or 2w"):
        pruning.age(text)


def test_without_a_matrix_it_has_to_be_said_what_goes(disk: Disk, tmp_path: Path) -> None:
    folder = disk.environment("a", "2.4.1")
    done = call(tmp_path, "prune", "--yes")
    assert isinstance(done.exception, BadInput)
    assert "no such file" in str(done.exception)
    assert folder.is_dir()
    assert "would remove environment a-" in call(tmp_path, "prune", "--stack", "a").output
