"""What :func:`trl_compat.verify` answers: one check per statement, with its numbers.

Nothing here needs torch, so that a verdict can be written to a file and read anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

OK, VIOLATED, NOT_CHECKED = "ok", "violated", "not checked"
# What is told when ranks do not agree.
_WORST = {VIOLATED: 0, NOT_CHECKED: 1, OK: 2}


class TrainsWrong(AssertionError):
    """A check of :func:`trl_compat.verify` is violated; the message is the whole verdict.

    Attributes:
        verdict: the verdict with its numbers.
    """

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(str(verdict))
        self.verdict = verdict


@dataclass(frozen=True)
class Check:
    """One statement about the trainer, and whether it holds.

    Attributes:
        name: ``accumulation``, ``last-window``, ``loss``, ``data``, ``step``, ``settings``,
            ``saved``, ``reference``, ``restored``.
        outcome: ``ok``, ``violated`` or ``not checked``.
        message: the finding, or the reason why nothing could be checked.
        numbers: what was measured, e.g. ``projection`` and ``relative_error``.
        first: the first tensor that differs, or an empty text.
    """

    name: str
    outcome: str
    message: str
    numbers: dict[str, Any] = field(default_factory=dict)
    first: str = ""

    def __str__(self) -> str:
        numbers = ", ".join(f"{name} {_number(value)}" for name, value in self.numbers.items())
        told = f"{self.message}" + (f" ({numbers})" if numbers else "")
        tensor = f"; first tensor: {self.first}" if self.first else ""
        return f"{self.outcome:<11}  {self.name:<12}  {told}{tensor}"


@dataclass(frozen=True)
class Verdict:
    """The answer of :func:`trl_compat.verify`; the same on every rank.

    Attributes:
        checks: one entry per statement.
        setup: trainer, strategy, ranks, accumulation, precision, and the packages' versions.
        notes: what was not put back, and what was switched off for the measurement.
        seconds: how long it took.
    """

    checks: tuple[Check, ...]
    setup: dict[str, Any]
    notes: tuple[str, ...]
    seconds: float

    @property
    def violations(self) -> tuple[Check, ...]:
        """The checks that do not hold."""
        return tuple(check for check in self.checks if check.outcome == VIOLATED)

    @property
    def ok(self) -> bool:
        """Whether something was checked and nothing is violated."""
        return not self.violations and self._checked > 0

    @property
    def _checked(self) -> int:
        """The checks that hold; that all is put back says nothing about the training."""
        return sum(check.outcome == OK and check.name != "restored" for check in self.checks)

    def as_dict(self) -> dict[str, Any]:
        """The verdict as plain data, for a file."""
        return {"ok": self.ok, **asdict(self)}

    def __getitem__(self, name: str) -> Check:
        """The check of this name."""
        for check in self.checks:
            if check.name == name:
                return check
        raise KeyError(name)

    def __str__(self) -> str:
        wrong = self.violations
        if wrong:
            head = "trains WRONG: " + ", ".join(check.name for check in wrong)
        else:
            checked = self._checked
            head = f"no violation in {checked} checks" if checked else "nothing could be checked"
        setup = ", ".join(f"{name} {value}" for name, value in self.setup.items())
        lines = [f"trl-compat verify: {head}", f"  {setup}"]
        lines += [f"  {check}" for check in self.checks]
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join([*lines, f"  {self.seconds:.1f} s"])

    def raise_if_violated(self) -> Verdict:
        """The verdict itself.

        Raises:
            TrainsWrong: a check is violated.
        """
        if self.violations:
            raise TrainsWrong(self)
        return self


def merged(of_ranks: Iterable[Iterable[Check]]) -> tuple[Check, ...]:
    """The checks of all ranks as one list: of each name the worst, with its rank."""
    worst: dict[str, tuple[int, Check]] = {}
    for rank, checks in enumerate(of_ranks):
        for check in checks:
            known = worst.get(check.name)
            if known is None or _WORST[check.outcome] < _WORST[known[1].outcome]:
                worst[check.name] = rank, check
    return tuple(
        check
        if not rank
        else Check(
            check.name, check.outcome, f"rank {rank}: {check.message}", check.numbers, check.first
        )
        for rank, check in worst.values()
    )


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4f}" if 0.001 <= abs(value) < 1000 else f"{value:.3g}"
    return str(value)
