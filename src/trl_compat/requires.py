"""What releases of the packages under test require of each other: a list that is shipped.

It has the releases of the matrix's stacks, as the metadata in their environments says it, so that
an upgrade can be planned without an index.  ``python -m trl_compat.requires`` makes it again, after
a stack was added.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from trl_compat.packages import PACKAGES

FILE = Path(__file__).with_name("shipped") / "requires.json"

Requires = Mapping[str, Mapping[str, Mapping[str, str]]]
"""Version ranges by package, version, and required package."""


@cache
def known() -> Requires:
    """The list that is shipped."""
    found: Requires = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def of_environments(paths: Iterable[Path]) -> Requires:
    """The list out of the ``site-packages`` of environments; commits between releases are none."""
    found: dict[str, dict[str, dict[str, str]]] = {package: {} for package in PACKAGES}
    for path in paths:
        for distribution in distributions(path=[str(path)]):
            package = canonicalize_name(distribution.metadata["Name"] or "")
            version = Version(distribution.version)
            if package in found and not version.is_devrelease:
                found[package][version.public] = _required(distribution)
    return {p: dict(sorted(by.items(), key=lambda i: Version(i[0]))) for p, by in found.items()}


def _required(distribution: Distribution) -> dict[str, str]:
    required = {}
    for line in distribution.requires or ():
        requirement = Requirement(line)
        package = canonicalize_name(requirement.name)
        optional = requirement.marker is not None and "extra" in str(requirement.marker)
        if package in PACKAGES and not optional and str(requirement.specifier):
            required[package] = str(requirement.specifier)
    return dict(sorted(required.items()))


def _main() -> None:
    from trl_compat import matrix
    from trl_compat.environments import EnvironmentFailed, build

    paths: list[Path] = []
    for name, stack in matrix.load(Path("matrix.yaml")).stacks.items():
        try:
            python = build.ensure(name, stack).python
        except EnvironmentFailed as error:
            print(f"{name}: left out: {error}")
            continue
        paths += python.parents[1].glob("lib/python*/site-packages")
    FILE.write_text(json.dumps(of_environments(paths), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    _main()
