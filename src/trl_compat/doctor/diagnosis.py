"""The diagnosis: what applies, what may apply, what cannot be determined, and the remedies."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

from trl_compat.doctor import assumptions, known_setup
from trl_compat.doctor.known_setup import KnownSetup
from trl_compat.matching import nearest_run, open_versions
from trl_compat.matching.applies import Match, covers, matches
from trl_compat.matching.nearest_run import Nearest, Run
from trl_compat.matching.open_versions import Settled
from trl_compat.shipped import records
from trl_compat.shipped.records import CompiledAdvisory, Use
from trl_compat.stacks.sources.release_warnings import release_warnings
from trl_compat.stacks.sources.source import Source
from trl_compat.upgrade.recommend import Adviser, options
from trl_compat.usage import vocabulary
from trl_compat.usage.conditions import Named, phrase
from trl_compat.usage.vocabulary import Vocabulary


class Status(enum.Enum):
    """How a failure stands to what someone has, with a sentence for people."""

    APPLIES = "applies"
    APPLIES_IF = "applies if"
    HIDDEN = "masked"
    CANNOT_TELL = "cannot tell"

    @property
    def sentence(self) -> str:
        """What the status means."""
        match self:
            case Status.APPLIES:
                return "these versions are affected, and the specified conditions trigger it"
            case Status.APPLIES_IF:
                return "these versions are affected; it depends on unspecified conditions"
            case Status.HIDDEN:
                return "another failure stops the run first; this one appears once that is fixed"
            case Status.CANNOT_TELL:
                return "a version that decides this is unknown"


@dataclass(frozen=True)
class Action:
    """One thing that a user can do; ``code`` is text to paste."""

    text: str
    code: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """One failure: what it is, when it strikes, how sure that is, and what to do.

    Attributes:
        record: the advisory.
        status: how it stands.
        severity: how it hurts, the worst that is possible here.
        when: the open conditions as clauses, any of which is enough; empty if nothing is open.
        uses: of several things that were named, those that it needs, in words.
        sees: what the user would see.
        not_fixes: what is recommended somewhere and does not help, with the reason.
        seen: where and when it was really seen.
        advise: finds out what to do.
    """

    record: CompiledAdvisory
    status: Status
    severity: str
    when: tuple[str, ...]
    uses: tuple[str, ...]
    sees: str
    not_fixes: tuple[str, ...]
    seen: str
    advise: Callable[[], Iterable[Action]] = field(repr=False, compare=False)

    @cached_property
    def actions(self) -> tuple[Action, ...]:
        """What to do, the best first; found out when it is asked for, as that costs the most."""
        return tuple(self.advise())


@dataclass(frozen=True)
class Report:
    """All that doctor has to say about a source.

    ``ignored`` are failures that the project accepts, with the reason; they count for nothing.
    """

    source: Source
    named: Named
    asked: KnownSetup
    diagnoses: tuple[Diagnosis, ...]
    nearest: Nearest | None
    notes: tuple[str, ...]
    ignored: Mapping[str, str] = field(default_factory=dict)

    @property
    def findings(self) -> tuple[Diagnosis, ...]:
        """What applies, or would under conditions that nobody named."""
        return tuple(d for d in self.counted if d.status in FOUND)

    @property
    def counted(self) -> tuple[Diagnosis, ...]:
        """The diagnoses that are not ignored."""
        return tuple(d for d in self.diagnoses if d.record.id not in self.ignored)

    @property
    def clear(self) -> bool:
        """Nothing applies, and that is certain."""
        return not self.counted


FOUND = (Status.APPLIES, Status.APPLIES_IF)
SEVERITIES = ("silent-wrong-result", "crash-late", "crash-at-start", "slow")
SEVERITY_WORDS = {
    "silent-wrong-result": "silently wrong results",
    "crash-late": "crash late in training",
    "crash-at-start": "crash at the start",
    "slow": "slow, or needs more memory",
}


@dataclass(frozen=True)
class Known:
    """All that doctor knows: the records, and what was run for them and where."""

    records: Mapping[str, CompiledAdvisory]
    runs: tuple[Run, ...]
    uses: Sequence[Use]
    words: Vocabulary


def shipped() -> Known:
    """What is shipped."""
    return Known(
        records.shipped(), nearest_run.shipped(), records.shipped_uses(), vocabulary.shipped()
    )


def examine(
    source: Source,
    named: Named,
    known: Known | None = None,
    notes: Iterable[str] = (),
    ignored: Mapping[str, str] | None = None,
) -> Report:
    """Looks up every record; the worst comes first."""
    known = known or shipped()
    asked_of = known_setup.of(named, source.version("trl"), known.records, known.uses)
    have, assumed = assumptions.of(source, named)
    found = []
    adviser = Adviser(known.records, have, named)
    for record in known.records.values():
        mine = matches(record, have, named)
        if mine:
            found.append(_diagnosis(record, mine, have, named, known, adviser))
    order = list(Status)
    found.sort(key=lambda d: (order.index(d.status), SEVERITIES.index(d.severity)))
    return Report(
        source=have,
        named=named,
        asked=asked_of,
        diagnoses=tuple(found),
        nearest=nearest_run.nearest(have, known.runs),
        notes=(
            *source.notes,
            *release_warnings(source),
            *assumed,
            *assumptions.missing(source, named, known.records),
            *(f"{gap}: this report says nothing about it" for gap in asked_of.gaps),
            *notes,
        ),
        ignored=ignored or {},
    )


def _diagnosis(
    record: CompiledAdvisory,
    found: list[Match],
    source: Source,
    named: Named,
    known: Known,
    adviser: Adviser,
) -> Diagnosis:
    status, cases = status_of(record, found, source, named, known.words)
    mine = list(dict.fromkeys(id(m) for case in cases for m in case.matches))
    shown = [match for match in found if id(match) in mine]
    when = dict.fromkeys(_clause(case, status) for case in cases)
    uses = dict.fromkeys(phrase(case.chosen) for case in cases if status in FOUND)
    return Diagnosis(
        record=record,
        status=status,
        severity=min((m.block.severity for m in shown), key=SEVERITIES.index),
        # A clause that is always met says nothing beside others.
        when=tuple(clause for clause in when if clause),
        uses=tuple(use for use in uses if use),
        sees=" or ".join(filter(None, dict.fromkeys(_sees(match) for match in shown))),
        not_fixes=tuple(w.why for w in record.wrong_fixes if covers(w.where, source)),
        seen=_seen(record, source, known.runs),
        advise=partial(_actions, record, source, adviser) if status in FOUND else tuple,
    )


def status_of(
    record: CompiledAdvisory, found: list[Match], source: Source, named: Named, words: Vocabulary
) -> tuple[Status, Sequence[Settled]]:
    """The strongest status that the blocks together have, and the cases that have it."""
    open_ = [m for m in found if m.hidden_by is None]
    if not open_:
        return Status.HIDDEN, [open_versions.alone(match) for match in found]
    cases = open_versions.settled(record, open_, source, named)
    if certain := open_versions.whatever(cases, named, words):
        return Status.APPLIES, certain
    if cases:
        return Status.APPLIES_IF, cases
    return Status.CANNOT_TELL, [open_versions.alone(match) for match in open_]


def _clause(case: Settled, status: Status) -> str:
    parts = []
    if status in (Status.CANNOT_TELL, Status.HIDDEN):
        (match,) = case.matches
        ranges = match.block.where.versions
        parts += [f"{p} is in the range {ranges[p]}" for p in match.unknown if p in ranges]
        if match.hidden_by:
            parts.append(f"{match.hidden_by} is fixed")
    if status is not Status.APPLIES:
        if case.unnamed:
            parts.append(f"you use {phrase(case.unnamed)}")
        parts += case.provisos
    return " and ".join(parts)


def _sees(match: Match) -> str:
    if match.block.exception in ("PostConditionFailed", "ControlFailed"):
        return ""  # the words of a reproduction, not of what a user runs
    return f"{match.block.exception}: {_plain(match.block.message)}"


def _plain(pattern: str) -> str:
    """A pattern as the text that it stands for, as far as people need it."""
    text = re.sub(r"\[\\w\.\]\+|\\w\+|\\d\+|\[\\s\\S\]\*|\.\*", "…", pattern)
    text = text.removeprefix("^").removesuffix("$")
    return re.sub(r"\\(.)", lambda m: {"n": " ", "d": "…"}.get(m[1], m[1]), text)


def _actions(record: CompiledAdvisory, source: Source, adviser: Adviser) -> Iterable[Action]:
    found = adviser.ways(record)
    patches = [patch for patch in record.patches if covers(patch.where, source)]
    none = found.none and f" {found.none}"  # said where something else is the way
    for patch in patches:
        cost = f" Cost: {patch.cost}" if patch.cost not in ("", "None.") else ""
        way = "set" if patch.settings else "patch"
        text = f"Keep the versions and {way}: {patch.summary}{cost}{none}"
        yield Action(text, patch.snippet)
        none = ""
    yield from (Action(way.text) for way in found.ways)
    for option in options(record, source):
        yield Action(f"Set {option.option}.{option.note and ' ' + option.note}{none}")
        none = ""
    if record.advice:
        yield Action(f"{record.advice}{none}")
        none = ""
    if none:
        yield Action(none.strip())


def _seen(record: CompiledAdvisory, source: Source, runs: tuple[Run, ...]) -> str:
    """Where it was seen, the very versions before the nearest others."""
    met = tuple(run for run in runs if record.id in run.found)
    if not met:
        return "not run in the shipped results; known from the references"
    closest = nearest_run.nearest(source, met)
    if closest is None:
        return f"seen on {', '.join(run.name for run in met)}"
    found = closest.run.found[record.id]
    ranks = ", ".join(found.evidence)
    proven = f"; fix proven there: {', '.join(found.patches)}" if found.patches else ""
    where = "on exactly these versions" if not closest.differs else "not on these versions, but on"
    name = f" ({closest.run.name})" if not closest.differs else f" {closest.run.name}"
    return f"seen {where}{name}, {found.date}, {ranks}{proven}"
