"""Known-good stacks: for each TRL release the newest stack on which everything that was run passes.

Everything: every cell that was run at the default variants of its failure passes or is not
applicable.  With fixes: those that fail as recorded pass with a fix in the same place.  A stack is
not called good where a failure that the advisories know for its versions was not run on it: a pass
elsewhere says nothing of a result that is silently wrong here.

Pure functions; :mod:`.known_good_files` makes the files of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from trl_compat.advisories import STANDALONE, Catalogue, compiling
from trl_compat.cells.outcome import Outcome
from trl_compat.matching.applies import matches
from trl_compat.packages import PACKAGES
from trl_compat.report import tables
from trl_compat.results import CellResult, Results, StackResult
from trl_compat.shipped.records import CompiledAdvisory
from trl_compat.stacks.matrix import GIT
from trl_compat.stacks.sources.source import Source
from trl_compat.usage.conditions import phrase

Place = tuple[str, str, int, str]
GOOD = (Outcome.PASS, Outcome.NOT_APPLICABLE)


@dataclass(frozen=True)
class NeededFix:
    """A fix without which the stack fails.

    Attributes:
        when: under which conditions it is needed, in words.
    """

    failure: str
    fix: str
    standalone: bool
    when: str


@dataclass(frozen=True)
class Executed:
    """What was run on a stack: its cells at default variants, and the fixed ones that count."""

    cells: int
    failures: tuple[str, ...]
    models: tuple[str, ...]
    world_sizes: tuple[int, ...]
    backends: tuple[str, ...]

    def sentence(self) -> str:
        """``12 cells of 5 failures, 2 and 4 ranks (gloo)``."""
        ranks = " and ".join(map(str, self.world_sizes))
        of = f"{len(self.failures)} failure{'s' * (len(self.failures) != 1)}"
        cells = f"{self.cells} cell{'s' * (self.cells != 1)}"
        return f"{cells} of {of}, {ranks} ranks ({', '.join(self.backends)})"


@dataclass(frozen=True)
class KnownGood:
    """A stack that is good.

    Attributes:
        fixes: needed for that; empty where it is good as it is.
        besides: failures that the advisories know for its versions and nobody can run: each stops
            at once and says so.
        failing: variants beyond the default ones that do not pass, with those fixes either, as
            ``failure (variant) is outcome``.
    """

    stack: str
    versions: StackResult
    fixes: tuple[NeededFix, ...]
    executed: Executed
    besides: tuple[str, ...]
    failing: tuple[str, ...]

    @property
    def name(self) -> str:
        """Of its files."""
        return f"trl-{self.versions.trl}{'-with-fixes' if self.fixes else ''}"


@dataclass(frozen=True)
class Release:
    """A TRL release with its good stacks.

    Attributes:
        as_it_is: the newest that needs no fix.
        with_fixes: the newest that is good with fixes, where it is newer than that.
        why_not: why its newest stack is not good as it is, a clause each.
    """

    trl: str
    as_it_is: KnownGood | None
    with_fixes: KnownGood | None
    why_not: tuple[str, ...]

    @property
    def sets(self) -> tuple[KnownGood, ...]:
        """Its good stacks, without fixes first."""
        return tuple(one for one in (self.as_it_is, self.with_fixes) if one is not None)


def known_good(document: Results, catalogue: Catalogue) -> tuple[Release, ...]:
    """Every TRL release of the results, newest first; git commits are no releases."""
    records = compiling.records(catalogue)
    cells: dict[str, list[CellResult]] = {}
    for cell in document.cells:
        cells.setdefault(cell.stack, []).append(cell)
    by_release: dict[str, list[str]] = {}
    for name in tables.newest_first(document):
        release = document.stacks[name].trl
        if not GIT.fullmatch(release):
            by_release.setdefault(release, []).append(name)
    return tuple(
        _release(release, names, document, cells, catalogue, records)
        for release, names in by_release.items()
    )


def _release(
    release: str,
    names: Sequence[str],
    document: Results,
    cells: Mapping[str, Sequence[CellResult]],
    catalogue: Catalogue,
    records: Mapping[str, CompiledAdvisory],
) -> Release:
    with_fixes: KnownGood | None = None
    why_not: tuple[str, ...] = ()
    for name in names:
        judged = judge(name, document.stacks[name], cells.get(name, ()), catalogue, records)
        if isinstance(judged, KnownGood) and not judged.fixes:
            return Release(release, judged, with_fixes, why_not)
        if isinstance(judged, KnownGood):
            with_fixes = with_fixes or judged
            judged = tuple(f"{fix.failure} fails without a fix" for fix in judged.fixes)
        why_not = why_not or judged
    return Release(release, None, with_fixes, why_not)


def judge(
    name: str,
    stack: StackResult,
    cells: Sequence[CellResult],
    catalogue: Catalogue,
    records: Mapping[str, CompiledAdvisory],
) -> KnownGood | tuple[str, ...]:
    """A stack as a known-good one, or why it is none, a clause each."""
    usual = [cell for cell in cells if _by_default(cell, catalogue)]
    unfixed = [cell for cell in usual if not cell.fixed and cell.outcome is not Outcome.UNAVAILABLE]
    if not any(cell.outcome in (Outcome.PASS, Outcome.REPRODUCED) for cell in unfixed):
        return ("nothing was run on it",)
    wrong = [
        f"{cell.failure} ({cell.variant}) is {cell.outcome}"
        for cell in unfixed
        if cell.outcome not in (*GOOD, Outcome.REPRODUCED)
    ]
    applying = _applying(name, stack, records)
    not_run = [one for one in applying if not _was_run(one, unfixed, catalogue)]
    tried = {cell.failure for cell in unfixed}
    wrong += [
        f"{one} is known for these versions and was not run {'whole ' * (one in tried)}on it"
        for one in not_run
        if _decides(records[one], catalogue) and not any(w.startswith(f"{one} (") for w in wrong)
    ]
    fixes: list[NeededFix] = []
    proofs: list[CellResult] = []
    for failure in dict.fromkeys(c.failure for c in unfixed if c.outcome is Outcome.REPRODUCED):
        broken = [c for c in unfixed if c.failure == failure and c.outcome is Outcome.REPRODUCED]
        found = _fixes(failure, broken, usual, catalogue)
        if found is None:
            wrong.append(f"{failure} fails, and no fix was proven for it on this stack")
            continue
        names, proven = found
        proofs += proven
        when = _phrase(records[failure], stack, name) if failure in records else ""
        fixes += [
            NeededFix(failure, one.removesuffix(STANDALONE), one.endswith(STANDALONE), when)
            for one in names
        ]
    if wrong:
        return tuple(dict.fromkeys(wrong))
    return KnownGood(
        stack=name,
        versions=stack,
        fixes=tuple(fixes),
        executed=_executed([*unfixed, *proofs]),
        besides=tuple(one for one in not_run if not _decides(records[one], catalogue)),
        failing=_failing(cells, usual, fixes),
    )


def _by_default(cell: CellResult, catalogue: Catalogue) -> bool:
    """Whether a cell is of a default variant; a failure that nobody knows any more counts, too."""
    advisory = catalogue.records.get(cell.failure)
    if advisory is None or advisory.reproduction is None:
        return True
    return cell.variant in (advisory.reproduction.default or tuple(advisory.reproduction.variants))


def _source(name: str, stack: StackResult) -> Source:
    said = {**{package: getattr(stack, package) for package in PACKAGES}, **stack.packages}
    commits = {package: value for package, value in said.items() if value.startswith("git+")}
    versions = {p: v for p, v in said.items() if v and p not in commits}
    return Source(
        name,
        "environment",
        versions=versions,
        commits=commits,
        python=stack.python,
        complete=bool(stack.packages),
    )


def _applying(
    name: str, stack: StackResult, records: Mapping[str, CompiledAdvisory]
) -> tuple[str, ...]:
    """The failures that the advisories know for a stack's versions, under any conditions."""
    source = _source(name, stack)
    return tuple(one for one, record in records.items() if matches(record, source, {}))


