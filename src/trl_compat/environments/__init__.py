"""From a stack to an interpreter that has exactly its packages: resolve, lock, build, keep."""

from __future__ import annotations


class EnvironmentFailed(Exception):
    """A stack could not be made; the text is the reason in one line."""


class Unresolvable(EnvironmentFailed):
    """There is no such stack: the resolver, or a package's own build, refuses."""


class Unavailable(EnvironmentFailed):
    """A source of the stack is out of this machine's reach."""
