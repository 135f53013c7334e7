"""A plan as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from trl_compat.packages import PACKAGES
from trl_compat.upgrade.plan import Stage, UpgradePlan


def render(plan: UpgradePlan, form: str) -> str:
    """The plan in a format, with a final newline."""
    if form == "json":
        return json.dumps(_data(plan), indent=1, ensure_ascii=False) + "\n"
    return "\n".join(_lines(plan)) + "\n"


def _lines(plan: UpgradePlan) -> Iterator[str]:
    have = (f"{p} {plan.source.versions[p]}" for p in PACKAGES if p in plan.source.versions)
    yield f"from  {plan.source.name}: {', '.join(have)}"
    yield f"to    {_goal(plan)}"
    yield ""
    for text in plan.forbidden:
        yield f"The current versions already conflict: {text}."
    if plan.stages is None:
        yield "There is no upgrade path that is safe at each step."
        if plan.patched is not None:
            yield from _with_patches(plan.patched)
        elif plan.blocked:
            yield from (f"Why: {reason}." for reason in plan.blocked)
        if not plan.named:
            yield "Fewer failures may apply if you name what you use: --trainer, --strategy."
    elif not plan.stages:
        yield "Nothing to do: the target is already met."
    yield from _steps(plan.stages or ())
    if plan.stages:
        yield ""
        also = ", and with the resolver" if plan.resolved else "; not checked with the resolver"
        yield f"Checked against the advisories and the releases' requirements{also}."
        yield "Steps that were not run are not proven: run a gate before each step."
        if plan.remaining:
            yield f"Already present, and still present at the end: {', '.join(plan.remaining)}."
    if plan.refused:
        yield ""
        yield "Not possible as a single step:"
        for (package, reasons), versions in _by_reason(plan).items():
            yield f"   {package} → {', '.join(versions)}: {'; '.join(reasons)}"


def _steps(stages: Sequence[Stage]) -> Iterator[str]:
    for number, stage in enumerate(stages, 1):
        together = "together, because a single step is not safe: " if len(stage.bumps) > 1 else ""
        yield f"{number}. {together}{', '.join(map(str, stage.bumps))}"
        yield f"   {_proof(stage)}"
        if stage.mends:
            yield f"   fixes: {', '.join(stage.mends)}"
        for failure in stage.patches:
            yield f"   brings {failure}; patch it from here on: trl-compat fix {failure}"


def _with_patches(stages: Sequence[Stage]) -> Iterator[str]:
    yield "There is a path if you apply the patches of the failures that it brings:"
    yield ""
    yield from _steps(stages)
    yield ""


def _proof(stage: Stage) -> str:
    if stage.nearest is None:
        return "not run"
    if not stage.nearest.differs:
        return f"run {stage.nearest.run.run}, exactly these versions: {stage.nearest.run.name}"
    return f"not run; nearest: {stage.nearest.sentence()}"


def _goal(plan: UpgradePlan) -> str:
    return ", ".join(f"{package}{range_}" for package, range_ in plan.goal.items())


def _by_reason(plan: UpgradePlan) -> dict[tuple[str, tuple[str, ...]], list[str]]:
    """What was not taken, the releases that share their reasons together."""
    found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for one in plan.refused:
        new = str(one.bump.new)  # in a reason it would tell apart what is alike
        reasons = tuple(r.removeprefix(f"{one.bump.package} {new} ") for r in one.reasons)
        found.setdefault((one.bump.package, reasons), []).append(new)
    return found


def _data(plan: UpgradePlan) -> dict[str, object]:
    return {
        "schema_version": 1,
        "from": plan.source.name,
        "to": {package: str(range_) for package, range_ in plan.goal.items()},
        "found": plan.stages is not None,
        "steps": _data_of(plan.stages or ()),
        "with_patches": None if plan.patched is None else _data_of(plan.patched),
        "why_not": list(plan.blocked),
        "forbidden": list(plan.forbidden),
        "remaining": list(plan.remaining),
        "resolver_asked": plan.resolved,
        "not_taken": [
            {"package": package, "versions": versions, "reasons": list(reasons)}
            for (package, reasons), versions in _by_reason(plan).items()
        ],
    }


def _data_of(stages: Sequence[Stage]) -> list[dict[str, object]]:
    """An entry for each bump; those of one step have its number."""
    return [
        {
            "step": number,
            "package": bump.package,
            "old": str(bump.old),
            "new": str(bump.new),
            "run": stage.nearest is not None and not stage.nearest.differs,
            "nearest": stage.nearest and stage.nearest.run.name,
            "mends": list(stage.mends),
            "patches": list(stage.patches),
        }
        for number, stage in enumerate(stages, 1)
        for bump in stage.bumps
    ]