def _was_run(failure: str, unfixed: Collection[CellResult], catalogue: Catalogue) -> bool:
    """Whether every default variant of a failure was run, with some model."""
    reproduction = catalogue[failure].reproduction
    if reproduction is None:
        return False
    wanted = reproduction.default or tuple(reproduction.variants)
    said = (*GOOD, Outcome.REPRODUCED)
    ran = {c.variant for c in unfixed if c.failure == failure and c.outcome in said}
    return ran >= set(wanted)


def _decides(record: CompiledAdvisory, catalogue: Catalogue) -> bool:
    """Whether a failure that was not run keeps a stack from being good.

    Those that only stop others, and say so, are named beside it.
    """
    silent = any(block.severity == "silent-wrong-result" for block in record.blocks)
    return silent or catalogue[record.id].reproduction is not None


def _place(cell: CellResult) -> Place:
    return (cell.variant, cell.model, cell.world_size, cell.backend)


def _fixes(
    failure: str,
    broken: Sequence[CellResult],
    usual: Sequence[CellResult],
    catalogue: Catalogue,
) -> tuple[list[str], list[CellResult]] | None:
    """The fewest fixes, by the order of the advisory, that mend all broken cells; None if none."""
    proofs: dict[str, dict[Place, CellResult]] = {}
    for cell in usual:
        if cell.failure == failure and cell.fix and not cell.wrong_fix:
            places = proofs.setdefault(cell.fix, {})
            if cell.outcome is Outcome.PASS:
                places[_place(cell)] = cell
    listed = [fix.name for fix in catalogue[failure].fixes] if failure in catalogue.records else []
    order = [name for plain in listed for name in (plain, f"{plain}{STANDALONE}")]
    known = sorted(proofs, key=lambda n: (order.index(n) if n in order else len(order), n))
    open_ = {_place(cell) for cell in broken}
    chosen: list[str] = []
    used: list[CellResult] = []
    while open_:
        best = max(known, key=lambda one: len(open_ & proofs[one].keys()), default="")
        if not best or not open_ & proofs[best].keys():
            return None
        chosen.append(best)
        used += [proofs[best][place] for place in sorted(open_ & proofs[best].keys())]
        open_ -= proofs[best].keys()
    return chosen, used


