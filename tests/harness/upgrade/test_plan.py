"""The way to a release: as short as can be, safe at each step, with what was refused and why."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from packaging.version import Version

from tests.harness.conftest import ROOT
from trl_compat.errors import BadInput
from trl_compat.matching import nearest_run
from trl_compat.packages import PACKAGES
from trl_compat.shipped import records, releases, requires
from trl_compat.shipped.records import AffectedScope, CompiledAdvisory, Where
from trl_compat.stacks import matrix, sources
from trl_compat.stacks.sources.source import Source
from trl_compat.upgrade import plan as planning
from trl_compat.upgrade.plan import Resolver, UpgradePlan
from trl_compat.upgrade.render import render
from trl_compat.upgrade.safety import Safety
from trl_compat.upgrade.spans import Spans
from trl_compat.upgrade.steps import steps
from trl_compat.upgrade.versions import State
from trl_compat.usage.strategies import conditions_of

KNOWN = (
    "accelerator-init-order-deepspeed",
    "grpo-fsdp-ref-device",
    "online-dpo-ref-none",
    "ppo-zero3-save",
    "zero3-register-hooks-rename",
)
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


def record(name: str, *blocks: AffectedScope, **available: str) -> CompiledAdvisory:
    return CompiledAdvisory(
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


def block(versions: Mapping[str, str], **conditions: str | int) -> AffectedScope:
    return AffectedScope(
        symptom="text",
        exception="AttributeError",
        message="",
        severity="crash-late",
        where=Where(versions, {}),
        conditions={name: [value] for name, value in conditions.items()},
        also_requires="",
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
    assert said == ("saving (if you use the PPO trainer with ZeRO-3)",)
    assert objections(safety(MINE), {"trl": "0.9.6"}, {}) == ("saving",)


def test_a_failure_that_was_there_does_not_unless_it_spreads() -> None:
    assert objections(safety(), {}, {"trl": "0.13.0"}) == ()
    late = {"trl": "0.24.0"}
    spread = objections(safety(), late, {**late, "transformers": "5.0.0"})
    assert spread == ("saving (if you use the PPO trainer)",)
    # Who is hit already loses nothing.
    assert objections(safety(MINE), late, {**late, "transformers": "5.0.0"}) == ()


def test_a_failure_of_what_is_not_used_does_not_matter() -> None:
    assert objections(safety({"trainer": "GRPO"}), {"trl": "0.9.6"}, {}) == ()


def test_a_trainer_that_is_used_may_not_go() -> None:
    assert objections(safety(), {}, {"trl": "1.16.0"}) == ()
    said = objections(safety({"trainer": "PPO"}), {}, {"trl": "1.16.0"})
    assert said == ("trl 1.16.0 no longer has PPO (saving)",)


def test_a_requirement_that_does_not_hold_speaks_against_a_step() -> None:
    required = {"trl": {"1.12.0": {"transformers": ">=4.56", "numpy": "<1"}}}
    said = objections(safety(required=required), {}, {"trl": "1.12.0"})
    assert said == ("trl 1.12.0 requires transformers>=4.56",)


def test_releases_that_nothing_tells_apart_are_one_span() -> None:
    required: requires.Requires = {"trl": {"0.13.0": {"transformers": ">=4.46,<5"}}}
    spans = Spans({"saving": SAVING}, required, releases.known())
    after = {f"{s[0]} {s[-1]}" for s in spans.after("trl", Version("0.12.0"))}
    # The requirement of 0.13.0, the end of the range, and the half-years.
    assert {"0.12.1 0.12.2", "0.13.0 0.13.0", "0.14.0 0.19.0", "1.13.0 1.16.0"} <= after
    cuts = [s[0] for s in spans.after("transformers", Version("4.45.2"))]
    assert {Version("4.46.1"), Version("5.0.0")} <= set(cuts)
    assert next(spans.before("trl", Version("0.12.0")))[0] == Version("0.11.0")


def in_steps(required: requires.Requires, **to: str) -> list[list[str]]:
    start = state(**OLD)
    found = steps(start, {**start, **state(**to)}, safety(required=required))
    assert found is not None
    before, said = start, []
    for after in found[1]:
        said.append(sorted(p for p in after if after[p] != before[p]))
        before = after  # type: ignore[assignment]
    return said


def test_one_package_at_a_time_where_that_is_safe() -> None:
    assert in_steps({}, trl="0.13.0", peft="0.14.0") in ([["peft"], ["trl"]], [["trl"], ["peft"]])


def test_what_is_required_comes_first() -> None:
    required = {"trl": {"0.13.0": {"peft": ">=0.14"}}}
    assert in_steps(required, trl="0.13.0", peft="0.14.0") == [["peft"], ["trl"]]


def test_what_requires_each_other_moves_together() -> None:
    both = {"trl": {"0.12.2": {"peft": "<0.14"}, "0.13.0": {"peft": ">=0.14"}}}
    found = in_steps(both, trl="0.13.0", peft="0.14.0", accelerate="1.2.0")
    assert sorted(found) == [["accelerate"], ["peft", "trl"]]


def some_records() -> dict[str, CompiledAdvisory]:
    """A few of the shipped records: what else becomes known must not change these tests."""
    return {name: records.shipped_record(name) for name in KNOWN}


def plan(
    to: str,
    resolver: Resolver | None = None,
    trainers: tuple[str, ...] = (),
    strategies: tuple[str, ...] = (),
    **changed: str,
) -> UpgradePlan:
    source = Source(name="lock", kind="requirements", versions=OLD | changed)
    named = dict(conditions_of(strategies))
    if trainers:
        named["trainer"] = trainers
    goal = planning.goal_of(to, source)
    return planning.make(source, goal, named, some_records(), nearest_run.shipped(), resolver)


def test_the_plan_goes_by_what_releases_require_and_what_is_known_to_fail() -> None:
    found = plan("trl==1.12.*")
    assert found.stages is not None
    assert "1.12.0" in {str(b.new) for b in found.stages[-1].bumps if b.package == "trl"}
    said = render(found, "text")
    assert "accelerator-init-order-deepspeed (if you use the PPO trainer with DeepSpeed" in said
    assert "transformers → 5.23.0" in said
    assert "trl 0.12.2 requires transformers<4.47.0" in said
    # No order of single bumps: 1.12.0 requires a transformers that 0.12.2 excludes.
    assert "together, because a single step is not safe: trl 0.12.2 → 1.12.0, transformers" in said
    assert "not checked with the resolver" in said
    assert "not run; nearest: " in said


def test_what_is_the_goal_already_takes_no_step() -> None:
    found = plan("trl==0.12.*")
    assert found.stages == ()
    assert "Nothing to do: the target is already met." in render(found, "text")


def test_what_the_resolver_refuses_is_gone_round() -> None:
    first = plan("trl==0.13.*")
    assert first.stages is not None
    assert [str(b) for s in first.stages for b in s.bumps] == ["trl 0.12.2 → 0.13.0"]

    def refuses(asked: State) -> str | None:
        alone = asked["trl"] == Version("0.13.0") and asked["transformers"] == Version("4.46.3")
        return "because" if alone else None

    found = plan("trl==0.13.*", refuses)
    assert found.stages is not None
    assert {b.package for s in found.stages for b in s.bumps} == {"trl", "transformers"}

    none = plan("trl==0.13.*", lambda _: "because")
    assert none.stages is None
    assert "ewer failures may apply if you name what you use" in render(none, "text")
    assert "Why: the resolver refuses: because." in render(none, "text")
    assert json.loads(render(none, "json"))["found"] is False


def test_a_step_to_versions_that_were_run_says_when() -> None:
    found = plan("trl==0.13.*", peft="0.14.0")
    assert "run 2026-" in render(found, "text")
    assert "exactly these versions: trl-0.13.0" in render(found, "text")
    assert json.loads(render(found, "json"))["steps"][0]["run"] is True


def test_no_way_leads_a_user_of_a_trainer_past_its_end() -> None:
    found = plan("trl>=1.16", trainers=("PPO",), strategies=("zero3",))
    assert found.stages is None
    assert "ewer failures may apply" not in render(found, "text")
    assert "Why: trl 1.16.0 no longer has PPO (ppo-zero3-save)." in render(found, "text")


def test_a_trainer_that_a_release_has_is_not_gone_because_a_failure_cannot_occur_there() -> None:
    found = plan("trl==0.16.*", trainers=("GRPO",), strategies=("zero3",), trl="0.14.0")
    assert "no longer has GRPO" not in render(found, "text")


@pytest.mark.parametrize(
    ("to", "said"),
    [
        ("trl==", "not a requirement"),
        ("numpy==2.0", "a plan can be made for torch, trl"),
        ("trl", "give a version range"),
        ("trl[vllm]==1.12.0", "give a version range"),
        ("trl==77", "trl has no such release"),
        ("trl==0.11.*", "a plan goes forward, and trl==0.11.* only matches releases before 0.12.2"),
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
        planning.make(source, goal, {}, records.shipped(), nearest_run.shipped(), None)


def test_the_list_of_requirements_covers_every_release() -> None:
    known, listed = requires.known(), releases.known()
    for package in PACKAGES:
        missing = {str(version) for version in listed.final(package)} - known[package].keys()
        assert not missing, f"{package} {missing}; run: trl-compat refresh"
        assert all(listed.exists(package, Version(version)) for version in known[package])


def test_every_stack_of_the_matrix_has_what_its_releases_require() -> None:
    for name, stack in matrix.load(ROOT / "matrix.yaml").stacks.items():
        have = {p: v for p in PACKAGES if (v := stack.version(p)) is not None}
        assert Safety({}, requires.known(), SOURCE, {}).unmet(have) == (), name


def test_requirements_are_read_as_metadata_has_them() -> None:
    lines = [
        "transformers>=4.56.1",
        'transformers!=4.57.0; python_version < "3.10"',
        "numpy>=1.2",
        'deepspeed>=0.14.4; extra == "deepspeed"',
        'deepspeed<=0.14.0; extra == "deepspeed"',
        'transformers!=5.1.0; extra == "deepspeed"',
        'peft==0.12.0; extra == "test"',
        "not a requirement",
    ]
    assert requires.of_release(lines, ">=3.9") == {
        "deepspeed": ">=0.14.4",
        "python": ">=3.9",
        "transformers": "!=4.57.0,>=4.56.1",
    }


def test_no_state_of_a_plan_is_forbidden_by_metadata() -> None:
    seen = 0
    for trl in ("0.9.6", "0.11.4", "0.12.0", "0.12.2", "0.15.2"):
        for to in ("trl==0.16.*", "trl==1.12.*", "transformers>=5"):
            found = plan(to, trl=trl)
            state_now = state(**{**OLD, "trl": trl})
            for stage in found.stages or found.patched or ():
                state_now |= {bump.package: bump.new for bump in stage.bumps}
                assert safety(required=requires.known()).unmet(state_now) == ()
                seen += 1
    assert seen > 20


def test_what_is_forbidden_already_is_said() -> None:
    found = plan("trl==0.13.*", transformers="4.48.0")
    said = render(found, "text")
    assert "The current versions already conflict: trl 0.12.2 requires transformers<4.47.0." in said
    assert found.stages is not None


def test_a_package_is_not_moved_far_out_of_its_time() -> None:
    """transformers 5.23.0, of 2026, is no step on the way of TRL 0.12.0, of 2024."""
    found = plan("trl==1.12.*", trl="0.12.0")
    trl = Version("0.12.0")
    for stage in found.stages or ():
        for bump in stage.bumps:
            trl = bump.new if bump.package == "trl" else trl
        assert trl != Version("0.12.0") or not any(
            str(b.new).startswith("5.") for b in stage.bumps if b.package == "transformers"
        )
    said = render(found, "text")
    assert "was released more than a year after trl 0.12.0" in said


def test_without_a_safe_way_the_one_with_patches_is_named() -> None:
    found = plan("trl==0.12.*", trainers=("PPO",), strategies=("zero3",), trl="0.9.6")
    assert found.stages is None
    said = render(found, "text")
    assert "There is a path if you apply the patches of the failures that it brings:" in said
    assert "brings ppo-zero3-save; patch it from here on: trl-compat fix ppo-zero3-save" in said
    assert json.loads(render(found, "json"))["with_patches"][0]["patches"] == ["ppo-zero3-save"]


def test_what_no_patch_mends_is_named_too() -> None:
    mask = record("no-patch", block({"trl": ">=0.13.0"}))
    source = Source(name="lock", kind="requirements", versions=OLD)
    goal = planning.goal_of("trl==0.13.*", source)
    found = planning.make(source, goal, {}, {"no-patch": mask}, (), None)
    assert (found.stages, found.patched) == (None, None)
    assert "Why: the nearest target would bring no-patch." in render(found, "text")
