"""A commit of a git repository, fetched without running any of its code.

Hooks, submodules, prompts and large-file filters are off.  Repositories are kept, so that further
commits need only their differences.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from trl_compat.errors import BadInput
from trl_compat.machine import commands
from trl_compat.stacks.environments import Unavailable, Unresolvable, cache, uv_errors

FULL = re.compile(r"[0-9a-f]{40}")
DAMAGED = re.compile(r"corrupt|bad object|not a git repository|loose object|packfile|unpack", re.I)
SAFE = (
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "submodule.recurse=false"),
    *("-c", "gc.auto=0"),
    *("-c", "advice.detachedHead=false"),
)
ENVIRONMENT = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "true",
    "SSH_ASKPASS": "true",
    "GIT_LFS_SKIP_SMUDGE": "1",
    # What is fetched is always named by https; the others are what a user's own `insteadOf` may
    # make of it.  Left out is `ext`, which runs a command.
    "GIT_ALLOW_PROTOCOL": "https:http:ssh:git:file",
}


def full_commit(url: str, commit: str) -> str:
    """The whole name of a commit; the repository is fetched if it does not have it yet.

    Raises:
        Unresolvable: the repository has no such commit.
        Unavailable: it cannot be reached.
    """
    if FULL.fullmatch(commit):
        return commit
    repository = _repository(url)
    with cache.lock_file(repository):
        return _found(repository, url, commit)


def checkout(url: str, commit: str, folder: Path) -> None:
    """Writes the tree of a commit into a folder that does not exist yet.

    Raises:
        Unresolvable: the repository has no such commit.
        Unavailable: it cannot be reached.
    """
    repository = _repository(url)
    with cache.lock_file(repository):
        full = _found(repository, url, commit)
        # With its history, by which some packages tell their version; without the way back to us.
        _git("clone", "--no-checkout", "--no-hardlinks", "--quiet", str(repository), str(folder))
    _git("-C", str(folder), "checkout", "--quiet", "--detach", full)
    _git("-C", str(folder), "remote", "set-url", "origin", url)


def seed(url: str, clone: Path) -> None:
    """Takes the branches and tags of a clone on this machine, so that nothing has to be fetched.

    They are kept apart from those of the repository itself: a clone may have tags of its own.

    Raises:
        BadInput: it is no clone that can be read.
    """
    repository = _repository(url)
    with cache.lock_file(repository):
        _begin(repository)
        refs = ["+refs/heads/*:refs/clone/heads/*", "+refs/tags/*:refs/clone/tags/*"]
        fetch = ["fetch", "--quiet", "--force", "--no-tags", "--no-recurse-submodules"]
        try:
            _git("-C", str(repository), *fetch, str(clone.resolve()), *refs)
        except Unavailable as error:
            raise BadInput(f"{clone}: not a clone that can be read ({error})") from None


def tag(url: str, names: Sequence[str]) -> str | None:
    """The commit of the first of some tags that the kept repository has; a clone's count too.

    Raises:
        Unavailable: the repository was never fetched, and cannot be reached.
    """
    repository = _repository(url)
    with cache.lock_file(repository):
        for attempt in range(2):
            for name in names:
                for ref in (f"refs/clone/tags/{name}", f"refs/tags/{name}"):
                    if found := _read(
                        repository, "rev-parse", "--quiet", "--verify", f"{ref}^{{}}"
                    ):
                        return found.strip()
            if attempt == 0:
                _begin(repository)
                refs = ["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"]
                fetch = ["fetch", "--quiet", "--force", "--no-recurse-submodules"]
                _git("-C", str(repository), *fetch, url, *refs)
    return None


def read(url: str, *arguments: str) -> str:
    """What a reading git command prints in the kept repository; empty if it fails."""
    return _read(_repository(url), *arguments)


def _read(repository: Path, *arguments: str) -> str:
    command = [_program(), *SAFE, "-C", str(repository), *arguments]
    done = commands.run(command, env={**os.environ, **ENVIRONMENT})
    return done.stdout if done.returncode == 0 else ""


def _begin(repository: Path) -> None:
    if not (repository / "complete").is_file():
        shutil.rmtree(repository, ignore_errors=True)
        _git("init", "--bare", "--quiet", str(repository))
        (repository / "complete").touch()


def _repository(url: str) -> Path:
    name = re.sub(r"[^\w.-]", "-", url.rstrip("/").removesuffix(".git").rpartition("/")[2])
    digest = hashlib.sha256(url.encode()).hexdigest()[:12]
    return cache.folder("git") / f"{name}-{digest}.git"


def _found(repository: Path, url: str, commit: str) -> str:
    """The whole name of a commit in a repository, after it was fetched if need be."""
    try:
        return _fetched(repository, url, commit)
    except Unavailable as error:
        if not DAMAGED.search(str(error)):
            raise
        shutil.rmtree(repository, ignore_errors=True)
        return _fetched(repository, url, commit)


def _fetched(repository: Path, url: str, commit: str) -> str:
    _begin(repository)
    at = ["-C", str(repository)]
    if (known := _name(at, commit)) is None:
        refs = ["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"]
        _git(*at, "fetch", "--quiet", "--force", "--no-recurse-submodules", url, *refs)
        known = _name(at, commit)
    if known is None and FULL.fullmatch(commit):
        # Not on a branch or tag: a server may give it away all the same (a pull request's, say).
        wanted = f"+{commit}:refs/kept/{commit}"
        with contextlib.suppress(Unavailable):  # the server was reached just now
            _git(*at, "fetch", "--quiet", "--no-recurse-submodules", url, wanted)
        known = _name(at, commit)
    if known is None:
        raise Unresolvable(f"{url} has no commit {commit}")
    _git(*at, "update-ref", f"refs/kept/{known}", known)
    return known


def _name(at: list[str], commit: str) -> str | None:
    command = [_program(), *SAFE, *at, "rev-parse", "--quiet", "--verify", f"{commit}^{{commit}}"]
    done = commands.run(command, env={**os.environ, **ENVIRONMENT})
    found = done.stdout.strip()
    return found if done.returncode == 0 and found.startswith(commit) else None


def _git(*arguments: str) -> None:
    done = commands.run([_program(), *SAFE, *arguments], env={**os.environ, **ENVIRONMENT})
    if done.returncode == 0:
        return
    if uv_errors.DISK_FULL.search(done.stderr):
        raise BadInput("the disk is full; free some space and run the same command again")
    raise Unavailable(f"git: {uv_errors.one_line(done.stderr)}")


def _program() -> str:
    found = shutil.which("git")
    if not found:
        raise BadInput("git is not installed, but a stack uses a package from a git commit")
    return found
