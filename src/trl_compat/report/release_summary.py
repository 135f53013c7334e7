"""The outcomes of a failure, by TRL release.

:func:`tell` is the only place that turns releases into words.  ``first – last`` is used only for
releases of which every one was run; other releases between the first and the last (masked, passes,
not run) follow in brackets.  Commits are listed separately.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from packaging.version import Version

from trl_compat.cells.outcome import Outcome
from trl_compat.report import tables
from trl_compat.results import CellResult, Results
from trl_compat.shipped import releases

NOT_RUN = "not run"
MOST = 3  # of the groups of releases that were not run: more are counted, not listed
# What a reader asks first comes first.
ORDER = (
    Outcome.REPRODUCED,
    Outcome.PASS,
    Outcome.MASKED,
    *(o for o in tables.WORST_FIRST if o is not Outcome.NOT_APPLICABLE),
    Outcome.NOT_APPLICABLE,
)
WORDS = {
    Outcome.REPRODUCED: "Fails on",
    Outcome.PASS: "Works on",
    Outcome.MASKED: "Masked by another failure on",
    Outcome.NOT_APPLICABLE: "Not applicable to",
}


# What a release does that lies between others.
BETWEEN = {
    Outcome.PASS: "working",
    Outcome.REPRODUCED: "failing",
    Outcome.NOT_APPLICABLE: "not applicable",
    Outcome.UNAVAILABLE: "not run, out of reach",
    Outcome.UNRESOLVABLE: "not run, cannot be installed",
    Outcome.HARNESS_ERROR: "not run, the harness failed",
}


@dataclass(frozen=True)
class Told:
    """Releases that were run and did the same, and what lies between the first and the last.

    Attributes:
        named: single releases, ``first – last`` where every release between was run, commits last.
        between: ``0.14.0 – 0.18.2 masked by …``, ``12 releases not run``.
    """

    named: tuple[str, ...]
    between: tuple[str, ...] = ()

    def __str__(self) -> str:
        said = ", ".join(self.named)
        return f"{said} (between them {'; '.join(self.between)})" if self.between else said


def tell(chosen: Collection[str], seen: Mapping[str, str]) -> Told:
    """Some of the TRL releases that were run, in words that claim nothing of any other.

    Args:
        chosen: the releases to name.
        seen: every release that was run, and what it does, in words.
    """
    commits = sorted(tables.version_text(v) for v in set(chosen) if v.startswith("git+"))
    named = {Version(v): v for v in chosen if not v.startswith("git+")}
    if not named:
        return Told(tuple(commits))
    words = {Version(v): word for v, word in seen.items() if not v.startswith("git+")}
    names = {**releases.known().names("trl")}
    names |= {Version(v): v for v in (*seen, *chosen) if not v.startswith("git+")}
    others: dict[str, list[Version]] = {}
    first, last = min(named), max(named)
    for version in sorted(names):
        if first < version < last and version not in named:
            others.setdefault(words.get(version, NOT_RUN), []).append(version)
    between = []
    for word, versions in others.items():
        parts = _folded(versions, names)
        many = word == NOT_RUN and len(parts) > MOST
        between.append(f"{f'{len(versions)} releases' if many else ', '.join(parts)} {word}")
    between.sort(key=lambda text: text.endswith(NOT_RUN))
    return Told((*_folded(named, names), *commits), tuple(between))


def _folded(chosen: Collection[Version], names: Mapping[Version, str]) -> list[str]:
    """The chosen of the releases that there are, those that follow one another as one range."""
    chosen = set(chosen)
    runs: list[list[str]] = []
    follows = False
    for version in sorted(names):
        if version in chosen:
            runs[-1:] = [[*runs[-1], names[version]]] if follows else [*runs[-1:], [names[version]]]
        follows = version in chosen
    return [run[0] if len(run) == 1 else f"{run[0]} – {run[-1]}" for run in runs]


@dataclass(frozen=True)
class ReleaseSummary:
    """The TRL releases with one outcome.

    Attributes:
        reasons: what the cells say of it, each once.
    """

    outcome: Outcome
    releases: Told
    reasons: tuple[str, ...]

    @property
    def words(self) -> str:
        """``Fails on``, ``Works on`` or the outcome's word."""
        return WORDS.get(self.outcome, f"{str(self.outcome).capitalize()} on")

    @property
    def why(self) -> str:
        """The reasons, where the outcome does not say it all."""
        told = self.outcome not in (Outcome.PASS, Outcome.REPRODUCED)
        return "; ".join(self.reasons) if told else ""


