"""A plan as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator

from trl_compat.packages import PACKAGES
from trl_compat.upgrade.plan import Plan, Stage


def render(plan: Plan, form: str) -> str:
    """The plan in a format, with a final newline."""
    if form == "json":
        return json.dumps(_data(plan), indent=1, ensure_ascii=False) + "\n"
    return "\n".join(_lines(plan)) + "\n"


def _lines(plan: Plan) -> Iterator[str]:
    have = (f"{p} {plan.source.versions[p]}" for p in PACKAGES if p in plan.source.versions)
    yield f"from  {plan.source.name}: {', '.join(have)}"
    yield f"to    {_goal(plan)}"
    yield ""
    if plan.stages is None:
        yield "There is no sequence of bumps that is safe at each step."
    elif not plan.stages:
        yield "It is so already; nothing to do."
    for number, stage in enumerate(plan.stages or (), 1):
        yield f"{number}. {stage.bump}"
        yield f"   {_proof(stage)}"
        if stage.mends:
            yield f"   no longer applies after it: {', '.join(stage.mends)}"
    if plan.stages:
        yield ""
        also = ", and with the resolver" if plan.resolved else "; the resolver was not asked"
        yield f"Checked with the advisories and with what releases require of each other{also}."
        yield "What was not run is not proven: run a gate before each step."
        if plan.remaining:
            yield f"Not new, and still there at the end: {', '.join(plan.remaining)}."
    if plan.refused:
        yield ""
        yield "Not taken:"
        for (package, reasons), versions in _by_reason(plan).items():
            yield f"   {package} → {', '.join(versions)}: {'; '.join(reasons)}"


def _proof(stage: Stage) -> str:
    if stage.nearest is None:
        return "not run"
    if not stage.nearest.differs:
        return f"run {stage.nearest.run.run}, these very versions: {stage.nearest.run.name}"
    return f"not run; nearest: {stage.nearest.sentence()}"


def _goal(plan: Plan) -> str:
    return ", ".join(f"{package}{range_}" for package, range_ in plan.goal.items())


def _by_reason(plan: Plan) -> dict[tuple[str, tuple[str, ...]], list[str]]:
    """What was not taken, the releases that share their reasons together."""
    found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    told: dict[tuple[str, str], set[str]] = {}
    for one in plan.refused:
        # Later on the way the same bump may be refused again for a part of the same reasons.
        known = told.setdefault((one.bump.package, str(one.bump.new)), set())
        if known.issuperset(one.reasons):
            continue
        known.update(one.reasons)
        versions = found.setdefault((one.bump.package, one.reasons), [])
        versions.append(str(one.bump.new))
    return found


def _data(plan: Plan) -> dict[str, object]:
    return {
        "schema_version": 1,
        "from": plan.source.name,
        "to": {package: str(range_) for package, range_ in plan.goal.items()},
        "found": plan.stages is not None,
        "steps": [
            {
                "package": stage.bump.package,
                "old": str(stage.bump.old),
                "new": str(stage.bump.new),
                "run": stage.nearest is not None and not stage.nearest.differs,
                "nearest": stage.nearest and stage.nearest.run.name,
                "mends": list(stage.mends),
            }
            for stage in plan.stages or ()
        ],
        "remaining": list(plan.remaining),
        "resolver_asked": plan.resolved,
        "not_taken": [
            {"package": package, "versions": versions, "reasons": list(reasons)}
            for (package, reasons), versions in _by_reason(plan).items()
        ],
    }
