"""The record that a rank writes about itself, as a schema: anything else is rejected.

The runtime (``trl_compat.runtime.rank``) writes only such records, but any code in a rank can write
its files.  So they are untrusted data: a record that does not match is rejected as a whole, and
readers of an accepted record can rely on every type in it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator

Name = Annotated[str, Field(max_length=1_000)]
Text = Annotated[str, Field(max_length=100_000)]


class Written(BaseModel):
    """Base of what ranks write."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Frame(Written):
    """One frame of the way to an exception."""

    file: Name
    function: Name
    line: int | None = None


class RaisedError(Written):
    """An exception, as ``trl_compat.runtime.signature`` describes it.

    Attributes:
        where: ``file:function`` of the raising place, or ``check:name`` of a post-condition.
        errnos: error numbers of the exception and of those that led to it, the nearest first.
    """

    exception: Name
    message: Text
    where: Annotated[str, Field(max_length=3_000)]
    frames: tuple[Frame, ...] = ()
    errnos: tuple[int, ...] = ()
    traceback: Text = ""


class Registered(Written):
    """A check or a precondition, and whether it held."""

    name: Name
    holds: bool
    message: Text = ""


class Failure(Written):
    """A check or a precondition that did not hold, written down when it was registered.

    Attributes:
        at: when, in seconds of the machine's clock.
        error: what was raised for it, whether or not anybody let it through.
    """

    kind: Literal["check", "precondition"]
    name: Name
    at: FiniteFloat
    error: RaisedError


class RankRecord(Written):
    """How the scenario ended on one rank.

    Attributes:
        status: ``control-failed`` means that a precondition ended it.
        ended: when, in seconds of the machine's clock.
        error: what ended it; None if it came to its end.
    """

    status: Literal["finished", "not-applicable", "control-failed", "raised"]
    ended: FiniteFloat
    checks: tuple[Registered, ...]
    preconditions: tuple[Registered, ...] = ()
    stand_ins: tuple[Name, ...]
    observations: dict[str, Any] = Field(default_factory=dict)
    error: RaisedError | None = None
    rank: int | None = None
    pid: int | None = None
    started: FiniteFloat | None = None

    @model_validator(mode="after")
    def _says_what_ended_it(self) -> RankRecord:
        if self.status != "finished" and self.error is None:
            raise ValueError("it has no error")
        return self

    @property
    def failed(self) -> bool:
        """Whether an exception ended the scenario that says something about the cell."""
        return self.status in ("raised", "control-failed")


class Group(Written):
    """A process group of a rank that hangs, and how many collectives it has started there."""

    ranks: tuple[int, ...]
    started: int


class Collectives(Written):
    """What a rank that hangs answers about its collectives.

    Attributes:
        last: the newest entry of torch's flight recorder, where it keeps one.
    """

    groups: tuple[Group, ...]
    last: dict[str, Any] | None = None
