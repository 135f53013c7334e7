"""The checks of one trainer, in order, on what its engine has prepared; then everything put back.

1. Windows of the trainer's own loop with the probe: the gradient that the optimizer gets.
2. The same window with the real optimizer: the weights after the step, and what is saved of them.
3. On the batches seen: the reference, the labels, the loss.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from . import comparing, policies, recording, samples, saving, setup, stepping, tensors
from .plain_copy import plain_copy
from .recording import Loop, NotPossible, Window
from .reference import Reference
from .snapshot import Snapshot, models_of, references_of
from .verdict import NOT_CHECKED, OK, VIOLATED, Check, Verdict, merged

ALL = ("accumulation", "step", "saved", "reference")


def check(
    trainer: Any, checks: tuple[str, ...], started: float, made_by_trainer: bool = False
) -> Verdict:
    """The verdict on a trainer whose model and optimizer are prepared; every rank calls it."""
    run = _Run(trainer, checks, made_by_trainer)
    with contextlib.ExitStack() as stack:
        stack.enter_context(setup.quiet())
        snapshot = Snapshot(trainer)
        try:
            run.everything(snapshot)
        finally:
            snapshot.restore()
    left = snapshot.differences()
    message = "weights, optimizer, scheduler, random states and trainer are as before"
    if left:
        run.add(Check("restored", VIOLATED, "not put back", {}, left[0]))
    else:
        run.add(Check("restored", OK, message, {"tensors": len(snapshot.tensors)}))
    answers = merged(tensors.from_all_ranks(run.checks))
    seconds = time.monotonic() - started
    return Verdict(answers, setup.described(trainer), tuple(run.notes), seconds)


class _Run:
    def __init__(self, trainer: Any, checks: tuple[str, ...], made_by_trainer: bool) -> None:
        self.trainer, self.wanted, self.made_by_trainer = trainer, checks, made_by_trainer
        self.scheduled = bool(getattr(trainer, "_created_lr_scheduler", False))
        self.root = tensors.inner(trainer.model_wrapped)
        self.tolerance = setup.tolerance(trainer)
        self.checks: list[Check] = []
        self.notes: list[str] = []
        self.weights: dict[str, Any] = {}
        self.measured: list[dict[str, Any]] = []
        self.windows: list[Window] = []
        self.loop: Loop | None = None

    def add(self, check: Check | None) -> None:
        if check is not None:
            self.checks.append(check)

    def everything(self, snapshot: Snapshot) -> None:
        reason = setup.unsupported(self.trainer)
        if reason:
            for name in self.wanted:
                self.add(Check(name, NOT_CHECKED, reason))
            return
        self.weights = tensors.whole(self.root)
        references = [(root, tensors.whole(root)) for root in references_of(self.trainer)]
        with contextlib.ExitStack() as stack:
            off = stack.enter_context(recording.without_dropout(models_of(self.trainer)))
            if off:
                self.notes.append(f"dropout and noise were off for the measurement ({off} places)")
            self._part(("accumulation",), lambda: self._probe(snapshot))
            snapshot.restore()
            if self.windows:
                batches = self.windows[0].batches
                self._part(("accumulation",), lambda: self._gradients())
                if "reference" in self.wanted:
                    self._part(("reference",), lambda: self._reference(batches))
                self.add(samples.data(batches))
            snapshot.restore()
            if self.windows and ("step" in self.wanted or "saved" in self.wanted):
                self._part(("step", "saved"), lambda: self._step())
                self.add(policies.unchanged(references))

    def _part(self, names: tuple[str, ...], part: Callable[[], None]) -> None:
        """Runs a part; what it cannot do is told, and does not end the training."""
        try:
            part()
        except NotPossible as error:
            reason = str(error)
        except Exception as error:
            reason = setup.raised(error)
        else:
            return
        known = {check.name for check in self.checks}
        for name in names:
            if name not in known and (name in self.wanted or name not in ALL):
                self.add(Check(name, NOT_CHECKED, reason))

    def _probe(self, snapshot: Snapshot) -> None:
        """The gradients of the first window and, in a short epoch, of its last one."""

        def look(window: Window) -> None:
            now = tensors.whole(self.root)
            self.measured.append(
                {
                    name: now[name] if not now[name].equal(self.weights[name]) else now[name] * 0
                    for name in now
                }
            )
            snapshot.restore_tensors()

        with contextlib.ExitStack() as stack:
            stack.enter_context(recording.unclipped(self.trainer))
            short = stack.enter_context(setup.short_epoch(self.trainer))
            snapshot.random.restore()
            self.loop = Loop(self.trainer)
            self.windows = self.loop.run(2 if short else 1, look, recording.gradients_into_weights)
        if not self.windows or not self.windows[0].batches:
            self.windows = []
            raise NotPossible("the loop made no step: are there enough samples for one window?")

    def _gradients(self) -> None:
        import torch

        copy = plain_copy(self.root, torch.float64, self.trainer.args.device)
        copy.train()
        self.trainer.model_wrapped.train()  # trainers ask their own model for the mode
        for number, (window, measured) in enumerate(zip(self.windows, self.measured)):
            name = "last-window" if number else "accumulation"
            if number and len(window.batches) == len(self.windows[0].batches):
                continue
            self.add(self._window(name, copy, window, measured))
        batches = self.windows[0].batches
        self._part(("loss",), lambda: self.add(samples.loss(self.trainer, copy, batches)))

    def _window(self, name: str, copy: Any, window: Window, measured: dict[str, Any]) -> Check:
        if not window.steps:
            if setup.scales_losses(self.trainer):
                return Check(name, NOT_CHECKED, "the loss scaler skipped the step")
            return Check(name, VIOLATED, "the optimizer was not stepped")
        reference = Reference(self.trainer, copy, window)
        count, world = len(window.batches), tensors.rank_and_world()[1]
        about = f"{count} micro-batches on {world} rank{'s' * (world > 1)} ({reference.kind})"
        if reference.problem:
            return Check(name, VIOLATED, reference.problem)
        if not any(bool(one.any()) for one in reference.gradient.values()):
            return Check(name, NOT_CHECKED, "the true gradient is 0")
        return comparing.gradients(name, measured, reference.gradient, self.tolerance, about)

    def _reference(self, batches: list[recording.MicroBatch]) -> None:
        self.add(policies.reference(self.trainer, batches, self.tolerance))

    def _step(self) -> None:
        trainer = self.trainer
        after: dict[str, Any] = {}
        rules: list[Any] = []

        def step(base: Any, own_step: Callable[..., Any]) -> Any:
            if not rules:
                self.add(setup.learning_rate(trainer, base, self.made_by_trainer, self.scheduled))
            setup.not_zero(trainer, base)
            try:
                rules.append(stepping.fresh(base))
            except NotPossible as error:
                rules.append(error)
            return own_step()

        def look(window: Window) -> None:
            after.update(tensors.whole(self.root))
            if "saved" in self.wanted:
                self.add(saving.saved(trainer, after))

        with setup.short_epoch(trainer):
            windows = Loop(trainer).run(1, look, step)
        if "step" in self.wanted:
            self.add(self._moved(after, rules, windows))

    def _moved(self, after: dict[str, Any], rules: list[Any], windows: list[Window]) -> Check:
        if not rules:
            return Check("step", NOT_CHECKED, "the optimizer was not stepped")
        if isinstance(rules[0], NotPossible):
            return Check("step", NOT_CHECKED, str(rules[0]))
        if not samples.same(windows[0].batches, self.windows[0].batches):
            return Check("step", NOT_CHECKED, "the same window could not be drawn twice")
        frozen = setup.frozen_adapters(self.root)
        if frozen:
            message = f"{len(frozen)} tensors of the active adapter do not require a gradient"
            return Check("step", VIOLATED, message, {}, frozen[0])
        trained = tensors.trainable(self.root)
        gradient = {name: one for name, one in self.measured[0].items() if trained[name]}
        clipped = stepping.clipped(gradient, setup.clipping(self.trainer))
        return stepping.moved(self.weights, after, clipped, rules[0], self.tolerance)
