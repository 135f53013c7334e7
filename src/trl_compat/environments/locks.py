"""The kept lock of a stack: every package with version and hashes, as of the stack's day.

DeepSpeed has no wheels: its metadata needs a build that imports torch, so torch is locked first,
DeepSpeed is built against it (:mod:`.deepspeed_wheel`) and the whole stack is locked last.  In the
lock DeepSpeed stands with the hash of its source package, which is what everybody can check.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from trl_compat.environments import cache, deepspeed_wheel
from trl_compat.environments.interpreters import Interpreter
from trl_compat.environments.settings import effective
from trl_compat.environments.uv import find_links, uv
from trl_compat.errors import BadInput
from trl_compat.matrix import PACKAGES, Stack

PINNED = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)(?:==(?P<version>[^\s;\\]+)| @ (?P<url>\S+))", re.M)


@dataclass(frozen=True)
class Lock:
    """A resolved stack: the lock's text, its digest, and the version of every package."""

    text: str
    sha256: str
    packages: dict[str, str]

    @property
    def torch(self) -> str:
        """The build of torch, with its local part, e.g. ``2.13.0+cpu``."""
        return self.packages["torch"]


def resolve(stack: Stack, interpreter: Interpreter) -> Lock:
    """The lock of a stack: the one that it was given, one from the cache, or resolved now.

    Raises:
        Unresolvable: there is no such stack.
        Unavailable: an index or a repository cannot be reached.
        BadInput: the lock that it was given is not there, or is about other versions.
    """
    if stack.lock is not None:
        return _given(stack, stack.lock)
    path = _path(stack, interpreter)
    with cache.guard(path):
        if not path.is_file():
            cache.write(path, _resolve(stack, interpreter))
    return lock_of(path.read_text(encoding="utf-8"))


def lock_of(text: str) -> Lock:
    """The lock that a text is."""
    return Lock(text, hashlib.sha256(text.encode()).hexdigest(), packages_of(text))


def kept(stack: Stack, interpreter: Interpreter) -> str | None:
    """Digest of the stack's lock if it was given or is in the cache; resolves nothing."""
    if stack.lock is not None:
        return _given(stack, stack.lock).sha256
    path = _path(stack, interpreter)
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def packages_of(text: str) -> dict[str, str]:
    """``{name: version}`` of a lock; a git requirement has its URL as version."""
    return {
        m["name"].lower().replace("_", "-"): m["version"] or m["url"] for m in PINNED.finditer(text)
    }


def _given(stack: Stack, path: Path) -> Lock:
    """A lock that is honoured as it is; its versions must be those that the stack claims."""
    try:
        lock = lock_of(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: the lock of a stack cannot be read ({error})") from None
    for package in PACKAGES:
        claimed, found = getattr(stack, package), lock.packages.get(package, "")
        if found.partition("+")[0] != claimed and found != claimed:
            raise BadInput(f"{path}: has {package} {found or 'not'}, its stack {claimed or 'none'}")
    return lock


def _path(stack: Stack, interpreter: Interpreter) -> Path:
    # Another index configuration may offer another build of the same version (a CPU torch).
    settings = effective(os.environ)
    asked = stack.model_dump(mode="json", exclude={"lock"})
    wanted = [asked, interpreter.tag, settings]
    key = hashlib.sha256(json.dumps(wanted).encode()).hexdigest()[:16]
    return cache.folder("locks") / f"{key}.txt"


def _resolve(stack: Stack, interpreter: Interpreter) -> str:
    torch = torch_build(stack.torch, stack.as_of, interpreter)
    return compile_with_deepspeed(
        stack.requirements(), torch, stack.deepspeed, stack.as_of, interpreter
    )


def compile_with_deepspeed(
    requirements: list[str],
    torch: str,
    deepspeed: str,
    as_of: datetime.date,
    interpreter: Interpreter,
) -> str:
    """The lock of requirements whose DeepSpeed has first to be built against their torch."""
    wheel = deepspeed_wheel.ensure(deepspeed, torch, as_of, interpreter)
    text = compile_requirements(
        [*requirements, f"torch=={torch}"],
        as_of,
        interpreter,
        ["--generate-hashes", *find_links(wheel.parent)],
    )
    source = deepspeed_wheel.source_requirement(deepspeed)
    entry = re.compile(rf"^deepspeed=={re.escape(deepspeed)}(?: \\\n    --hash=\S+)+", re.M)
    return entry.sub(lambda _: source.strip(), text)


def torch_build(version: str, as_of: datetime.date, interpreter: Interpreter) -> str:
    """The build of a torch release that the user's indexes offer: a CPU build if there is one."""
    text = compile_requirements([f"torch=={version}"], as_of, interpreter, ["--no-deps"])
    return packages_of(text)["torch"]


def compile_requirements(
    requirements: list[str], as_of: datetime.date, interpreter: Interpreter, options: list[str]
) -> str:
    """``uv pip compile`` as of a day (inclusive), without comments."""
    # uv takes a bare date as "up to the end of that day".
    command = ["pip", "compile", "-", "--quiet", "--no-header", "--no-annotate"]
    command += ["--exclude-newer", as_of.isoformat(), "--python", interpreter.path, *options]
    return uv(command, text="\n".join(requirements) + "\n")
