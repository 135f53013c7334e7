"""``verify``: one line in a training script, before ``trainer.train()`` or inside of it."""

from __future__ import annotations

import time
from typing import Any

from . import run
from .recording import NotPossible
from .standalone import started
from .verdict import NOT_CHECKED, Check, Verdict


def verify(trainer: Any, checks: tuple[str, ...] = run.ALL) -> Verdict:
    """Whether this trainer trains right: its own model, data and strategy, on a few steps.

    Everything is put back afterwards.  Every rank must call it; the verdict is the same on each.

    Args:
        trainer: a transformers ``Trainer`` or one of TRL's that uses its loop.
        checks: which of ``accumulation``, ``step``, ``saved``, ``reference``.

    Returns:
        The verdict; nothing is raised, also where a check is violated.
    """
    unknown = sorted(set(checks) - set(run.ALL))
    if unknown:
        raise ValueError(f"no such check: {', '.join(unknown)}; there are {', '.join(run.ALL)}")
    began = time.monotonic()
    if is_prepared(trainer):
        return run.check(trainer, tuple(checks), began)
    made_by_trainer = trainer.optimizer is None
    try:
        with started(trainer):
            return run.check(trainer, tuple(checks), began, made_by_trainer)
    except NotPossible as reason:
        told = tuple(Check(name, NOT_CHECKED, str(reason)) for name in checks)
        setup = {"trainer": type(trainer).__name__}
        return Verdict(told, setup, (), time.monotonic() - began)


def is_prepared(trainer: Any) -> bool:
    """Whether the trainer's model and optimizer are with their engine, as inside ``train()``."""
    known = getattr(trainer.accelerator, "_optimizers", [])
    return trainer.lr_scheduler is not None and any(trainer.optimizer is one for one in known)


def assert_trains_right(trainer: Any, checks: tuple[str, ...] = run.ALL) -> Verdict:
    """For tests: :func:`verify`, and an assertion on its verdict.

    Raises:
        TrainsWrong: an ``AssertionError``; its text is the whole verdict.
        AssertionError: nothing could be checked.
    """
    verdict = verify(trainer, checks).raise_if_violated()
    assert verdict.ok, str(verdict)
    return verdict
