"""What is asked in every stack of a bisection: one cell, and what counts as good and as bad."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trl_compat.bisect.search import Side, majority
from trl_compat.cells.expectations import Expectation
from trl_compat.cells.outcome import Outcome
from trl_compat.cells.verdict import Verdict
from trl_compat.errors import BadInput
from trl_compat.text.nearest import unknown_name


@dataclass(frozen=True)
class Wanted:
    """An outcome that is looked for, perhaps of a certain symptom, or masked by a certain failure.

    Attributes:
        outcome: the outcome.
        name: of the symptom or of the masking advisory; ``""`` for any.
    """

    outcome: Outcome
    name: str = ""

    @classmethod
    def read(cls, text: str) -> Wanted:
        """From ``reproduced`` or ``reproduced:no-engine-config``.

        Raises:
            BadInput: there is no such outcome, or it can have no name.
        """
        word, _, name = text.partition(":")
        outcome = next((one for one in Outcome if one == word), None)
        if outcome is None:
            raise BadInput(unknown_name("outcome", word, map(str, Outcome)))
        if name and outcome not in (Outcome.REPRODUCED, Outcome.MASKED):
            raise BadInput(f"'{text}': only 'reproduced' and 'masked' can be followed by a name")
        if not outcome.ran or outcome is Outcome.UNSTABLE:
            raise BadInput(f"'{word}' says nothing about a release, so it cannot be looked for")
        return cls(outcome, name)

    def __str__(self) -> str:
        return f"{self.outcome}:{self.name}" if self.name else str(self.outcome)

    def is_met_by(self, seen: Verdict | Expectation) -> bool:
        """Whether a verdict, or what the advisories predict, is this."""
        names = (seen.masked_by,) if self.outcome is Outcome.MASKED else (seen.symptom,)
        return seen.outcome is self.outcome and (not self.name or self.name in names)


@dataclass(frozen=True)
class Question:
    """The cell that is run in every stack, and its two answers.

    Attributes:
        good: what the good end shows; ``bad`` what the bad one shows.
        fix: the fix that is applied; ``none`` for none.
    """

    failure: str
    variant: str
    model: str
    world_size: int
    device: str
    fix: str
    good: Wanted = Wanted(Outcome.PASS)
    bad: Wanted = Wanted(Outcome.REPRODUCED)

    def side(self, seen: Verdict | Expectation) -> Side:
        """The side that one run, or a prediction, speaks for."""
        if self.good.is_met_by(seen):
            return Side.GOOD
        return Side.BAD if self.bad.is_met_by(seen) else Side.UNJUDGED

    def decided(self, verdicts: Sequence[Verdict]) -> Side:
        """The side that several runs of a stack speak for."""
        return majority([self.side(verdict) for verdict in verdicts])

    def agree(self, verdicts: Sequence[Verdict]) -> bool:
        """Whether several runs of a stack all speak for one side."""
        return len({self.side(verdict) for verdict in verdicts}) == 1

    @property
    def words(self) -> str:
        """The cell in words."""
        fixed = f", with fix {self.fix}" if self.fix != "none" else ""
        return f"{self.failure} ({self.variant}, {self.model}, {self.world_size} ranks{fixed})"
