"""What users bring, made into locks that :mod:`.locks` can keep.

What is complete (a lock, a freeze, an environment) is honoured exactly: every version in it, and
its hashes where it has them.  Only what it lacks is looked up; nothing is resolved.  What names
less than all that it needs is resolved as an installer would, which moves none of its pins.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from trl_compat.environments.interpreters import Interpreter
from trl_compat.environments.locks import (
    Lock,
    compile_requirements,
    compile_with_deepspeed,
    lock_of,
    packages_of,
)
from trl_compat.environments.uv import uv_said
from trl_compat.errors import BadInput
from trl_compat.sources import files

ENTRY = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)(?:[^\n]*\\\n)*[^\n]*", re.M)
HASH = re.compile(r"--hash=(\w+:\w+)")
YANKED = re.compile(r"`(?P<what>[^`]+)` is yanked(?: \(reason: \"(?P<why>.*)\"\))?")

Hashes = Mapping[tuple[str, str], Sequence[str]]
"""The hashes that a lock has, by canonical name and version."""


@dataclass(frozen=True)
class Given:
    """A lock made from what a user brought.

    Attributes:
        yanked: releases in it that their publisher withdrew, each with the reason.
    """

    lock: Lock
    yanked: tuple[str, ...] = ()


def keep(pins: Sequence[str], hashes: Hashes, interpreter: Interpreter) -> Given:
    """The lock of exactly these pins.

    Raises:
        Unresolvable: one of them does not exist.
        Unavailable: an index or a repository cannot be reached.
    """
    command = ["pip", "compile", "-", "--no-deps", "--generate-hashes"]
    command += ["--no-header", "--no-annotate", "--python", interpreter.path]
    text, said = uv_said(command, text="\n".join(pins) + "\n")

    def with_own_hashes(entry: re.Match[str]) -> str:
        own = hashes.get((canonicalize_name(entry["name"]), entry["version"]))
        first = f"{entry['name']}=={entry['version']}"
        return " \\\n".join([first, *(f"    --hash={h}" for h in own)]) if own else entry[0]

    yanked = (m["what"] + (f" ({m['why']})" if m["why"] else "") for m in YANKED.finditer(said))
    return Given(lock_of(ENTRY.sub(with_own_hashes, text)), tuple(yanked))


def resolve(requirements: Sequence[str], as_of: datetime.date, interpreter: Interpreter) -> Given:
    """The lock of requirements as an installer would take them on a day.

    DeepSpeed's metadata needs a build against torch: which torch and which DeepSpeed is settled
    first, then all of it is resolved together.

    Raises:
        Unresolvable: there is no such stack; the text is the resolver's reason.
        Unavailable: an index or a repository cannot be reached.
    """

    def is_deepspeed(line: str) -> bool:
        return canonicalize_name(Requirement(line).name) == "deepspeed"

    deepspeed = [line for line in requirements if is_deepspeed(line)]
    others = [line for line in requirements if not is_deepspeed(line)]
    if not deepspeed:
        text = compile_requirements(others, as_of, interpreter, ["--generate-hashes"])
    else:
        torch = packages_of(compile_requirements(others, as_of, interpreter, []))["torch"]
        chosen = packages_of(compile_requirements(deepspeed, as_of, interpreter, ["--no-deps"]))
        version = chosen["deepspeed"]
        wanted = [*others, f"deepspeed=={version}"]
        text = compile_with_deepspeed(wanted, torch, version, as_of, interpreter)
    pins = [f"{n}=={v}" for n, v in packages_of(text).items() if not v.startswith("git+")]
    pins += [f"{n} @ {v}" for n, v in packages_of(text).items() if v.startswith("git+")]
    return keep(pins, {}, interpreter)


def hashes_in(path: Path) -> Hashes:
    """The hashes in a lock file of any of the formats that :mod:`trl_compat.sources` reads."""
    if path.suffix not in (".toml", ".lock"):
        text = files.text_of(path)
        found = [(m["name"], m["version"], HASH.findall(m[0])) for m in ENTRY.finditer(text)]
    else:
        document = files.toml_of(path)
        listed = document.get("package") or document.get("packages") or []
        try:
            found = [(p["name"], p.get("version", ""), list(_file_hashes(p))) for p in listed]
        except (AttributeError, KeyError, TypeError):
            raise BadInput(f"{path}: its hashes are not where they should be; lock again") from None
    return {(canonicalize_name(n), v): sorted(set(hashes)) for n, v, hashes in found if hashes}


def _file_hashes(package: Mapping[str, Any]) -> Iterator[str]:
    """uv and Poetry write ``hash``, PEP 751 writes ``hashes``, by kind."""
    for file in (package.get("sdist", {}), *package.get("wheels", ()), *package.get("files", ())):
        if "hash" in file:
            yield file["hash"]
        yield from (f"{kind}:{value}" for kind, value in file.get("hashes", {}).items())
