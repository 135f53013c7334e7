"""Environments of stacks: made from the lock, hard-linked from one cache, kept, never changed."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from trl_compat.environments import cache, deepspeed_wheel, interpreters, locks
from trl_compat.environments.uv import uv
from trl_compat.matrix import Stack


@dataclass(frozen=True)
class Environment:
    """A ready stack.

    Attributes:
        python: its interpreter.
        lock: what is in it.
        bytecode: a folder for its compiled Python modules.
    """

    python: Path
    lock: locks.Lock
    bytecode: Path


def ensure(name: str, stack: Stack) -> Environment:
    """The environment of a stack, from the cache or built now.

    Raises:
        Unresolvable: there is no such stack.
        Unavailable: an interpreter, index or repository is out of reach.
    """
    interpreter = interpreters.find(stack.python)
    lock = locks.resolve(stack, interpreter)
    folder = cache.folder("environments") / f"{name}-{lock.sha256[:12]}"
    python = folder / "bin" / "python"
    with cache.guard(folder):
        complete = folder / "lock.txt"
        if not complete.is_file():
            shutil.rmtree(folder, ignore_errors=True)
            make(folder, lock, stack, interpreter)
            cache.write(complete, lock.text)
    return Environment(python, lock, folder / "bytecode")


def make(
    folder: Path, lock: locks.Lock, stack: Stack, interpreter: interpreters.Interpreter
) -> None:
    """Makes an environment with exactly what is in a lock.

    Raises:
        Unavailable: the index cannot be reached and the packages are not in the cache.
    """
    uv(["venv", "--quiet", "--python", interpreter.path, str(folder)])
    _install(folder / "bin" / "python", lock, stack, interpreter)


def _install(
    python: Path, lock: locks.Lock, stack: Stack, interpreter: interpreters.Interpreter
) -> None:
    install = ["pip", "install", "--quiet", "--no-deps", "--python", str(python)]
    # git requirements carry no hash: the commit is the hash, and uv refuses to mix the two.
    from_git = "\n".join(re.findall(r"^\S+ @ git\+\S+$", lock.text, re.M))
    hashed = re.sub(r"^\S+ @ git\+\S+\n?", "", lock.text, flags=re.M)
    hashed = re.sub(r"^deepspeed==(?:.*\\\n)*.*\n?", "", hashed, flags=re.M)
    uv([*install, "--require-hashes", "-r", "-"], text=hashed)
    deepspeed = lock.packages.get("deepspeed")
    if deepspeed and not deepspeed.startswith("git+"):
        wheel = deepspeed_wheel.ensure(deepspeed, lock.torch, stack.as_of, interpreter)
        uv([*install, str(wheel)])
    if from_git:
        uv([*install, "-r", "-"], text=from_git)
