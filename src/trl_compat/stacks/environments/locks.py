"""The kept lock of a stack: every package with version and hashes, as of the stack's date.

:mod:`.resolving` resolves.  The result is kept with its digest, so that a damaged lock is detected
and resolved again.  That there is no such stack is kept, too (:mod:`.refusals`).
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

from trl_compat.errors import BadInput
from trl_compat.files.reading import text_of
from trl_compat.packages import PACKAGES
from trl_compat.stacks.environments import (
    Unavailable,
    Unresolvable,
    cache,
    interpreters,
    refusals,
    resolving,
)
from trl_compat.stacks.environments.interpreters import Interpreter
from trl_compat.stacks.environments.lock_text import check, packages_of
from trl_compat.stacks.environments.refusals import Refusal
from trl_compat.stacks.environments.settings import effective
from trl_compat.stacks.environments.without_wheels import Allowed
from trl_compat.stacks.matrix import GIT, Stack


@dataclass(frozen=True)
class Lock:
    """A resolved stack: the lock's text, its digest, and the version of every package."""

    text: str
    sha256: str
    packages: dict[str, str]

    @property
    def torch(self) -> str:
        """The build of torch, with its local part, e.g. ``2.13.0+cpu``."""
        return self.packages.get("torch", "")


def interpreter_of(stack: Stack) -> Interpreter:
    """The interpreter of a stack.

    Raises:
        Unavailable: this machine has none.
        Unresolvable: nor would it help if it had: the stack's releases are not for that Python.
    """
    try:
        return interpreters.find(stack.python)
    except Unavailable:
        if stack.lock is None:
            asking = interpreters.own()
            wanted = stack.requirements()
            if why := resolving.why_not_on(wanted, stack.as_of, stack.python, asking):
                raise Unresolvable(why) from None
        raise


def resolve(stack: Stack, interpreter: Interpreter) -> Lock:
    """The lock of a stack: the one that it was given, one from the cache, or resolved now.

    Raises:
        Unresolvable: there is no such stack.
        Unavailable: an index or a repository cannot be reached.
        BadInput: the lock that it was given is not there, is none, or is about other versions.
    """
    if stack.lock is not None:
        return _given(stack, stack.lock)
    path = _path(stack, interpreter)
    with cache.lock_file(path):
        text = _kept_text(path)
        if text is None:
            if refusal := refusals.kept(path):
                raise Unresolvable(refusal.reason)
            try:
                text = _resolve(stack, interpreter)
            except Unresolvable as error:
                refusals.keep(path, error, stack.as_of)
                raise
            cache.write(path, text)
            cache.write(_digest_of(path), hashlib.sha256(text.encode()).hexdigest() + "\n")
    return lock_of(text)


def ask(stack: Stack, interpreter: Interpreter) -> None:
    """Finds out whether there is such a stack, as far as that needs no build, and keeps a refusal.

    Raises:
        Unresolvable: there is no such stack.
        Unavailable: the index cannot be reached.
    """
    path = _path(stack, interpreter)
    with cache.lock_file(path):
        if stack.lock is not None or _kept_text(path) is not None:
            return
        if refusal := refusals.kept(path):
            raise Unresolvable(refusal.reason)
        try:
            resolving.check(stack.requirements(), stack.as_of, interpreter)
        except Unresolvable as error:
            refusals.keep(path, error, stack.as_of)
            raise


def refused(stack: Stack, interpreter: Interpreter) -> Refusal | None:
    """The kept answer that there is no such stack; asks nobody."""
    if kept(stack, interpreter) is not None:
        return None
    return refusals.kept(_path(stack, interpreter))


def answered(stack: Stack, interpreter: Interpreter) -> str | None:
    """Digest of the stack's lock, or of the kept answer that there is no such stack."""
    if (sha256 := kept(stack, interpreter)) is not None:
        return sha256
    refusal = None if stack.lock is not None else refusals.kept(_path(stack, interpreter))
    return refusal.sha256 if refusal else None


def lock_of(text: str) -> Lock:
    """The lock that a text is."""
    return Lock(text, hashlib.sha256(text.encode()).hexdigest(), packages_of(text))


def kept(stack: Stack, interpreter: Interpreter) -> str | None:
    """Digest of the stack's lock if it was given or is in the cache; resolves nothing."""
    if stack.lock is not None:
        return _given(stack, stack.lock).sha256
    text = _kept_text(_path(stack, interpreter))
    return hashlib.sha256(text.encode()).hexdigest() if text is not None else None


def kept_lock(stack: Stack, interpreter: Interpreter) -> Lock | None:
    """The stack's lock if it was given or is in the cache; resolves nothing."""
    if stack.lock is not None:
        return _given(stack, stack.lock)
    text = _kept_text(_path(stack, interpreter))
    return lock_of(text) if text is not None else None


def _kept_text(path: Path) -> str | None:
    """A lock in the cache; None if there is none, or not the one that was put there."""
    try:
        data = path.read_bytes()
        wanted = _digest_of(path).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return data.decode("utf-8") if hashlib.sha256(data).hexdigest() == wanted else None


def _digest_of(path: Path) -> Path:
    return path.with_suffix(".sha256")


def _given(stack: Stack, path: Path) -> Lock:
    """A lock that is honoured as it is; its versions must be those that the stack claims."""
    text = text_of(path, "the lock of a stack: ")
    check(text, path)
    lock = lock_of(text)
    for package in PACKAGES:
        claimed, found = getattr(stack, package), lock.packages.get(package, "")
        # A commit may be claimed by the first digits of its name.
        same = found.startswith(claimed) if GIT.fullmatch(claimed) else found == claimed
        if found.partition("+")[0] != claimed and not same:
            raise BadInput(f"{path}: has {package} {found or 'not'}, its stack {claimed or 'none'}")
    return lock


def _path(stack: Stack, interpreter: Interpreter) -> Path:
    # Another index configuration may offer another build of the same version (a CPU torch).
    settings = effective(os.environ)
    apart = {"lock", "build", "grid", "also_in", "in_place"}
    asked = stack.model_dump(mode="json", exclude=apart)
    wanted = [asked, interpreter.tag, settings]
    key = hashlib.sha256(json.dumps(wanted).encode()).hexdigest()[:16]
    return cache.folder("locks") / f"{key}.txt"


def _resolve(stack: Stack, interpreter: Interpreter) -> str:
    torch = resolving.torch_build(stack.torch, stack.as_of, interpreter)
    wanted, allowed = stack.requirements(), Allowed.by(stack)
    return resolving.Resolution(wanted, stack.as_of, interpreter, allowed, torch).text()
