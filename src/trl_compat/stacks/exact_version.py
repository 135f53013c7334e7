"""A version as matrix.yaml writes it: text, because YAML reads 2.10 as the number 2.1."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator

# What goes into cells (trl_compat.runtime, trl_compat.fixes) is written for it.
OLDEST_PYTHON = (3, 9)


def _plain_version(value: Any) -> Any:
    # A version must be quoted or have two dots.
    if isinstance(value, float):
        raise ValueError(f"quote the version ('{value}' was read as a number)")
    return value


ExactVersion = Annotated[str, BeforeValidator(_plain_version)]


def check_python(version: str) -> str:
    """The version of Python of a stack, e.g. ``3.11``.

    Raises:
        ValueError: it is none, or no cell can run on it.
    """
    found = re.fullmatch(r"(\d+)\.(\d+)(?:\.\d+)?", version)
    if found is None:
        raise ValueError(f"'{version}' is not a Python version such as 3.11")
    if (int(found[1]), int(found[2])) < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        raise ValueError(f"Python {version}: cells require Python {oldest} or newer")
    return version
