"""Results made by hand."""

from __future__ import annotations

from trl_compat import results
from trl_compat.cells.observation import Launch
from trl_compat.cells.outcome import Outcome
from trl_compat.machine.description import Host


def cell(**changes: object) -> results.CellResult:
    given: dict[str, object] = {
        "id": "s__ppo-zero3-save__zero3__tiny-qwen2__x2",
        "stack": "s",
        "failure": "ppo-zero3-save",
        "variant": "zero3",
        "model": "tiny-qwen2",
        "world_size": 2,
        "backend": "gloo",
        "fixed": False,
        "fix": None,
        "outcome": Outcome.REPRODUCED,
        "expected": Outcome.REPRODUCED,
        "agrees": True,
        "reason": "a | b <script>",
        "symptom": "text",
        "masked_by": None,
        "signature": results.Signature(exception="E", message="m", where="f:g"),
        "checks": [],
        "stand_ins": [],
        "evidence": "cpu-gloo × 2",
        "started_at": "2026-01-01T00:00:00+00:00",
        "seconds": 1.0,
        "launch": Launch.PRELOADED,
        "attempts": [],
        "log": None,
        "command": "nox -s matrix",
        **changes,
    }
    return results.CellResult.model_validate(given)


def document(*cells: results.CellResult) -> results.Results:
    versions = dict.fromkeys(("torch", "trl", "transformers", "deepspeed", "accelerate"), "1.0")
    stack = results.StackResult(
        python="3.11", peft="1.0", as_of="2026-01-01", lock_sha256=None, packages={}, **versions
    )
    return results.Results(
        generated_at="2026-01-01T00:00:00+00:00",
        command="x",
        profile="default",
        host=Host(os="Linux", cpu="c", memory="1 GiB"),
        stacks={"s": stack},
        cells=list(cells),
        summary=results.summary(cells),
    )


HERE = Host(os="Linux", cpu="here", memory="1 GiB")


ELSEWHERE = Host(os="Linux", cpu="elsewhere", memory="8 GiB", gpus=["H200"])


def merged() -> results.Results:
    """A cell of a run here, and one of another stack and a run elsewhere."""
    runs = [
        results.RunResult(
            id=name,
            started_at=f"2026-01-0{day}T00:00:00+00:00",
            ended_at=None,
            command=f"run {name}",
            profile="full",
            host=host,
            harness_version="0.9",
        )
        for day, (name, host) in enumerate([("here", HERE), ("there", ELSEWHERE)], start=1)
    ]
    cells = [
        cell(run="here"),
        cell(id="t", stack="t", run="there", started_at="2026-01-02T00:00:00+00:00"),
    ]
    shown = document()
    stacks = {**shown.stacks, "t": shown.stacks["s"]}
    return shown.model_copy(update={"stacks": stacks, "cells": cells, "runs": runs})
