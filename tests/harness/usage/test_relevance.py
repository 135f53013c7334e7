"""Which cells a gate runs, by what the user says to use; on the project's own advisories."""

from __future__ import annotations

import pytest

from tests.harness.conftest import ROOT
from trl_compat import advisories
from trl_compat.advisories import Catalogue
from trl_compat.errors import BadInput
from trl_compat.stacks import matrix
from trl_compat.usage.conditions import UsageBuilder
from trl_compat.usage.relevance import Usage, blocks, lacking, relevant_variants, usage
from trl_compat.usage.strategies import STRATEGIES, conditions_of


@pytest.fixture(scope="module")
def shipped() -> Catalogue:
    return advisories.load(ROOT / "advisories", ROOT / "tests" / "reproductions")


def variants(
    shipped: Catalogue, failure: str, *trainers: str, on: tuple[str, ...] = ()
) -> set[str]:
    wanted = usage(shipped, trainers, on)
    return set(relevant_variants(shipped.reproduction(failure), wanted))


def test_who_says_nothing_gets_the_default_variants(shipped: Catalogue) -> None:
    assert variants(shipped, "ppo-zero3-save") == {"zero3", "zero2"}


def test_a_trainer_excludes_the_others_but_not_what_concerns_all(shipped: Catalogue) -> None:
    assert not variants(shipped, "ppo-zero3-save", "GRPO")
    # The helper that every trainer generates with has no trainer of its own.
    assert "zero3-helper" in variants(shipped, "grpo-zero3-optimizer", "PPO")
    assert "zero3-train" not in variants(shipped, "grpo-zero3-optimizer", "PPO")


def test_a_trainer_that_no_default_variant_has_gets_its_own(shipped: Catalogue) -> None:
    assert variants(shipped, "online-dpo-ref-none", "XPO") == {"xpo-zero2"}
    assert variants(shipped, "online-dpo-ref-none", "Online DPO") == {"zero2", "zero3"}


def test_a_strategy_narrows(shipped: Catalogue) -> None:
    assert variants(shipped, "ppo-zero3-save", on=("zero2",)) == {"zero2"}
    assert variants(shipped, "ppo-zero3-save", on=("deepspeed",)) == {"zero2", "zero3"}
    assert not variants(shipped, "ppo-zero3-save", on=("fsdp",))
    assert variants(shipped, "grpo-fsdp-ref-device", on=("fsdp2",)) == {"fsdp2-sharding"}


@pytest.mark.parametrize("name", ["online-dpo", "Online DPO", "OnlineDPOTrainer", "online_dpo"])
def test_a_trainer_may_be_written_as_people_write_it(shipped: Catalogue, name: str) -> None:
    assert usage(shipped, [name], []) == Usage(("Online DPO",))


def test_an_unknown_trainer_is_never_passed_over(shipped: Catalogue) -> None:
    with pytest.raises(BadInput, match="no TRL release has a trainer 'SFTT'; did you mean 'SFT'"):
        usage(shipped, ["SFTT"], [])
    with pytest.raises(
        BadInput, match=r"--trainer DDPO: no known failure concerns it; available: .*GRPO"
    ):
        usage(shipped, ["GRPO,DDPO"], [])
    both = usage(shipped, ["GRPO,PPO"], [])
    assert both == usage(shipped, ["grpo ppo"], []) == usage(shipped, ["GRPOTrainer", "PPO"], [])
    assert both.trainers == ("GRPO", "PPO")


def test_only_a_named_trainer_counts_as_in_use(shipped: Catalogue) -> None:
    conditions = shipped.reproduction("ppo-zero3-save").conditions_of("zero3")
    assert usage(shipped, ["PPO"], []).names(conditions)
    assert usage(shipped, ["PPO"], ["zero3"]).names(conditions)
    assert not usage(shipped, ["PPO"], ["fsdp"]).names(conditions)
    assert not usage(shipped, [], ["zero3"]).names(conditions)


def test_a_stack_without_deepspeed_runs_nothing_that_needs_it(shipped: Catalogue) -> None:
    stack = matrix.load(ROOT / "matrix.yaml").stacks["trl-0.12.2"]
    without = stack.model_copy(update={"deepspeed": "", "peft": ""})
    assert lacking(without, {"strategy": "deepspeed", "peft": True}) == "DeepSpeed"
    assert lacking(without, {"strategy": "ddp", "peft": True}) == "PEFT"
    assert not lacking(without, {"strategy": "fsdp"})
    stacks = {"with": stack, "without": without}
    found = list(blocks(shipped, shipped.failures, Usage(), ("tiny-qwen2",), stacks))
    assert {block.failures for block in found if block.stacks == ("without",)} == {
        ("grpo-fsdp-ref-device",)
    }
    assert {f for block in found if block.stacks == ("with",) for f in block.failures} == set(
        shipped.failures
    )


def test_the_conditions_of_several_strategies_are_what_they_share() -> None:
    assert conditions_of(["zero2", "zero3"]) == {"strategy": ("deepspeed",), "zero_stage": (2, 3)}
    both = {"strategy": ("deepspeed", "fsdp"), "zero_stage": (3,)}
    assert conditions_of(["zero3", "fsdp"]) == both
    assert conditions_of(["zero3", "fsdp2"]) == {**both, "fsdp_version": (2,)}
    assert conditions_of(["zero3,ddp"]) == {"strategy": ("deepspeed", "ddp"), "zero_stage": (3,)}
    assert conditions_of([]) == {}
    with pytest.raises(BadInput, match="unknown strategy 'zero4'"):
        conditions_of(["zero4"])
    assert set(STRATEGIES) == {
        *("ddp", "deepspeed", "fsdp", "zero1", "zero2", "zero3", "fsdp1", "fsdp2", "none")
    }


def test_the_words_that_reports_print_for_a_strategy_are_read_as_its_name() -> None:
    assert conditions_of(["ZeRO-3,DDP"]) == conditions_of(["zero3", "ddp"])
    assert conditions_of(["DeepSpeed"]) == conditions_of(["deepspeed"])


def test_a_gate_and_a_plan_take_every_strategy_that_doctor_takes(shipped: Catalogue) -> None:
    for name, meant in STRATEGIES.items():
        assert usage(shipped, [], [name]).strategies == (name,)
        assert conditions_of([name]) == {one: (value,) for one, value in meant.items()}
        doctor = UsageBuilder()
        doctor.say("strategy", [name], "--strategy")
        assert doctor.values == conditions_of([name])
