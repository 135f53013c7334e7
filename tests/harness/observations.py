"""Observations made by hand, and the verdicts on them."""

from __future__ import annotations

from typing import Any

from trl_compat.advisories import Catalogue
from trl_compat.cells.observation import Launch, Observation
from trl_compat.cells.outcome import Outcome
from trl_compat.cells.verdict import Verdict, decide

SEEN: dict[str, Any] = {
    "exception": "AttributeError",
    "message": "'X' object has no attribute 'gather'",
    "where": "accelerate/accelerator.py:get_state_dict",
    "frames": [
        {"file": "trl/trainer/ppo_trainer.py", "function": "save_model", "line": 1},
        {"file": "accelerate/accelerator.py", "function": "get_state_dict", "line": 2},
    ],
}


INIT: dict[str, Any] = {
    "exception": "ValueError",
    "message": "Please make sure to properly initialize your accelerator",
    "where": "accelerate/state.py:__getattr__",
    "frames": [],
}


LOST_PEER = {**INIT, "exception": "RuntimeError", "message": "Connection closed by peer [::1]:1"}


CHECK = {"name": "saved", "holds": True, "message": ""}


def record(status: str = "finished", *, ended: float = 1.0, **more: Any) -> dict[str, Any]:
    return {"status": status, "ended": ended, "checks": [CHECK], "stand_ins": [], **more}


def observed(*ranks: dict[str, Any] | None, **more: Any) -> Observation:
    given: dict[str, Any] = {
        "launch": Launch.PRELOADED,
        "world_size": len(ranks) or 2,
        "started_at": "2026-01-01T00:00:00+00:00",
        "seconds": 1.0,
        "ranks": {n: r for n, r in enumerate(ranks) if r is not None},
        **more,
    }
    return Observation(**given)


def judge(
    catalogue: Catalogue, seen: Observation, control: Outcome | None = Outcome.PASS
) -> Verdict:
    return decide(seen, catalogue["saving"], catalogue.masks, control)


RAISED = record("raised", error=SEEN)
