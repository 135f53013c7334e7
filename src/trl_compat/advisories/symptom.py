"""How a failure appears: what it raises and where, or which values give a silent fault away."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import field_validator, model_validator

from trl_compat.advisories import patterns
from trl_compat.files.models import FrozenModel

# What a reproduction raises where nothing upstream does.
POST_CONDITION = "PostConditionFailed"
# Stands in a record for what no cell has shown yet; `trl-compat advisories finish` replaces it.
OBSERVE = "observe"


class Symptom(FrozenModel):
    """How it appears: exception type, message (regex, searched) and raising place (glob).

    The regular expression is one of :mod:`.patterns`: without look-around.
    ``where`` is ``file:function`` of the innermost frame that is not an attribute look-up, or
    ``check:name`` for a post-condition of the reproduction.  ``through`` must match any frame.

    A silent fault raises nothing: it ``violates`` an invariant, and ``measured`` tells by which
    values it is recognized: a pair is the smallest and the largest number, a text is a regular
    expression that the value must match as a whole.
    """

    exception: str = POST_CONDITION
    message: str = ""
    where: str = ""
    through: str | None = None
    violates: str | None = None
    measured: dict[str, tuple[float, float] | str] = {}

    @model_validator(mode="after")
    def _appears(self) -> Symptom:
        if self.violates is None:
            if self.measured:
                raise ValueError("'measured' belongs to a symptom that violates an invariant")
            if not (self.message and self.where):
                raise ValueError("give message and where, or 'violates: <invariant>'")
        elif self.message or self.where or self.exception != POST_CONDITION:
            raise ValueError("what violates an invariant raises nothing: give 'measured' alone")
        elif not self.measured:
            raise ValueError("'measured': give the values by which the fault is recognized")
        return self

    @property
    def to_observe(self) -> tuple[str, ...]:
        """The fields, or the measured values, that are yet to be observed."""
        fields = ("exception", "message", "where")
        measured = (name for name, value in self.measured.items() if value == OBSERVE)
        return (*(name for name in fields if getattr(self, name) == OBSERVE), *measured)

    @field_validator("message")
    @classmethod
    def _compiles(cls, value: str) -> str:
        try:
            patterns.compiled(value)
        except patterns.NoPattern as error:
            raise ValueError(f"not a regular expression: {error}") from None
        return value

    def matches(self, error: Mapping[str, Any], measured: Mapping[str, Any] | None = None) -> bool:
        """Whether a recorded exception (see ``trl_compat.runtime.signature``) is this symptom.

        Args:
            measured: the values that the cell has measured.
        """
        return next(self._unlike(error, measured or {}), None) is None

    def unlike(self, error: Mapping[str, Any], measured: Mapping[str, Any]) -> tuple[str, ...]:
        """The parts of this symptom that a recorded exception does not show, each in words.

        Empty if it shows all, or none: then it has nothing to do with this symptom.
        """
        parts = tuple(self._unlike(error, measured))
        if self.violates is not None:
            return parts if error["where"] == self._check() else ()
        same_kind = error["exception"] == self.exception != POST_CONDITION
        near = same_kind or self._says(error) or self.is_place_of(error)
        return parts if near else ()

    def _unlike(self, error: Mapping[str, Any], measured: Mapping[str, Any]) -> Iterator[str]:
        if error["exception"] != self.exception:
            yield f"the exception is no {self.exception}"
        if self.violates is not None:
            if error["where"] != self._check():
                yield f"not raised in {self._check()}"
            yield from self._other_values(measured)
            return
        if not self._says(error):
            yield f"the message does not match '{self.message}'"
        if not fnmatch.fnmatchcase(error["where"], self.where):
            yield f"not raised in {self.where}"
        if not self._went_through(error):
            yield f"not through {self.through}"

    def _other_values(self, measured: Mapping[str, Any]) -> Iterator[str]:
        for name, wanted in self.measured.items():
            value = measured.get(name, "not measured")
            if isinstance(wanted, str):
                if name not in measured or not re.fullmatch(wanted, str(value)):
                    yield f"{name} is {value}, no match of '{wanted}'"
            elif not isinstance(value, int | float) or not wanted[0] <= value <= wanted[1]:
                yield f"{name} is {value}, not from {wanted[0]:g} to {wanted[1]:g}"

    def _check(self) -> str:
        return f"check:{self.violates}"

    def _says(self, error: Mapping[str, Any]) -> bool:
        return bool(patterns.compiled(self.message)(error["message"]))

    def is_place_of(self, error: Mapping[str, Any]) -> bool:
        """Whether a recorded exception comes from this symptom's place, whatever it says.

        Where the symptom says by which way it comes, that way is the place: releases move the line
        that raises, seldom the one that is to blame.  All that violates an invariant is raised by
        one check, so that this place says nothing of the cause.
        """
        if self.violates is not None:
            return False
        if self.through is not None:
            return self._went_through(error)
        return fnmatch.fnmatchcase(error["where"], self.where)

    def _went_through(self, error: Mapping[str, Any]) -> bool:
        frames = (f"{frame['file']}:{frame['function']}" for frame in error["frames"])
        return self.through is None or any(fnmatch.fnmatchcase(f, self.through) for f in frames)
