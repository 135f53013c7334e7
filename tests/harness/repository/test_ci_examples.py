"""The examples for CI are read as their services read them, and their commands exist."""

from __future__ import annotations

import itertools
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
from trl_compat.cli import cli
from trl_compat.gate.judgement import ChangeVerdict
from trl_compat.usage.ignores import Settings
from trl_compat.usage.strategies import STRATEGIES

PAGE = (ROOT / "docs" / "gate.md").read_text(encoding="utf-8")
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))


def fenced(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)


def documents() -> list[Any]:
    return [yaml.safe_load(text) for text in fenced("yaml")]


def scripts(node: Any) -> Iterator[str]:
    """Every command line in a workflow."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "run" and isinstance(value, str):
                yield from value.splitlines()
            elif key == "script" and isinstance(value, list):
                yield from value
            else:
                yield from scripts(value)
    elif isinstance(node, list):
        for item in node:
            yield from scripts(item)


def commands() -> list[str]:
    found = itertools.chain(
        *(text.splitlines() for text in fenced("sh")),
        *(scripts(document) for document in documents()),
        scripts(ACTION),
    )
    lines = [line.strip() for line in found]
    return [line for line in lines if line.startswith(("trl-compat ", "nox -s gate -- "))]


def parse(line: str) -> click.Context:
    """The command of a line as the real parser sees it."""
    words = shlex.split(line.replace("nox -s gate -- ", "trl-compat gate "))[1:]
    # What a script adds at run time is looked at apart.
    words = [word for word in words if "options[@]" not in word]
    at = 2 if words[0] == "--project" else 0
    name, rest = words[at], words[at + 1 :]
    outer = cli.make_context("trl-compat", [*words[:at], "--"], resilient_parsing=True)
    return cli.commands[name].make_context(name, rest, parent=outer)


@pytest.mark.parametrize("line", commands())
def test_every_command_in_the_examples_is_understood(line: str) -> None:
    assert parse(line).params


def test_there_are_examples_to_look_at() -> None:
    assert len(commands()) >= 8


def test_a_command_that_does_not_exist_is_noticed() -> None:
    with pytest.raises(click.UsageError):
        parse("trl-compat gate --from a --candidat b")


def the_script() -> str:
    """What the action runs, whatever the command."""
    texts = [step.get("run", "") for step in ACTION["runs"]["steps"]]
    (script,) = [text for text in texts if "options+=" in text]
    return str(script)


@pytest.mark.parametrize(
    ("given", "ran"),
    [
        (
            {"REFERENCE": "a b.lock", "CANDIDATE": "$(touch x)", "TRAINERS": "GRPO SFT"},
            "--project|ACTION|gate|--from|a b.lock|--to|$(touch x)|--summary|s.md|"
            "--trainer|GRPO SFT",
        ),
        (
            {"STRATEGIES": "zero3", "FAILURES": "ppo-zero3-save"},
            "--project|ACTION|gate|--from||--to||--summary|s.md|"
            "--strategy|zero3|--failure|ppo-zero3-save",
        ),
        (
            {"COMMAND": "doctor", "FILES": "a.lock b.lock", "SCRIPT": "my train.py"},
            "doctor|--format|github|--script|my train.py|--|a.lock|b.lock",
        ),
    ],
)
def test_the_script_of_the_action_hands_its_inputs_on_as_they_are(
    tmp_path: Path, given: dict[str, str], ran: str
) -> None:
    stand_in = tmp_path / "trl-compat"
    stand_in.write_text('#!/bin/sh\nprintf "%s|" "$@" > ran\n')
    stand_in.chmod(0o755)
    names = ("COMMAND", "REFERENCE", "CANDIDATE", "FILES", "SCRIPT", "TRAINERS", "STRATEGIES")
    env = {**dict.fromkeys((*names, "FAILURES"), ""), "ACTION": "ACTION", "SUMMARY": "s.md"}
    env |= {"GITHUB_OUTPUT": "output", "PATH": f"{tmp_path}:{os.environ['PATH']}", **given}
    subprocess.run(
        ["bash", "-eo", "pipefail", "-c", the_script()], env=env, cwd=tmp_path, check=True
    )
    assert (tmp_path / "ran").read_text() == f"{ran}|"
    assert not (tmp_path / "x").exists()


def test_the_options_that_the_action_adds_exist() -> None:
    script = the_script()
    for name, command in (("doctor", "doctor"), ("gate", "gate")):
        assert f"{command} " in script
        known = {option for p in cli.commands[name].params for option in p.opts}
        added = set(re.findall(r"options\+=\((--[\w-]+)", script))
        assert added <= known | {"--strategy", "--failure", "--script"}
    gate = {option for p in cli.commands["gate"].params for option in p.opts}
    assert {"--trainer", "--strategy", "--failure"} <= gate
    doctor = {option for p in cli.commands["doctor"].params for option in p.opts}
    assert {"--trainer", "--script"} <= doctor


def test_the_workflows_use_inputs_that_the_action_has() -> None:
    used = [
        step["with"]
        for document in documents()
        for job in document.get("jobs", {}).values()
        for step in job["steps"]
        if "trl-compat" in step.get("uses", "")
    ]
    assert len(used) == 2
    for given in used:
        assert set(given) <= set(ACTION["inputs"])
        assert given.get("strategy", "zero3") in STRATEGIES


def test_no_input_of_the_action_is_pasted_into_its_script() -> None:
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step.get("run", "")


def test_every_input_of_the_action_is_used_and_described() -> None:
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    for name, given in ACTION["inputs"].items():
        assert f"inputs.{name}" in text
        assert given["description"]


def test_the_workflow_for_the_gate_has_a_dozen_lines() -> None:
    first = next(text for text in fenced("yaml") if "reference:" in text)
    assert len(first.splitlines()) <= 12


def test_the_hook_for_pre_commit_runs_doctor_on_locks() -> None:
    (hook,) = HOOKS
    assert hook["entry"] == "trl-compat doctor"
    pattern = re.compile(hook["files"])
    assert all(pattern.search(name) for name in ("uv.lock", "a/poetry.lock", "pylock.toml"))
    assert not pattern.search("requirements.txt")
    used = next(d for d in documents() if "repos" in d)["repos"][0]["hooks"][0]
    assert used["id"] == hook["id"]
    line = shlex.join([*hook["entry"].split(), "uv.lock", *used["args"]])
    assert parse(line).params["trainer"] == ("GRPO",)


def test_the_ignore_in_the_page_is_one() -> None:
    (text,) = fenced("toml")
    table = tomllib.loads(text)["tool"]["trl-compat"]
    assert Settings.model_validate(table).ignore[0].failure == "ppo-zero3-save"


def test_the_page_names_every_verdict() -> None:
    assert all(f"{verdict.mark} {verdict} |" in PAGE for verdict in ChangeVerdict)
