"""Other versions or options for a gate's candidate, checked against all known failures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trl_compat.conditions import Value
from trl_compat.gate.report import RemedyReport
from trl_compat.packages import PACKAGES
from trl_compat.shipped.records import CompiledAdvisory
from trl_compat.stacks.matrix import Stack
from trl_compat.stacks.sources.source import Source
from trl_compat.upgrade.recommend import Adviser, options
from trl_compat.usage.relevance import Usage
from trl_compat.usage.strategies import conditions_of


class CandidateAdvice:
    """The ways around the failures of one candidate, for what the user says to use."""

    def __init__(
        self, records: Mapping[str, CompiledAdvisory], stack: Stack, wanted: Usage
    ) -> None:
        versions = {package: stack.version(package) for package in PACKAGES}
        self._records = records
        self._source = Source(
            name="the candidate",
            kind="environment",
            versions={package: str(version) for package, version in versions.items() if version},
            python=stack.python,
            commits={p: f"git@{c}" for p in PACKAGES if (c := stack.commit(p)) is not None},
        )
        named: dict[str, tuple[Value, ...]] = dict(conditions_of(wanted.strategies))
        if wanted.trainers:
            named["trainer"] = wanted.trainers
        self._adviser = Adviser(records, self._source, named)

    def ways_around(self, failure: str) -> Iterator[RemedyReport]:
        """What avoids a failure and brings no other."""
        record = self._records[failure]
        said = [way.text for way in self._adviser.ways(record).ways]
        said += [
            f"Set {option.option}.{option.note and ' ' + option.note}"
            for option in options(record, self._source)
        ]
        for text in (*said, *filter(None, [record.advice])):
            yield RemedyReport(failure=failure, text=text.removesuffix("."))
