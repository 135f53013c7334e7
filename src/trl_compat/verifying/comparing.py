"""How a measured gradient compares with the true one, and which differences are too large."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .verdict import OK, VIOLATED, Check


@dataclass(frozen=True)
class Tolerance:
    """What arithmetic of one precision may differ by; right and wrong are far apart.

    Attributes:
        relative: the error's norm through the gradient's.
        projection: of the projection from 1.
        tensor: the error of one tensor through its own norm.
        update: the error of an optimizer's update through its norm.
        logps: of log-probabilities.
    """

    relative: float
    projection: float
    tensor: float
    update: float
    logps: float
    name: str
    eps: float


FLOAT32 = Tolerance(1e-4, 1e-4, 1e-2, 1e-2, 1e-4, "float32", 2.0**-23)
CUDA = Tolerance(1e-2, 1e-2, 0.1, 3e-2, 1e-2, "float32 on a GPU", 2.0**-23)
HALF = Tolerance(0.2, 0.05, 0.8, 0.1, 0.1, "half", 2.0**-7)


def gradients(
    name: str, measured: dict[str, Any], true: dict[str, Any], tolerance: Tolerance, about: str
) -> Check:
    """Compares two gradients, whole and tensor by tensor."""
    dot = square = error = 0.0
    lines = []
    for tensor, expected in true.items():
        found = measured[tensor].double()
        dot += float((found * expected).sum())
        squares = float((expected * expected).sum())
        errors = float(((found - expected) ** 2).sum())
        square, error = square + squares, error + errors
        lines.append((tensor, squares, errors))
    norm = square**0.5
    numbers = {"projection": dot / square, "relative_error": (error / square) ** 0.5, "norm": norm}
    floor = (1e-6 * norm) ** 2
    wrong = [
        tensor
        for tensor, squares, errors in lines
        if errors > tolerance.tensor**2 * max(squares, floor)
        and errors > (1e-3 * tolerance.relative * norm) ** 2
    ]
    bad = (
        not abs(numbers["projection"] - 1) <= tolerance.projection
        or not numbers["relative_error"] <= tolerance.relative
    )
    if bad or wrong:
        first = wrong[0] if wrong else lines[0][0]
        numbers["tensors_wrong"] = f"{len(wrong)} of {len(lines)}"
        return Check(
            name, VIOLATED, f"the optimizer does not get the gradient of {about}", numbers, first
        )
    return Check(name, OK, f"the optimizer gets the gradient of {about}", numbers)
