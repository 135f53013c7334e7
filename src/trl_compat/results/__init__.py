"""Results: what was run, and the outcomes, schema version 2.

In memory they are one :class:`Results`.  On disk ``results.json`` is the head, and each stack has a
file of its own beside it, ``results/<stack>.json``, which can be read and compared alone.  Every
reader goes through :func:`read`, :func:`read_leniently` or :func:`read_stack`.
"""

from __future__ import annotations

from trl_compat.results.belonging import Belonging, without_owner
from trl_compat.results.combining import Combined, Replaced, Source, combine, with_runs
from trl_compat.results.files import (
    SCHEMA_VERSION,
    Head,
    StackFile,
    read,
    read_leniently,
    read_stack,
    version_of,
    write,
)
from trl_compat.results.models import (
    OF_THE_HEAD,
    Attempt,
    CellResult,
    NotRunResult,
    Results,
    RunResult,
    Signature,
    StackResult,
    StackVersions,
    found_in,
    now,
    summary,
)
from trl_compat.results.scrubbing import scrub, scrub_command

__all__ = [
    "OF_THE_HEAD",
    "SCHEMA_VERSION",
    "Attempt",
    "Belonging",
    "CellResult",
    "Combined",
    "Head",
    "NotRunResult",
    "Replaced",
    "Results",
    "RunResult",
    "Signature",
    "Source",
    "StackFile",
    "StackResult",
    "StackVersions",
    "combine",
    "found_in",
    "now",
    "read",
    "read_leniently",
    "read_stack",
    "scrub",
    "scrub_command",
    "summary",
    "version_of",
    "with_runs",
    "without_owner",
    "write",
]
