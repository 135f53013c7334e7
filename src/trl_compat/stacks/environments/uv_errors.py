"""What a failed call of uv means: is the cause the stack, a source, the machine, or the harness?

uv exits with 1 if it finds no solution and with 2 for everything else, including its own usage
errors, so its message decides.  Only messages known to be about the packages make a stack
unresolvable; unknown ones are errors of the harness and are never attributed to the stack.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

from trl_compat.errors import BadInput, HarnessError
from trl_compat.stacks.environments import (
    EnvironmentFailed,
    NoSolution,
    NoWheel,
    Unavailable,
    Unresolvable,
    WrongFile,
)

OUT_OF_REACH = re.compile(
    r"error sending request|dns error|failed to fetch|could not connect|connection refused"
    r"|network (?:was disabled|unreachable|is unreachable)|timed out|Git operation failed"
    r"|Could not resolve host|operation timed out|tunnel error"
    r"|HTTP status (?:client|server) error|error decoding response body|Request failed after",
    re.IGNORECASE,
)
DISK_FULL = re.compile(r"No space left on device|Disk quota exceeded|os error (?:28|122)\b")
NOT_ALLOWED = re.compile(
    r"Permission denied|Read-only file system|Operation not permitted|os error (?:1|13|30)\b"
)
NO_CACHE = re.compile(r"Failed to initialize cache")
# clap, which reads uv's arguments, its environment variables included.
USAGE = re.compile(
    r"^error: (?:unexpected argument|invalid value|a value is required|equal sign is needed"
    r"|unrecognized subcommand|the argument|the following required arguments|the subcommand"
    r"|one or more required|unexpected value)",
    re.MULTILINE,
)
OPTION = re.compile(r"'(?P<option>--[\w-]+)")
SETTINGS_FILE = re.compile(r"Failed to parse:?\s+`?(?P<file>[^`]*?(?:uv|pyproject)\.toml)`?")
WRONG_FILE = re.compile(r"Hash mismatch for `?(?P<what>[^\s`]+)")
WHEEL_REQUIRED = re.compile(
    r"Wheels are required for `(?P<hint>[^`]+)`"
    r"|Building source distributions for `(?P<url>[^`]+)` is disabled"
)
NO_SOLUTION = re.compile(
    r"No solution found when resolving|Because .+ we can conclude|not found in the package registry"
)
OF_THE_PACKAGES = re.compile(
    r"Failed to (?:build|extract|read|parse|download(?: and build)?) (?:metadata|archive|wheel|`)"
    r"|(?:wheel|metadata|RECORD file|zip file)\b.* (?:is )?(?:invalid|corrupt|malformed)"
    r"|not a valid wheel"
)
NOISE = re.compile(r"^\s*(?:[×╰├│─▶:]|-+>|cause:|hint:|error:|warning:)*[\s─▶>]*")
CRASHED = 101  # what a Rust program that panics ends with


def failure(
    arguments: Sequence[str], status: int, stderr: str
) -> EnvironmentFailed | BadInput | HarnessError:
    """The error that a failed call means, with its reason in one line.

    Args:
        arguments: of uv.
        status: its exit status; negative for a signal.
        stderr: what it said.
    """
    line = one_line(stderr)
    said = " ".join(stderr.split())  # uv breaks long lines
    again = f"to see more, run: uv {' '.join(arguments)}"
    if status < 0:
        return HarnessError(f"uv was killed by {signal_name(-status)}; {again}")
    if status >= CRASHED or "panicked at" in stderr:
        return HarnessError(f"uv crashed ({line or f'exit status {status}'}); {again}")
    if USAGE.search(stderr):
        return _usage(arguments, line)
    if settings := SETTINGS_FILE.search(said):
        return BadInput(f"uv cannot read its settings in {settings['file']}: {line}")
    if DISK_FULL.search(said):
        return BadInput("the disk is full; free some space and run the same command again")
    out_of_reach = OUT_OF_REACH.search(said)
    if NO_CACHE.search(said) or (NOT_ALLOWED.search(said) and not out_of_reach):
        return BadInput(
            f"uv cannot access its files: {one_line(stderr, paths=True)}; fix that, or choose "
            "another folder with UV_CACHE_DIR or TRL_COMPAT_CACHE"
        )
    if wrong := WRONG_FILE.search(said):
        return WrongFile(
            f"{wrong['what']}: the file on the index does not match the hash in the lock; "
            "do not use it before you know why"
        )
    if required := WHEEL_REQUIRED.search(said):
        return NoWheel((required["hint"] or required["url"]).split()[0], line)
    if out_of_reach:
        return Unavailable(line)
    if NO_SOLUTION.search(said):
        return NoSolution(line)
    if OF_THE_PACKAGES.search(said):
        return Unresolvable(line)
    return HarnessError(f"uv failed with exit status {status}: {line}; {again}")


def _usage(arguments: Sequence[str], line: str) -> BadInput | HarnessError:
    option = OPTION.search(line)
    if option and option["option"] not in arguments and "invalid value" in line:
        return BadInput(f"uv rejects a setting: {line}; check the environment variables UV_...")
    return HarnessError(
        f"uv does not know an option of the harness ({line}); if uv is too old: "
        "python -m pip install --upgrade uv"
    )


def signal_name(number: int) -> str:
    """``SIGKILL`` for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def one_line(stderr: str, limit: int = 300, *, paths: bool = False) -> str:
    """The reason in a resolver's or builder's output, without its drawing, hints and URLs.

    Args:
        paths: whether paths stay in it.
    """
    raised = re.findall(r"^\s*((?:\w+\.)*\w*(?:Error|Exception): .+)$", stderr, re.M)
    if raised:  # a build's own exception says more than the frames around it
        first, _, _ = stderr.partition("\n")
        return f"{first[:120]}: {raised[-1].strip()}"[:limit]
    kept: list[str] = []
    for raw in stderr.splitlines():
        if raw.lstrip().startswith(("hint:", "warning:", "Using ", "Resolved", "note:", "tip:")):
            continue
        if raw.lstrip().startswith(("Usage:", "For more information", "[possible values")):
            continue
        line = NOISE.sub("", raw).strip()
        if line and not line.startswith(("help:", "[tool.uv")):
            kept.append(line)
    text = re.sub(r"\b(?:https?|file)://[^\s)`'\"]+", "<url>", " ".join(kept))
    if not paths:
        text = re.sub(r"(?<![\w/])/(?:[\w.+@-]+/)+[\w.+@-]*", "<path>", text)
    because = text.find("Because ")
    text = text[because:] if because >= 0 else text
    return text if len(text) <= limit else text[: limit - 1] + "…"
