"""The project's own workflows, hooks and package metadata are what they are said to be."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from tests.harness.conftest import ROOT
from trl_compat import __version__
from trl_compat.cli import cli

FOLDER = ROOT / ".github" / "workflows"
WORKFLOWS = sorted(FOLDER.glob("*.yml"))
NOX = ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8"))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def read(path: Path) -> dict[Any, Any]:
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(document, dict)
    return document


def named(name: str) -> dict[Any, Any]:
    return read(FOLDER / f"{name}.yml")


def triggers(workflow: dict[Any, Any]) -> dict[str, Any]:
    return dict(workflow[True])  # YAML 1.1 reads the key 'on' as true


def steps() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in WORKFLOWS:
        for name, job in read(path)["jobs"].items():
            for step in job.get("steps", ()):
                yield f"{path.stem}/{name}", step


def sessions() -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in NOX.body if isinstance(node, ast.FunctionDef)}


def commands() -> list[str]:
    """Every line of ours in a workflow."""
    lines = [line.strip() for _, s in steps() for line in s.get("run", "").splitlines()]
    return [line for line in lines if line.startswith(("nox ", "trl-compat "))]


def test_there_are_workflows_for_checks_matrix_refresh_and_release() -> None:
    assert [path.stem for path in WORKFLOWS] == ["checks", "matrix", "refresh", "release"]
    assert len(commands()) >= 5


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_read_only_and_its_jobs_have_an_end(path: Path) -> None:
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    assert "pull_request_target" not in triggers(workflow)
    for name, job in workflow["jobs"].items():
        assert "timeout-minutes" in job or "uses" in job, name


def test_only_these_jobs_may_do_more() -> None:
    more = {
        f"{path.stem}/{name}": job["permissions"]
        for path in WORKFLOWS
        for name, job in read(path)["jobs"].items()
        if "permissions" in job
    }
    assert more == {
        "refresh/issue": {"issues": "write"},
        "refresh/propose": {"contents": "write", "pull-requests": "write"},
        "release/attest": {"id-token": "write", "attestations": "write"},
        "release/publish": {"id-token": "write"},
    }
    # What may write or sign runs nothing that was installed or is in the checkout.
    for job, step in steps():
        if job in more:
            assert not re.search(r"\b(pip|uv|nox|python|trl-compat)\b", step.get("run", ""))


def test_pull_requests_are_checked_on_both_systems_without_stacks() -> None:
    checks = named("checks")
    assert "pull_request" in triggers(checks)
    assert checks["jobs"]["tests"]["strategy"]["matrix"]["os"] == ["ubuntu-latest", "macos-latest"]
    assert "matrix" not in " ".join(str(s.get("run")) for s in checks["jobs"]["lint"]["steps"])
    assert any("not matrix and not browser" in line for line in commands())
    assert triggers(named("matrix"))["push"]["branches"] == ["main"]


GH = """#!/bin/sh
echo "$@" >> "$CALLS"
case "$2" in list) echo "$OPEN";; esac
"""


@pytest.mark.parametrize(
    ("deviates", "open_", "called"),
    [
        ("1", "", "issue create --title New releases deviate --body-file found/issue.md"),
        ("1", "7", "issue edit 7 --body-file found/issue.md"),
        ("0", "7", "issue close 7 --comment Nothing newly fails as of today."),
        ("0", "", ""),
    ],
)
def test_the_nightly_run_keeps_one_issue(
    tmp_path: Path, deviates: str, open_: str, called: str
) -> None:
    (step,) = [s for job, s in steps() if job == "refresh/issue" and "run" in s]
    gh = tmp_path / "gh"
    gh.write_text(GH)
    gh.chmod(0o755)
    calls = tmp_path / "calls"
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "CALLS": str(calls),
        "OPEN": open_,
        "TITLE": step["env"]["TITLE"],
        "DEVIATES": deviates,
        "FOUND": "found",
    }
    subprocess.run(["bash", "-e", "-c", step["run"]], env=environment, check=True)
    listed, *others = calls.read_text().splitlines()
    assert listed.startswith("issue list --state open --search")
    assert others == ([called] if called else [])


def test_new_releases_are_looked_for_every_night() -> None:
    ((schedule),) = triggers(named("refresh"))["schedule"]
    assert re.fullmatch(r"\d+ \d+ \* \* \*", schedule["cron"])
    assert any(line.startswith("trl-compat refresh --run --write") for line in commands())


@pytest.mark.parametrize("line", commands())
def test_every_command_of_a_workflow_is_understood(line: str) -> None:
    words = shlex.split(re.split(r"\s(?:\||>|&&)", line)[0])
    if words[0] == "nox":
        assert words[words.index("-s") + 1] in sessions()
        return
    command: click.Command = cli
    for word in words[1:]:
        if isinstance(command, click.Group):
            command = command.commands[word]
        elif word.startswith("--"):
            assert word in {option for one in command.params for option in one.opts}, line


def lint_commands() -> set[tuple[str, ...]]:
    """The commands of the session lint, without the files that are put in at run time."""
    calls = [n for n in ast.walk(sessions()["lint"]) if isinstance(n, ast.Call)]
    runs = [c for c in calls if isinstance(c.func, ast.Attribute) and c.func.attr == "run"]
    return {
        tuple(str(arg.value) for arg in call.args if isinstance(arg, ast.Constant)) for call in runs
    }


def test_the_hooks_run_what_the_session_lint_runs() -> None:
    (repository,) = read(ROOT / ".pre-commit-config.yaml")["repos"]
    hooks = {tuple(shlex.split(hook["entry"])) for hook in repository["hooks"]}
    prefix = ".nox/lint/bin/"
    assert all(words[0].startswith(prefix) for words in hooks)
    assert {(words[0].removeprefix(prefix), *words[1:]) for words in hooks} == lint_commands()


def test_each_hook_looks_at_files_that_there_are() -> None:
    (repository,) = read(ROOT / ".pre-commit-config.yaml")["repos"]
    below = ("advisories/**/*", "src/**/*", "tests/**/*", ".github/**/*", "*.yml")
    files = [str(p.relative_to(ROOT)) for pattern in below for p in ROOT.glob(pattern)]
    for hook in repository["hooks"]:
        if "files" in hook:
            assert any(re.search(hook["files"], name) for name in files), hook["id"]


def test_the_package_says_that_it_is_typed_and_where_it_is() -> None:
    assert (ROOT / "src" / "trl_compat" / "py.typed").is_file()
    assert PYPROJECT["project"]["license"] == "Apache-2.0"
    assert {"Repository", "Changelog", "Issues"} <= set(PYPROJECT["project"]["urls"])


@pytest.mark.parametrize(
    ("tag", "changelog", "owner", "code"),
    [
        ("v{version}", "## [{version}] - 2026-12-01", "somebody", 0),
        ("v9.9.9", "## [9.9.9] - 2026-12-01", "somebody", 1),
        ("v{version}", "## [Unreleased]", "somebody", 1),
        ("v{version}", "## [{version}] - 2026-12-01", "OWNER", 1),
    ],
)
def test_a_tag_is_released_only_with_its_version_changelog_and_address(
    tmp_path: Path, tag: str, changelog: str, owner: str, code: int
) -> None:
    (script,) = [s["run"] for job, s in steps() if job == "release/build" and "tag" in str(s)]
    source = tmp_path / "src" / "trl_compat" / "__init__.py"
    source.parent.mkdir(parents=True)
    source.write_bytes((ROOT / "src" / "trl_compat" / "__init__.py").read_bytes())
    (tmp_path / "CHANGELOG.md").write_text(changelog.format(version=__version__) + "\n")
    (tmp_path / "pyproject.toml").write_text(f'Repository = "https://github.com/{owner}/x"\n')
    environment = {"PATH": os.environ["PATH"], "GITHUB_REF_NAME": tag.format(version=__version__)}
    done = subprocess.run(["bash", "-e", "-c", script], cwd=tmp_path, env=environment, check=False)
    assert done.returncode == code


def test_the_changelog_has_the_standard_form() -> None:
    headings = re.findall(r"^## (.*)$", CHANGELOG, re.M)
    assert headings[0] == "[Unreleased]"
    for heading in headings[1:]:
        assert re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d{2}-\d{2}", heading)
    kinds = set(re.findall(r"^### (.*)$", CHANGELOG, re.M))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