def _phrase(record: CompiledAdvisory, stack: StackResult, name: str) -> str:
    """The conditions under which a failure shows on a stack, in words."""
    said: dict[str, None] = {}
    for match in matches(record, _source(name, stack), {}):
        conditions = phrase(match.block.conditions)
        said[", where ".join(filter(None, (conditions, *match.provisos)))] = None
    return "; or ".join(filter(None, said))


def _executed(cells: Iterable[CellResult]) -> Executed:
    counted = [cell for cell in cells if cell.outcome is not Outcome.NOT_APPLICABLE]
    return Executed(
        cells=len(counted),
        failures=tuple(sorted({cell.failure for cell in counted})),
        models=tuple(sorted({cell.model for cell in counted})),
        world_sizes=tuple(sorted({cell.world_size for cell in counted})),
        backends=tuple(sorted({cell.backend for cell in counted})),
    )


def _failing(
    cells: Sequence[CellResult], usual: Sequence[CellResult], fixes: Sequence[NeededFix]
) -> tuple[str, ...]:
    """Unfixed cells beyond the default variants, and controls, that no needed fix mends."""
    known = {cell.id for cell in usual}
    names = {(f.failure, f"{f.fix}{STANDALONE}" if f.standalone else f.fix) for f in fixes}
    mended = {
        (cell.failure, _place(cell))
        for cell in cells
        if (cell.failure, cell.fix) in names and cell.outcome is Outcome.PASS
    }
    bad = [
        cell
        for cell in cells
        if cell.id not in known
        and not cell.fixed
        and cell.outcome not in (*GOOD, Outcome.UNAVAILABLE)
        and (cell.failure, _place(cell)) not in mended
    ]
    return tuple(dict.fromkeys(f"{c.failure} ({c.variant}) is {c.outcome}" for c in bad))