def summaries(document: Results, failure: str) -> tuple[ReleaseSummary, ...]:
    """What the releases do about a failure; the worst of a release's stacks speaks for it."""
    cells = [cell for cell in document.cells if cell.failure == failure]
    by_release: dict[str, Outcome] = {}
    by_stack = tables.summaries_of(cells)
    for stack in tables.stacks_of(document, cells):
        summary = by_stack.get((stack, failure))
        if summary is None:
            continue
        release = document.stacks[stack].trl
        both = (summary.outcome, by_release.get(release, summary.outcome))
        by_release[release] = min(both, key=tables.WORST_FIRST.index)
    at = _by_release(document, cells)
    seen = {release: _word(outcome, at[release]) for release, outcome in by_release.items()}
    found = []
    for outcome in dict.fromkeys(ORDER):
        chosen = [release for release, worst in by_release.items() if worst is outcome]
        if chosen:
            here = [cell for release in chosen for cell in at[release]]
            found.append(ReleaseSummary(outcome, tell(chosen, seen), _reasons(here, outcome)))
    return tuple(found)


def failing(document: Results, cells: Sequence[CellResult]) -> Told:
    """The releases on which some unfixed cell of these fails as recorded."""
    unfixed = [cell for cell in cells if not cell.fixed]
    broken = {document.stacks[c.stack].trl for c in unfixed if c.outcome is Outcome.REPRODUCED}
    return tell(broken, _seen(document, unfixed))


@dataclass(frozen=True)
class VariantRow:
    """What a variant, unfixed or with a fix, came to on the TRL releases where it was run."""

    variant: str
    fix: str | None
    control: bool
    wrong_fix: bool
    found: tuple[tuple[Outcome, Told], ...]


def by_variant(document: Results, failure: str) -> tuple[VariantRow, ...]:
    """One row per variant and fix, controls first, with the releases of each outcome."""
    rows: dict[tuple[str, str], list[CellResult]] = {}
    cells = [cell for cell in document.cells if cell.failure == failure]
    for cell in sorted(cells, key=lambda c: (not c.control, c.variant, c.fix or "")):
        rows.setdefault((cell.variant, cell.fix or ""), []).append(cell)
    return tuple(_variant_row(document, alike) for alike in rows.values())


def _variant_row(document: Results, cells: Sequence[CellResult]) -> VariantRow:
    seen = _seen(document, cells)
    found = []
    for outcome in sorted({cell.outcome for cell in cells}, key=tables.WORST_FIRST.index):
        chosen = {document.stacks[cell.stack].trl for cell in cells if cell.outcome is outcome}
        found.append((outcome, tell(chosen, seen)))
    first = cells[0]
    return VariantRow(first.variant, first.fix, first.control, first.wrong_fix, tuple(found))


def _seen(document: Results, cells: Sequence[CellResult]) -> dict[str, str]:
    """What each release does, in words; the worst of its cells speaks for it."""
    seen = {}
    for release, here in _by_release(document, cells).items():
        worst = min((cell.outcome for cell in here), key=tables.WORST_FIRST.index)
        seen[release] = _word(worst, here)
    return seen


def _by_release(document: Results, cells: Iterable[CellResult]) -> dict[str, list[CellResult]]:
    found: dict[str, list[CellResult]] = {}
    for cell in cells:
        found.setdefault(document.stacks[cell.stack].trl, []).append(cell)
    return found


def _word(outcome: Outcome, cells: Sequence[CellResult]) -> str:
    """What a release does, as it stands behind its number."""
    if outcome is Outcome.MASKED:
        masks = sorted({c.masked_by for c in cells if c.outcome is outcome and c.masked_by})
        return f"masked by {' and '.join(masks)}" if masks else "masked"
    return BETWEEN.get(outcome, str(outcome))


def _reasons(cells: Sequence[CellResult], outcome: Outcome) -> tuple[str, ...]:
    return tuple(dict.fromkeys(c.reason for c in cells if c.outcome is outcome and c.reason))
