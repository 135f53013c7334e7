"""The log of a bisection: a line of JSON for every step, added to by every run of its command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trl_compat import results


class StepLog:
    """A file of JSON lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def add(self, event: str, **told: Any) -> None:
        """Writes a line, on disk before the next step begins."""
        line = json.dumps({"at": results.now(), "event": event, **told}, ensure_ascii=False)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(results.scrub(line) + "\n")
            file.flush()
