"""What an optimizer's step should do to the weights, in float64: AdamW, Adam and SGD."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import tensors
from .comparing import Tolerance
from .recording import NotPossible
from .verdict import NOT_CHECKED, OK, VIOLATED, Check

# Class names by formula; whether weight decay is decoupled is asked of the optimizer where it says.
_ADAM = ("AdamW", "Adam", "FusedAdam", "DeepSpeedCPUAdam")


@dataclass(frozen=True)
class Rule:
    """An optimizer's formula for its next step.

    Attributes:
        kind: the optimizer's class.
        groups: the hyperparameters of its groups.
        taken: how many steps its state says that it has taken.
    """

    kind: str
    groups: tuple[dict[str, Any], ...]
    taken: int
    decoupled: bool

    def expected(self, weight: Any, gradient: Any) -> list[Any]:
        """The weight after the step, by the hyperparameters of each group."""
        return [self._after(weight, gradient, group) for group in self.groups]

    def _after(self, weight: Any, gradient: Any, group: dict[str, Any]) -> Any:
        rate, decay = float(group["lr"]), float(group.get("weight_decay") or 0.0)
        if group.get("maximize"):
            gradient = -gradient
        if self.kind == "SGD":
            gradient = gradient + decay * weight
            momentum, damp = group.get("momentum", 0), group.get("dampening", 0)
            if momentum and self.taken:
                gradient = gradient * (1 - damp)  # the buffer was emptied beforehand
            if momentum and group.get("nesterov"):
                gradient = gradient * (1 + momentum)
            return weight - rate * gradient
        if not self.decoupled:
            gradient = gradient + decay * weight
        one, two = group["betas"]
        step = self.taken + 1
        first, second = (1 - one) * gradient, (1 - two) * gradient * gradient
        if group.get("bias_correction", True):
            first, second = first / (1 - one**step), second / (1 - two**step)
        kept = weight * (1 - rate * decay) if self.decoupled else weight
        return kept - rate * first / (second.sqrt() + group["eps"])


def fresh(base: Any) -> Rule:
    """Empties the optimizer's moments in place, and tells its formula.

    Raises:
        NotPossible: there is no formula for this optimizer.
    """
    kind = type(base).__name__
    own = type(base).__module__.startswith(("torch.", "deepspeed.", "transformers."))
    if not own or kind not in (*_ADAM, "SGD"):
        raise NotPossible(f"no formula for {type(base).__module__}.{kind}")
    taken = 0
    for parameter, state in base.state.items():
        for name, value in state.items():
            if name == "step":
                taken = max(taken, int(value))
            elif hasattr(value, "numel") and value.numel() == parameter.numel():
                tensors.local(value).zero_()
    decoupled = kind in ("AdamW",) or bool(getattr(base, "adam_w_mode", False))
    groups = []
    for group in base.param_groups:
        group_taken = group.get("step")  # FusedAdam keeps it there
        taken = max(taken, int(group_taken or 0))
        decoupled = decoupled or bool(group.get("decoupled_weight_decay"))
        groups.append({name: value for name, value in group.items() if name != "params"})
    return Rule(kind, tuple(groups), taken, decoupled)


def clipped(gradient: dict[str, Any], limit: float) -> dict[str, Any]:
    """The gradient after clipping by its norm; 0 is no limit."""
    if not limit:
        return gradient
    norm = sum(float((one.double() ** 2).sum()) for one in gradient.values()) ** 0.5
    factor = min(1.0, limit / (norm + 1e-6))
    return {name: one * factor for name, one in gradient.items()}


def moved(
    before: dict[str, Any],
    after: dict[str, Any],
    gradient: dict[str, Any],
    rule: Rule,
    tolerance: Tolerance,
) -> Check:
    """Compares the weights after a step with the formula, and frozen ones with themselves."""
    frozen = [
        name for name in before if name not in gradient and not before[name].equal(after[name])
    ]
    if frozen:
        message = f"{len(frozen)} tensors moved that do not require a gradient"
        return Check("step", VIOLATED, message, {}, frozen[0])
    if not gradient:
        return Check("step", VIOLATED, "no parameter requires a gradient: nothing is trained")
    total = size = room = 0.0
    wrong, still = [], []
    for name, grad in gradient.items():
        weight, found = before[name].double(), after[name].double()
        candidates = rule.expected(weight, grad.double())
        errors = [float(((found - one) ** 2).sum()) for one in candidates]
        best = errors.index(min(errors))
        updates = float(((candidates[best] - weight) ** 2).sum())
        rounding = (tolerance.eps * float((weight**2).sum()) ** 0.5) ** 2
        total, size, room = total + errors[best], size + updates, room + rounding
        if updates > rounding * 16 and before[name].equal(after[name]):
            still.append(name)
        if errors[best] > (tolerance.update * 10) ** 2 * updates + rounding * 16:
            wrong.append(name)
    numbers: dict[str, Any] = {"relative_error": (total / size) ** 0.5 if size else 0.0}
    numbers["update_norm"] = size**0.5
    if still:
        message = f"{len(still)} of {len(gradient)} tensors did not move and should"
        return Check("step", VIOLATED, message, numbers, still[0])
    if wrong or total > tolerance.update**2 * size + room * 16:
        message = f"the weights did not move as {rule.kind} says"
        return Check("step", VIOLATED, message, numbers, wrong[0] if wrong else "")
    if not size:
        return Check("step", NOT_CHECKED, "the step changes nothing: no gradient, no decay")
    if size < room:
        message = "the update is smaller than the rounding of the weights: most of it is lost"
        return Check("step", NOT_CHECKED, message, numbers)
    return Check("step", OK, f"the weights moved as {rule.kind} says, the frozen ones not", numbers)
