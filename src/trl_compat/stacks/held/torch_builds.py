"""The packages that make up a build of torch, which is nearly all that a stack takes."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Mapping
from pathlib import Path

from trl_compat.stacks.environments import damage

FAMILY = re.compile(r"torch|triton|pytorch-triton|(?:nvidia|cuda)-[\w.-]+")


def part(package: str) -> bool:
    """Whether a package is torch, or comes with it."""
    return FAMILY.fullmatch(package) is not None


def build_of(packages: Mapping[str, str]) -> dict[str, str]:
    """The packages of a lock that make up its build of torch."""
    return {name: version for name, version in packages.items() if part(name)}


def sizes(environment: Path) -> dict[str, int]:
    """The bytes of each installed package, by ``name==version``, as their RECORDs say."""
    found = {}
    for name, version, info in damage.dist_infos(environment):
        try:
            with open(os.path.join(info, "RECORD"), encoding="utf-8", newline="") as file:
                rows = [row for row in csv.reader(file) if len(row) > 2 and row[2].isdecimal()]
        except (OSError, ValueError, csv.Error):
            continue
        found[f"{name}=={version}"] = sum(int(row[2]) for row in rows)
    return found
