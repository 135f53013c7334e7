"""How a command ends: always with one of the documented exit codes, never with a traceback.

An unexpected error is printed as one sentence and ends with exit code 70; the traceback is written
to the cache, and printed if ``TRL_COMPAT_TRACEBACK=1`` is set.  SIGTERM and SIGHUP act like Ctrl-C:
finished cells are kept, no process is left running, exit code 130.  A closed pipe (``| head``) does
not end a command: it goes on without printing and ends with its usual exit code.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import click

from trl_compat.errors import (
    EXIT_HARNESS,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    BadInput,
    HarnessError,
)
from trl_compat.text import streams, terminal

POLITE_ENDS = (signal.SIGTERM, signal.SIGHUP)


def end(command: Callable[[], object]) -> NoReturn:
    """Runs a command and ends the process as it ended."""
    listen()
    streams.outlive_readers()
    code = _code_of(command)
    with contextlib.suppress(OSError):  # said already
        sys.stdout.flush()
        sys.stderr.flush()
    sys.exit(code)


def _code_of(command: Callable[[], object]) -> int:
    try:
        try:
            code = command()
        except SystemExit as left:
            code = left.code if left.code is not None else EXIT_OK
        sys.stdout.flush()  # a full disk is known only now
        return code if isinstance(code, int) else EXIT_OK
    except (KeyboardInterrupt, click.exceptions.Abort) as error:
        if isinstance(error.__cause__, EOFError):  # click takes it for the user's
            return _unexpected(error.__cause__)
        _say("interrupted")
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        said = io.StringIO()
        error.show(file=said)
        _say(said.getvalue().rstrip("\n"))
        return EXIT_USAGE
    except BadInput as error:
        _say(f"trl-compat: {error}")
        return EXIT_USAGE
    except HarnessError as error:
        _say(f"trl-compat: the harness failed: {error}")
        return EXIT_HARNESS
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            hint = "free some space and run the same command again; finished cells are kept"
            _say(f"trl-compat: {error.strerror}; {hint}")
            return EXIT_USAGE
        return _unexpected(error)
    except Exception as error:
        return _unexpected(error)


def _unexpected(error: BaseException) -> int:
    """Says in one sentence what happened, and where the traceback is."""
    told = "".join(traceback.format_exception(error))
    said = " ".join(str(error).split())[:300]
    _say(f"trl-compat: the harness failed: {type(error).__name__}: {said}{_kept(told)}")
    if os.environ.get("TRL_COMPAT_TRACEBACK") == "1":
        _say(told)
    return EXIT_HARNESS


def _kept(told: str) -> str:
    """Where a traceback is kept, as the end of a sentence."""
    try:
        from trl_compat.stacks.environments import cache

        cache.root().mkdir(parents=True, exist_ok=True)
        path = cache.root() / "traceback.txt"
        cache.write(path, told)
    except Exception:  # a cache that cannot be written to
        return "; set TRL_COMPAT_TRACEBACK=1 to see the traceback"
    return f"; the traceback is in {_short(path)}"


def _short(path: Path) -> str:
    with contextlib.suppress(ValueError, RuntimeError):
        return f"~/{path.relative_to(Path.home())}"
    return str(path)


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # there may be nobody left to say it to
        click.echo(terminal.lines(text), err=True)


def listen() -> None:
    """Makes SIGTERM and SIGHUP act like Ctrl-C, unless they are ignored on purpose (nohup)."""
    for number in POLITE_ENDS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)


def _interrupt(number: int, frame: object) -> NoReturn:
    # A closing terminal sends several signals; the later ones must not interrupt the clean-up.
    for polite in POLITE_ENDS:
        signal.signal(polite, _heard)
    raise KeyboardInterrupt


def _heard(number: int, frame: object) -> None:
    """Does nothing.  Not SIG_IGN, because processes started during the clean-up inherit that."""
