"""The worked examples of docs/many-machines.md, as processes that play the machines."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.harness.commands import CLI
from tests.harness.conftest import ROOT

PAGE = (ROOT / "docs" / "many-machines.md").read_text(encoding="utf-8")
WORKFLOW = ROOT / ".github" / "workflows" / "matrix.yml"
SHELL = ["bash", "-eo", "pipefail"]
OURS = CLI.parent


@dataclass(frozen=True)
class Step:
    """A script of an example, in the folder of a checkout, with its environment."""

    script: str
    environment: dict[str, str]

    def start(self, checkout: Path, path: Path, **more: str) -> subprocess.Popen[str]:
        """Starts it; ``path`` is where its ``trl-compat`` is."""
        env = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}", **self.environment, **more}
        return subprocess.Popen(
            [*SHELL, "-c", self.script],
            cwd=checkout,
            env=env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )


@dataclass(frozen=True)
class Example:
    """The scripts of the shards, and the one that merges."""

    shards: list[Step]
    merge: Step


def example(name: str) -> Example:
    return {"github": _github, "slurm": _slurm}[name]()


def workflow(text: str) -> dict[str, Any]:
    found = yaml.safe_load(text)
    assert isinstance(found, dict)
    return found


def _github() -> Example:
    """The jobs of the project's own workflow, without what installs, checks out or uploads."""
    found = workflow(WORKFLOW.read_text(encoding="utf-8"))
    jobs = found["jobs"]

    def ours(job: str) -> str:
        (script,) = [s["run"] for s in jobs[job]["steps"] if "trl-compat" in s.get("run", "")]
        return str(script)

    shards = []
    for number in jobs["shard"]["strategy"]["matrix"]["shard"]:
        env = {**found["env"], **jobs["shard"]["env"]}
        filled = {k: v.replace("${{ matrix.shard }}", str(number)) for k, v in env.items()}
        del filled["PIP_EXTRA_INDEX_URL"]  # of the hosted runners; here the index is set up
        shards.append(Step(ours("shard"), filled))
    return Example(shards, Step(ours("merge"), {}))


def _slurm() -> Example:
    """The job array, with the variables that Slurm sets for its tasks, and the job after it."""
    (script,) = re.findall(r"^```bash\n(#!/bin/bash\n.*?)^```$", PAGE, re.M | re.S)
    (tasks,) = re.findall(r"^#SBATCH --array=1-(\d+)$", script, re.M)
    (wrapped,) = re.findall(r'--wrap "([^"]*)"', PAGE)
    shards = [
        Step(script, {"SLURM_ARRAY_TASK_ID": str(task), "SLURM_SUBMIT_DIR": "."})
        for task in range(1, int(tasks) + 1)
    ]
    return Example(shards, Step(wrapped.replace("$PWD/.venv/bin/trl-compat", "trl-compat"), {}))
