"""The way to a release: as short as can be, safe at each step, with what was refused and why."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from trl_compat import matrix, releases, requires, sources
from trl_compat.doctor import evidence, records
from trl_compat.doctor.records import Block, Record, Where
from trl_compat.errors import BadInput
from trl_compat.packages import PACKAGES
from trl_compat.sources.source import Source
from trl_compat.strategies import conditions_of
from trl_compat.upgrade import plan as planning
from trl_compat.upgrade.plan import Plan, Resolver
from trl_compat.upgrade.render import render
from trl_compat.upgrade.safety import Safety, worth_trying
from trl_compat.upgrade.search import Found, Judge, Versions, search

from .conftest import ROOT

OLD = {
    "torch": "2.4.1",
    "trl": "0.12.2",
    "transformers": "4.46.3",
    "deepspeed": "0.15.2",
    "accelerate": "0.34.2",
    "peft": "0.13.2",
}


def state(**versions: str) -> dict[str, Version]:
    return {package: Version(version) for package, version in versions.items()}


def find(judge: Judge, goal: Versions | None = None) -> Found:
    wanted = goal or state(a="2", b="2")
    known = {"a": [Version("2"), Version("1")], "b": [Version("2"), Version("1")]}
    return search(state(a="0", b="0"), lambda s: s == wanted, known, judge)


def bumps(found: Found) -> list[str]:
    assert found.steps is not None
    return [str(step.bump) for step in found.steps]


def test_the_shortest_way_is_found() -> None:
    assert bumps(find(lambda *_: ())) == ["a 0 → 2", "b 0 → 2"]


def test_a_way_round_is_found_where_the_direct_one_is_refused() -> None:
    def a_needs_b(before: Versions, after: Versions) -> tuple[str, ...]:
        return ("a 2 requires b 1",) if after["a"] == Version("2") > before["b"] else ()

    found = find(a_needs_b)
    assert bumps(found) == ["b 0 → 2", "a 0 → 2"]
    assert found.steps is not None
    assert [str(r.bump) for r in found.steps[0].refused] == ["a 0 → 2"]


def test_a_package_may_be_bumped_twice_where_that_is_the_only_way() -> None:
    def in_small_steps(before: Versions, after: Versions) -> tuple[str, ...]:
        leap = any(after[p].major - before[p].major > 1 for p in before)
        return ("too far",) if leap else ()

    assert len(bumps(find(in_small_steps))) == 4


def test_without_a_way_the_refused_steps_to_the_goal_are_told() -> None:
    def never(_: Versions, after: Versions) -> tuple[str, ...]:
        return ("saving",) if after["a"] == Version("2") else ()

    found = find(never)
    assert found.steps is None
    assert {(str(r.bump), r.reasons) for r in found.refused} >= {("a 1 → 2", ("saving",))}


def test_what_is_the_goal_already_takes_no_step() -> None:
    assert find(lambda *_: (), goal=state(a="0", b="0")) == Found(())


def record(name: str, *blocks: Block, **available: str) -> Record:
    return Record(
        id=name,
        title=name,
        summary=name,
        severity="crash-late",
        advice="",
        available=available,
        blocks=blocks,
        patches=(),
        avoid=(),
        wrong_fixes=(),
        references=(),
    )


def block(versions: Mapping[str, str], **conditions: str | int) -> Block:
    return Block(
        symptom="text",
        exception="AttributeError",
        message="",
        severity="crash-late",
        where=Where(versions, {}),
        conditions={name: [value] for name, value in conditions.items()},
        provided="",
        absent=(),
        hidden=(),
    )


SAVING = record(
    "saving",
    block({"trl": ">=0.11,<1.13", "transformers": "<5"}, trainer="PPO", zero_stage=3),
    block({"trl": ">=0.11,<1.13", "transformers": ">=5"}, trainer="PPO"),
    trl="<1.13",
)
MINE: dict[str, str | int] = {"trainer": "PPO", "strategy": "deepspeed", "zero_stage": 3}
SOURCE = Source(name="lock", kind="requirements", versions=OLD)


def safety(
    named: dict[str, str | int] | None = None, required: requires.Requires | None = None
) -> Safety:
    values = {name: (value,) for name, value in (named or {}).items()}
    return Safety({"saving": SAVING}, required or {}, SOURCE, values)


def objections(judge: Safety, before: dict[str, str], after: dict[str, str]) -> tuple[str, ...]:
    return judge.objections(state(**(OLD | before)), state(**(OLD | after)))


def test_a_failure_that_was_not_there_speaks_against_a_step() -> None:
    said = objections(safety(), {"trl": "0.9.6"}, {"trl": "0.12.2"})
    assert said == ("saving (if you use the PPO trainer with DeepSpeed ZeRO stage 3)",)
    assert objections(safety(MINE), {"trl": "0.9.6"}, {}) == ("saving",)


def test_a_failure_that_was_there_does_not_unless_it_spreads() -> None:
    assert objections(safety(), {}, {"trl": "0.13.0"}) == ()
    spread = objections(safety(), {}, {"transformers": "5.0.0"})
    assert spread == ("saving (if you use the PPO trainer)",)
    # Who is hit already loses nothing.
    assert objections(safety(MINE), {}, {"transformers": "5.0.0"}) == ()


def test_a_failure_of_what_is_not_used_does_not_matter() -> None:
    assert objections(safety({"trainer": "GRPO"}), {"trl": "0.9.6"}, {}) == ()


def test_a_trainer_that_is_used_may_not_go() -> None:
    assert objections(safety(), {}, {"trl": "1.16.0"}) == ()
    said = objections(safety({"trainer": "PPO"}), {}, {"trl": "1.16.0"})
    assert said == ("trl 1.16.0 has no PPO any more (saving)",)


def test_a_requirement_that_does_not_hold_speaks_against_a_step() -> None:
    required = {"trl": {"1.12.0": {"transformers": ">=4.56", "numpy": "<1"}}}
    said = objections(safety(required=required), {}, {"trl": "1.12.0"})
    assert said == ("trl 1.12.0 requires transformers>=4.56",)


def test_releases_that_nothing_tells_apart_are_tried_once() -> None:
    required: requires.Requires = {
        "trl": {v: {} for v in ("0.12.2", "0.12.9", "0.14.0", "1.12.0", "1.13.0", "1.14.0")}
    }
    start = state(trl="0.12.2", peft="0.13.2")
    tried = worth_trying({"saving": SAVING}, required, start, {"trl": SpecifierSet(">=0.14")})
    assert tried["trl"] == [Version("1.14.0"), Version("1.12.0")]
    assert tried["peft"] == []


def plan(
    to: str,
    resolver: Resolver | None = None,
    trainers: tuple[str, ...] = (),
    strategies: tuple[str, ...] = (),
    **changed: str,
) -> Plan:
    source = Source(name="lock", kind="requirements", versions=OLD | changed)
    named = dict(conditions_of(strategies))
    if trainers:
        named["trainer"] = trainers
    goal = planning.goal_of(to, source)
    shipped = records.shipped(), evidence.shipped()
    return planning.make(source, goal, named, *shipped, resolver)


def test_the_plan_goes_by_what_releases_require_and_what_is_known_to_fail() -> None:
    found = plan("trl==1.12.*")
    assert found.stages is not None
    assert str(found.stages[-1].bump).endswith("→ 1.12.0")
    said = render(found, "text")
    assert "accelerator-init-order-deepspeed (if you use the PPO trainer with DeepSpeed)" in said
    assert "transformers → 5.23.0, 4.57.6" in said
    assert "trl 0.12.2 requires transformers<4.47.0" in said
    assert "the resolver was not asked" in said
    assert "not run; nearest: " in said


def test_what_the_resolver_refuses_is_gone_round() -> None:
    first = plan("trl==0.13.*")
    assert first.stages is not None
    assert [str(s.bump) for s in first.stages] == ["trl 0.12.2 → 0.13.0"]

    def refuses(asked: Versions) -> str | None:
        alone = asked["trl"] == Version("0.13.0") and asked["transformers"] == Version("4.46.3")
        return "because" if alone else None

    # 0.12.2 takes no later transformers, so nothing is left.
    found = plan("trl==0.13.*", refuses)
    assert found.stages is None
    assert "trl → 0.13.0: the resolver refuses: because" in render(found, "text")
    assert json.loads(render(found, "json"))["found"] is False


def test_a_step_to_versions_that_were_run_says_when() -> None:
    found = plan("trl==0.13.*", peft="0.14.0")
    assert "run 2026-" in render(found, "text")
    assert "these very versions: trl-0.13.0" in render(found, "text")
    assert json.loads(render(found, "json"))["steps"][0]["run"] is True


def test_no_way_leads_a_user_of_a_trainer_past_its_end() -> None:
    found = plan("trl>=1.16", trainers=("PPO",), strategies=("zero3",))
    assert found.stages is None
    assert "trl 1.16.0 has no PPO any more (ppo-zero3-save)" in render(found, "text")


@pytest.mark.parametrize(
    ("to", "said"),
    [
        ("trl==", "not a requirement"),
        ("numpy==2.0", "a plan can be made for torch, trl"),
        ("trl", "give a range of versions"),
        ("trl[vllm]==1.12.0", "give a range of versions"),
        ("trl==77", "trl has no such release"),
        ("trl==1.5.0", "is not on record; it is for 0.9.6"),
        ("", "names no package"),
    ],
)
def test_a_goal_that_means_nothing_is_refused(to: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        plan(to)


def test_a_lock_that_leaves_something_open_has_no_plan(tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text("trl==0.12.2\ntransformers>=4.46\n")
    source = sources.read(path)
    goal = planning.goal_of("trl==0.13.*", source)
    with pytest.raises(BadInput, match="transformers not pinned"):
        planning.make(source, goal, {}, records.shipped(), evidence.shipped(), None)


def test_the_list_of_requirements_covers_the_releases_of_the_matrix() -> None:
    known = requires.known()
    for name, stack in matrix.load(ROOT / "matrix.yaml").stacks.items():
        for package in PACKAGES:
            version = stack.version(package)
            again = f"{name}: {package} {version}; run: python -m trl_compat.requires"
            assert version is None or str(version) in known[package], again
    for package, versions in known.items():
        assert all(releases.known().exists(package, Version(v)) for v in versions)
