"""From a stack to an interpreter with exactly its packages: resolve, lock, build, keep."""

from __future__ import annotations


class EnvironmentFailed(Exception):
    """A stack could not be made; the text is the reason in one line."""


class Unresolvable(EnvironmentFailed):
    """There is no such stack: the resolver, or a package's own build, refuses."""


class NoSolution(Unresolvable):
    """The resolver has found that the requirements contradict one another, or name no release."""


class NoWheel(Unresolvable):
    """A package has no wheel that fits, and uv was told to build nothing.

    Attributes:
        package: its name.
    """

    def __init__(self, package: str, reason: str) -> None:
        super().__init__(reason)
        self.package = package


class BuildRefused(Unresolvable):
    """A package would have to be built from its source, which nobody has allowed.

    Attributes:
        package: its name.
    """

    def __init__(self, package: str, reason: str) -> None:
        super().__init__(reason)
        self.package = package


class Unavailable(EnvironmentFailed):
    """A source of the stack is out of this machine's reach."""


class WrongFile(EnvironmentFailed):
    """An index has another file under the name of one whose hash is in the lock."""
