"""``VerifyCallback``: the checks inside ``train()``, when everything is prepared.

For every strategy, also those that cannot be taken back (FSDP): nothing has to be prepared twice.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

from transformers import TrainerCallback

from . import run
from .entry import verify
from .verdict import Verdict


class VerifyCallback(TrainerCallback):  # type: ignore[misc]
    """Checks the trainer when its training begins.

    Args:
        trainer: the trainer; left out, it is found when training begins.
        on_violation: ``"raise"`` ends the training, ``"warn"`` goes on.
        checks: which checks, as for ``verify``.

    Attributes:
        verdict: the verdict, once training has begun.
    """

    def __init__(
        self,
        trainer: Any = None,
        on_violation: str = "raise",
        checks: tuple[str, ...] = run.ALL,
    ) -> None:
        if on_violation not in ("raise", "warn"):
            raise ValueError(f"on_violation is 'raise' or 'warn', not {on_violation!r}")
        self.trainer, self.on_violation, self.checks = trainer, on_violation, checks
        self.verdict: Verdict | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Checks once, before the first step."""
        if self.verdict is not None:
            return
        trainer = self.trainer if self.trainer is not None else _calling(args)
        self.verdict = verify(trainer, self.checks)
        if state.is_world_process_zero:
            print(self.verdict, flush=True)
        if self.verdict.violations and self.on_violation == "warn":
            warnings.warn(str(self.verdict), stacklevel=2)
        elif self.verdict.violations:
            self.verdict.raise_if_violated()


def _calling(args: Any) -> Any:
    """The trainer whose loop calls this callback: callbacks are not told."""
    frame = sys._getframe(1)
    while frame is not None:
        trainer = frame.f_locals.get("self")
        if getattr(trainer, "args", None) is args and hasattr(trainer, "compute_loss"):
            return trainer
        frame = frame.f_back  # type: ignore[assignment]
    raise RuntimeError("no trainer found: give it to VerifyCallback(trainer)")
