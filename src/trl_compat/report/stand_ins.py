"""The stand-ins that cells used, each with its reason, for every report that lists them."""

from __future__ import annotations

from collections import Counter

from trl_compat.machine.shared_gpu_main import REASONS
from trl_compat.results import Results
from trl_compat.runtime import stand_ins

UNKNOWN = "not among those of this version of trl-compat"


def reasons() -> dict[str, str]:
    """Every stand-in that a cell can carry, and why it exists."""
    found = {**stand_ins.reasons(), **REASONS}
    return {name: " ".join(text.split()) for name, text in found.items()}


def used(document: Results) -> list[tuple[str, int, str]]:
    """Those that cells of the document used: name, number of cells, reason; in the list's order."""
    counts = Counter(name for cell in document.cells for name in cell.stand_ins)
    known = reasons()
    names = [*(name for name in known if counts[name]), *sorted(set(counts) - set(known))]
    return [(name, counts[name], known.get(name, UNKNOWN)) for name in names]
