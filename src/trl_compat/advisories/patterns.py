"""The regular expressions of symptoms, searched by an engine with linear run time.

Advisories and the exceptions of cells are untrusted input.  Python's own engine backtracks: on
``(a+)+$`` it may run forever.  The engine inside pydantic (Rust's ``regex``) takes time in
proportion to the text, and supports neither look-around nor back-references.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Annotated

import pydantic
from pydantic import StringConstraints, TypeAdapter, ValidationError

LONGEST = 1_000


class NoPattern(ValueError):
    """A text is no regular expression that this engine knows; says why."""


@functools.lru_cache(maxsize=1_000)
def compiled(pattern: str) -> Callable[[str], bool]:
    """A function that says whether a text holds a match of a pattern somewhere.

    As in Python, ``$`` also matches before a line break at the end.

    Raises:
        NoPattern: it is too long, too large when compiled, or not a regular expression.
    """
    if len(pattern) > LONGEST:
        raise NoPattern(f"it has more than {LONGEST} characters")
    try:
        adapter = TypeAdapter(
            Annotated[str, StringConstraints(pattern=pattern)],
            config=pydantic.ConfigDict(regex_engine="rust-regex"),
        )
    except Exception as error:  # pydantic's own SchemaError, which only its core has
        raise NoPattern(str(error).strip().splitlines()[-1].removeprefix("error: ")) from None

    def found(text: str) -> bool:
        try:
            adapter.validate_python(text)
        except ValidationError:
            return False
        return True

    return lambda text: found(text) or (text.endswith("\n") and found(text[:-1]))
