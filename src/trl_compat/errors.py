"""The exit codes of commands, and the two exceptions that end a command early.

Everything that a user can fix is :class:`BadInput`; its text says what is wrong, where, and what to
do.  :class:`HarnessError` is an error of the harness.  Both are printed as one sentence, never as a
traceback.
"""

from __future__ import annotations

EXIT_OK = 0
EXIT_FINDINGS = 1
EXIT_USAGE = 2
EXIT_HARNESS = 70
EXIT_INTERRUPTED = 130


class BadInput(Exception):
    """Something that the user gave, or that the machine lacks, stops the command (exit 2)."""


class HarnessError(Exception):
    """The harness failed (exit 70)."""
