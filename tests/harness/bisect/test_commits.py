"""Inside an edge: the commits of a clone on this machine, along first parents."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.harness.bisect.bench import Bench, Judge, verdict
from trl_compat.bisect import answer, history
from trl_compat.bisect.answer import Answer
from trl_compat.cells.outcome import Outcome
from trl_compat.cells.verdict import Verdict
from trl_compat.errors import BadInput
from trl_compat.stacks.environments import cache
from trl_compat.stacks.matrix import Stack


class Clone:
    """A repository whose commits are named by their subjects."""

    def __init__(self, path: Path) -> None:
        self.path, self.names = path, dict[str, str]()
        self.git("init", "--quiet", "--initial-branch=main", str(path), at=path.parent)

    def git(self, *words: str, at: Path | None = None) -> str:
        env = {"PATH": "/usr/bin:/bin", "HOME": str(self.path.parent), "GIT_CONFIG_NOSYSTEM": "1"}
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        return subprocess.run(
            ["git", *who, *words],
            cwd=at or self.path,
            env=env,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()

    def commits(self, *subjects: str) -> None:
        for subject in subjects:
            self.git("commit", "--quiet", "--allow-empty", "-m", subject)
            self.names[subject] = self.git("rev-parse", "HEAD")


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clone:
    """Two releases: one on the line of development, one on a branch of its own with a pick."""
    monkeypatch.setenv("TRL_COMPAT_CACHE", str(tmp_path / "cache"))
    found = Clone(tmp_path / "clone")
    found.commits("start", "a", "b", "parting")
    found.git("checkout", "--quiet", "-b", "release")
    found.commits("pick 1", "pick 2")
    found.git("tag", "v0.12.2")
    found.git("checkout", "--quiet", "main")
    found.git("checkout", "--quiet", "-b", "topic")
    found.commits("on a branch")
    found.git("checkout", "--quiet", "main")
    found.commits(*(f"main {number}" for number in range(1, 8)))
    found.git("merge", "--quiet", "--no-ff", "-m", "merge", "topic")
    found.commits("main 8")
    found.git("tag", "-a", "v0.13.0", "-m", "release")
    return found


def bisect(bench: Bench, clone: Path | None) -> Answer:
    found = bench.bisect("trl", "0.13.0", "0.12.2", stack="trl-0.13.0", commits=True, clone=clone)
    assert found.commits is not None
    return found.commits


def failing(clone: Clone, *subjects: str) -> Judge:
    """Fails in TRL 0.12.2 and at these commits."""
    names = {clone.names[subject] for subject in subjects}

    def judge(stack: Stack, _: int) -> Verdict:
        commit = stack.commit("trl")
        fails = commit in names if commit else stack.trl == "0.12.2"
        return verdict(Outcome.REPRODUCED if fails else Outcome.PASS)

    return judge


def test_the_commit_on_the_line_of_development_that_mends(bisection: Bench, clone: Clone) -> None:
    fails = ("parting", *(f"main {number}" for number in range(1, 6)))
    bisection.judge = failing(clone, *fails)
    found = bisect(bisection, clone.path)
    assert found.bad.version == clone.names["main 5"]
    assert found.good.version == clone.names["main 6"]
    assert f"{clone.names['main 6'][:9]} (4 of 10): main 6" in found.notes
    assert found.candidates == 10  # the parting, eight of main, the merge; not the topic's own
    said = answer.text(found)
    assert "10 commits tried" in said.replace(f"{found.tried} of ", "")
    assert found.advice is None


def test_a_commit_that_was_made_on_the_release_branch_only(bisection: Bench, clone: Clone) -> None:
    bisection.judge = failing(clone, "pick 2")
    found = bisect(bisection, clone.path)
    assert (found.good.version, found.bad.version) == (clone.names["pick 1"], clone.names["pick 2"])
    assert any("branches part at" in note for note in found.notes)


def test_stacks_of_commits_differ_in_one_package_only(bisection: Bench, clone: Clone) -> None:
    plain = failing(clone, "parting")
    seen: list[Stack] = []

    def judge(stack: Stack, number: int) -> Verdict:
        seen.append(stack)
        return plain(stack, number)

    bisection.judge = judge
    bisect(bisection, clone.path)
    others = {stack.model_copy(update={"trl": ""}) for stack in seen if stack.commit("trl")}
    assert len(others) == 1


def test_a_commit_says_what_it_calls_itself(clone: Clone) -> None:
    commit = clone.names["parting"]
    folder = cache.folder("wheels") / f"trl-{commit[:9]}-py3.11-abc"
    folder.mkdir()
    (folder / "trl-0.13.0.dev0-py3-none-any.whl").touch()
    assert history.calls_itself("trl", commit) == "0.13.0.dev0"
    assert history.calls_itself("trl", clone.names["a"]) == ""


def test_a_parting_that_cannot_be_judged_ends_it(bisection: Bench, clone: Clone) -> None:
    plain = failing(clone)
    gone = verdict(Outcome.UNRESOLVABLE, "its build failed")
    bisection.judge = lambda stack, n: gone if stack.commit("trl") else plain(stack, n)
    with pytest.raises(BadInput, match=r"part, cannot be judged .unresolvable: its build failed"):
        bisect(bisection, clone.path)


def test_a_clone_without_the_tag_is_refused(bisection: Bench, clone: Clone) -> None:
    clone.git("tag", "--delete", "v0.12.2")
    bisection.judge = failing(clone)
    with pytest.raises(BadInput, match=r"has no tag v0.12.2|no clone of"):
        bisect(bisection, clone.path)


def test_what_is_no_clone_is_refused_before_anything_runs(
    bisection: Bench, clone: Clone, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="not a clone that can be read"):
        bisect(bisection, tmp_path / "empty")
    assert bisection.ran == []


def test_torch_has_no_commits_here(bisection: Bench) -> None:
    with pytest.raises(BadInput, match="torch cannot be built from its commits here"):
        bisection.bisect("torch", "2.4.1", "2.3.1", commits=True, stack="trl-0.13.0")
