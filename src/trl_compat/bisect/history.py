"""The commits between two releases, in the order of the first parents.

Releases of one package often lie on branches of their own.  Then the search begins where both
branches part: what that commit shows tells on which of the two the change was made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trl_compat.errors import BadInput
from trl_compat.stacks.environments import Unavailable, cache, git_sources

REPOSITORIES = {
    "trl": "https://github.com/huggingface/trl",
    "transformers": "https://github.com/huggingface/transformers",
    "accelerate": "https://github.com/huggingface/accelerate",
    "peft": "https://github.com/huggingface/peft",
    "deepspeed": "https://github.com/deepspeedai/DeepSpeed",
}


@dataclass(frozen=True)
class OneCommit:
    """A commit: its whole name, its day and its subject."""

    name: str
    date: str
    subject: str


@dataclass(frozen=True)
class History:
    """The repository of a package, of which a clone is at hand."""

    package: str
    url: str

    def release(self, version: str) -> str:
        """The commit of a release.

        Raises:
            BadInput: no tag is named after it, or there is no clone and no network.
        """
        names = (f"v{version}", version, f"release-{version}")
        try:
            found = git_sources.tag(self.url, names)
        except Unavailable as error:
            raise BadInput(
                f"--commits: no clone of {self.url} is at hand ({error}); name one with --clone"
            ) from None
        if found is None:
            raise BadInput(f"--commits: the clone of {self.url} has no tag v{version}")
        return found

    def parting(self, one: str, other: str) -> str:
        """The newest commit that both have.

        Raises:
            BadInput: there is none.
        """
        found = git_sources.read(self.url, "merge-base", one, other).strip()
        if not found:
            raise BadInput(
                f"--commits: {one[:9]} and {other[:9]} have no common commit in the clone; "
                "is it a shallow one?"
            )
        return found

    def path(self, old: str, new: str) -> list[OneCommit]:
        """The commits from an old one to a new one, both included, along first parents."""
        text = git_sources.read(
            self.url,
            "log",
            "--first-parent",
            "--reverse",
            "--format=%H%x09%cs%x09%s",
            f"{old}..{new}",
        )
        first = git_sources.read(self.url, "log", "-1", "--format=%H%x09%cs%x09%s", old)
        return [_parsed(line) for line in (first + text).splitlines() if line]


def _parsed(line: str) -> OneCommit:
    name, date, subject = line.split("\t", 2)
    return OneCommit(name, date, subject)


def of(package: str) -> History:
    """The history of a package.

    Raises:
        BadInput: its repository is not known.
    """
    if package not in REPOSITORIES:
        known = ", ".join(REPOSITORIES)
        raise BadInput(f"--commits: {package} cannot be built from its commits here, only {known}")
    return History(package, REPOSITORIES[package])


def calls_itself(package: str, commit: str) -> str:
    """The version that a commit's own metadata names, if its wheel was built here."""
    wheels: Sequence[str] = sorted(
        path.name for path in (cache.root() / "wheels").glob(f"{package}-{commit[:9]}-*/*.whl")
    )
    return wheels[0].split("-")[1] if wheels else ""
