"""The packages that publish no wheels, and the packages that may be built from source.

A build runs the package's own code, so only allowed packages are built: those known to publish no
wheels, and those that a stack names under ``build``.  That means all for a reviewed stack of
matrix.yaml, and none for the packages that a user names in a gate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from packaging.utils import canonicalize_name

from trl_compat.stacks.environments import BuildRefused
from trl_compat.stacks.matrix import Stack


@dataclass(frozen=True)
class Recipe:
    """How a package that is known to have no wheels is built.

    Attributes:
        why: it has none.
        tools: what its build needs besides what its pyproject.toml names.
        needs_torch: whether the build imports the torch that it is for.
        env: variables for the build.
    """

    why: str
    tools: tuple[str, ...] = ()
    needs_torch: bool = False
    env: Mapping[str, str] = field(default_factory=dict)


KNOWN = {
    "deepspeed": Recipe(
        why="it publishes source packages, with wheels at most for Windows, and its setup.py "
        "imports torch",
        tools=(
            # What setup.py imports besides torch, in the releases of the matrix.
            "setuptools",
            "wheel",
            "ninja",
            "py-cpuinfo",
            "packaging",
            "psutil",
            "pydantic",
            "msgpack",
            "tqdm",
            "numpy",
        ),
        needs_torch=True,
        env={"DS_BUILD_OPS": "0"},  # no operator is compiled
    )
}


@dataclass(frozen=True)
class Allowed:
    """Which packages may be built from their source, besides those in :data:`KNOWN`.

    Attributes:
        names: canonical names; None for any package.
    """

    names: frozenset[str] | None = frozenset()

    @classmethod
    def by(cls, stack: Stack) -> Allowed:
        """What a stack allows."""
        return cls(None if stack.build is None else frozenset(map(canonicalize_name, stack.build)))

    def check(self, package: str, what: str, *, known: bool = True) -> None:
        """Refuses a build that is not allowed.

        Args:
            package: its name.
            what: the subject of the sentence that refuses it, e.g. ``flash-attn 2.7.0 has no
                wheel``.
            known: whether a package that is known to have no wheels is allowed this.

        Raises:
            BuildRefused: it is not allowed.
        """
        name = canonicalize_name(package)
        if (known and name in KNOWN) or self.names is None or name in self.names:
            return
        raise BuildRefused(name, f"{what}; it would have to be built, which runs its code")
