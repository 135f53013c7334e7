"""How long cells take: the seconds that were measured in the committed results.

``trl-compat advisories compile`` writes ``shipped/seconds.json``.  It is a file of the package, and
not the results of whoever asks, so that every machine divides the same cells in the same way.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

FILE = Path(__file__).with_name("seconds.json")
# Of a cell of which nothing like it was ever run.
UNKNOWN = 5.0


@dataclass(frozen=True)
class Seconds:
    """Mean seconds of a cell by stack, failure and world size (as text)."""

    measured: Mapping[str, Mapping[str, Mapping[str, float]]]

    def of(self, stack: str, failure: str, world_size: int) -> float:
        """The mean seconds of such a cell.

        Of a stack that was never run: the median over the stacks that were; of a world size or a
        failure that was never run, the median of all that is nearest to it.
        """
        ranks = str(world_size)
        here = self.measured.get(stack, {}).get(failure, {}).get(ranks)
        if here is not None:
            return here
        for known in (self._of_failures.get((failure, ranks)), self._of_world_sizes.get(ranks)):
            if known is not None:
                return known
        return self._of_all

    @cached_property
    def _of_failures(self) -> dict[tuple[str, str], float]:
        found: dict[tuple[str, str], list[float]] = {}
        for failure, ranks, seconds in self._each():
            found.setdefault((failure, ranks), []).append(seconds)
        return {kind: statistics.median(seconds) for kind, seconds in found.items()}

    @cached_property
    def _of_world_sizes(self) -> dict[str, float]:
        found: dict[str, list[float]] = {}
        for _, ranks, seconds in self._each():
            found.setdefault(ranks, []).append(seconds)
        return {ranks: statistics.median(seconds) for ranks, seconds in found.items()}

    @cached_property
    def _of_all(self) -> float:
        found = [seconds for _, _, seconds in self._each()]
        return statistics.median(found) if found else UNKNOWN

    def _each(self) -> Iterator[tuple[str, str, float]]:
        for failures in self.measured.values():
            for failure, sizes in failures.items():
                for ranks, seconds in sizes.items():
                    yield failure, ranks, seconds


@cache
def known() -> Seconds:
    """The shipped seconds."""
    return Seconds(json.loads(FILE.read_text(encoding="utf-8"))["stacks"])
