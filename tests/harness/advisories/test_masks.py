"""Failures that mask others: each is known by what was seen of it and by nothing that resembles it.

``recorded_errors/<id>.json`` holds the errors of cells that were really run, as the harness
recorded them, with the stack that raised them (paths in messages are cut down to
``package/module.py``, as those of frames are).  An error of a trainer that no reproduction has yet
stands with the ``conditions`` under which it was raised, in place of a cell's failure and variant.
A symptom of which no error was recorded is a guess, and refused here.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import pytest

from tests.harness.conftest import ROOT
from trl_compat import advisories
from trl_compat.advisories import Advisory
from trl_compat.cells.expectations import Expectation, expect
from trl_compat.cells.outcomes import Outcome
from trl_compat.stacks.matrix import Stack

FOLDER = ROOT / "tests" / "harness" / "recorded_errors"
OWN = advisories.load(ROOT / "advisories", ROOT / "tests" / "reproductions")


@dataclass(frozen=True)
class Recorded:
    """An error that a stack raised in a cell, and the mask and symptom that it was."""

    mask: str
    symptom: str
    stack: Stack
    advisory: Advisory
    variant: str
    error: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.mask}-{self.symptom}-{self.advisory.id}"

    @property
    def conditions(self) -> dict[str, Any]:
        """Under which it was raised."""
        assert self.advisory.reproduction is not None
        return dict(self.advisory.reproduction.conditions_of(self.variant))

    def changed(self, **parts: Any) -> dict[str, Any]:
        """The error with some parts replaced."""
        return {**self.error, **parts}

    def expected_with(self, **versions: str) -> Expectation:
        """What the advisories predict for the cell in the stack with other versions."""
        mine = {name: value for name, value in self.stack.model_dump().items() if value}
        stack = Stack.model_validate({**mine, **versions})
        device = str(self.conditions.get("device", "cpu"))
        return expect(stack, self.advisory, self.variant, OWN.masks, device=device)


def anything_under(conditions: dict[str, Any]) -> Advisory:
    """A failure of no release, met by whoever does what the conditions say."""
    return Advisory.model_validate(
        {
            "id": re.sub(r"[^a-z0-9]+", "-", str(conditions.get("trainer", "any")).lower()),
            "title": "a run of one's own",
            "summary": "",
            "severity": "crash-at-start",
            "cause": "",
            "references": (),
            "symptoms": {},
            "affected": (),
            "reproduction": {"module": "none", "variants": {"seen": conditions}},
        }
    )


def recorded() -> list[Recorded]:
    return [
        Recorded(
            mask=path.stem,
            symptom=entry["symptom"],
            # Not every run had every package: such a stack is given as one with a lock is.
            stack=Stack.model_validate({"lock": "its.lock", **entry["stack"]}),
            advisory=(
                anything_under(entry["conditions"])
                if "conditions" in entry
                else OWN[entry["failure"]]
            ),
            variant=entry.get("variant", "seen"),
            error=entry["error"],
        )
        for path in sorted(FOLDER.glob("*.json"))
        for entry in json.loads(path.read_text(encoding="utf-8"))
    ]


RECORDED = recorded()
each = pytest.mark.parametrize("seen", RECORDED, ids=str)


def who(error: dict[str, Any]) -> list[tuple[str, str]]:
    """Every mask that takes the error for its own, with the symptom."""
    return [(mask.id, name) for mask in OWN.masks if (name := mask.symptom_of(error))]


def test_every_symptom_of_every_mask_was_seen() -> None:
    described = {(mask.id, name) for mask in OWN.masks for name in mask.symptoms}
    assert described == {(seen.mask, seen.symptom) for seen in RECORDED}


def test_every_mask_says_when_it_stops_a_scenario() -> None:
    assert [mask.id for mask in OWN.masks if mask.moment is None] == []


def test_of_two_masks_the_earlier_one_is_expected() -> None:
    """TRL 0.16.1, transformers 4.52.4: a model cannot be made on torch 2.4, a sampler on 2.6."""
    seen = next(seen for seen in RECORDED if seen.mask == "get-train-sampler-dataset-arg")
    assert seen.expected_with(torch="2.4.1").masked_by == "tf452-parallel-styles-torch24"
    assert seen.expected_with(accelerate="1.2.1").masked_by == "get-train-sampler-dataset-arg"


@each
def test_a_recorded_error_is_its_mask_and_no_other(seen: Recorded) -> None:
    assert who(seen.error) == [(seen.mask, seen.symptom)]


@each
def test_no_failure_that_is_reproduced_takes_it_for_its_own(seen: Recorded) -> None:
    meets = [
        f for f in OWN.failures if seen.conditions.get("trainer") in (None, *trainers_of(OWN[f]))
    ]
    assert [f for f in meets if OWN[f].symptom_of(seen.error)] == []


def trainers_of(advisory: Advisory) -> set[object]:
    """Whose errors the cells of a failure can end in."""
    assert advisory.reproduction is not None
    variants = advisory.reproduction.variants
    return {advisory.reproduction.conditions_of(variant).get("trainer") for variant in variants}


@each
def test_the_stack_that_raised_it_is_expected_to(seen: Recorded) -> None:
    expected = seen.expected_with()
    assert (expected.outcome, expected.masked_by) == (Outcome.MASKED, seen.mask)


@each
def test_another_exception_with_the_same_text_is_not_it(seen: Recorded) -> None:
    assert who(seen.changed(exception="NameError")) == []


@each
def test_another_text_from_the_same_place_is_not_it(seen: Recorded) -> None:
    assert who(seen.changed(message="out of memory")) == []


@each
def test_the_same_text_from_another_place_is_not_it(seen: Recorded) -> None:
    assert who(seen.changed(where="datasets/arrow_dataset.py:map")) == []


@pytest.mark.parametrize(
    "seen", [s for s in RECORDED if OWN[s.mask].symptoms[s.symptom].through], ids=str
)
def test_the_same_place_reached_by_another_way_is_not_it(seen: Recorded) -> None:
    elsewhere = {"file": "somebody/script.py", "function": "main", "line": 1}
    assert who(seen.changed(frames=[elsewhere])) == []


# Messages that share most of their words with a mask's, from the same place.
NEAR: dict[str, tuple[str, ...]] = {
    "ds-cpu-needs-ipex": (
        "XPU_Accelerator requires intel_extension_for_deepspeed, which is not installed on this "
        "system.",
    ),
    "ds-elastic-agent-import-torch24": (
        "cannot import name '_get_socket' from 'torch.distributed.elastic.agent.server.api'",
        "cannot import name 'logger' from 'torch.distributed.elastic.agent.server.api'",
    ),
    "get-train-sampler-dataset-arg": (
        "SFTTrainer._get_train_sampler() takes 1 positional argument but 2 were given",
        "GRPOTrainer._get_train_sampler() takes 2 positional arguments but 3 were given",
    ),
    "odpo-maybe-log-learning-rate": (
        "OnlineDPOTrainer._maybe_log_save_evaluate() got an unexpected keyword argument 'metrics'",
        "OnlineDPOTrainer._maybe_log_save_evaluate() takes 8 positional arguments but 9 were given",
    ),
    "peft-encoderdecodercache-old-tf": (
        "Failed to import transformers.trainer because of the following error (look up to see its "
        "traceback):\ncannot import name 'HybridCache' from 'transformers'",
    ),
    "peft-hybridcache-tf5": (
        "Failed to import trl.trainer.grpo_trainer because of the following error (look up to see "
        "its traceback):\ncannot import name 'EncoderDecoderCache' from 'transformers'",
    ),
    "ppo-optimizer-cls-and-kwargs": (
        "'GRPOTrainer' object has no attribute 'optimizer_cls_and_kwargs'",
        "'PPOv2Trainer' object has no attribute 'optimizer'",
    ),
    "tf452-parallel-styles-torch24": ("argument of type 'int' is not iterable",),
    "tf510-deepspeed-engine-none": (
        "'NoneType' object has no attribute 'step'",
        "engine: no DeepSpeed engine but a DistributedDataParallel",
    ),
    "trl-fsdpmodule-torch25": (
        "cannot import name 'FSDPModule' from 'torch.distributed._composable.fsdp'",
    ),
    "trl-optional-deps-truthy-tf53": (
        "Failed to import transformers.trainer because of the following error (look up to see its "
        "traceback):\nNo module named 'weave'",
        "Failed to import trl.trainer.grpo_trainer because of the following error (look up to see "
        "its traceback):\ncannot import name 'weave' from 'trl'",
        # met with TRL 0.11.4, whose undeclared rich came with earlier releases of another package
        "Failed to import trl.trainer.ppov2_trainer because of the following error (look up to see "
        "its traceback):\nNo module named 'rich'",
    ),
    "trl-triton-setuptools-torch26": ("No module named 'setuptools_scm'",),
    "trl-warnings-issued-tf51": ("'Qwen2ForCausalLM' object has no attribute 'warnings'",),
    "unwrap-model-keep-torch-compile": (
        "Accelerator.unwrap_model() got an unexpected keyword argument 'keep_fp32_wrapper'",
    ),
    "zero3-classifier-head-tf520": (
        "The size of tensor a (4) must match the size of tensor b (640) at non-singleton "
        "dimension 1",
    ),
    "zero3-classifiers-empty-tf454": ("loaded-weights: policy: nothing held",),
    "zero-no-sync-grad-accum": (
        "no_sync context manager is incompatible with gradient partitioning logic of ZeRO stage 1",
    ),
}


@each
def test_a_text_that_resembles_it_is_not_it(seen: Recorded) -> None:
    for message in NEAR.get(seen.mask, ()):
        assert seen.mask not in dict(who(seen.changed(message=message)))


# Per mask, releases put into the first stack on record: just inside its ranges, and just outside.
EDGES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "accelerator-init-order-deepspeed": (
        ("accelerate==1.0.0", "accelerate==1.8.1"),
        ("accelerate==0.34.2", "accelerate==1.9.0"),
    ),
    "ds-cpu-needs-ipex": (("deepspeed==0.14.0",), ("deepspeed==0.14.1",)),
    "ds-elastic-agent-import-torch24": (
        ("deepspeed==0.14.1", "deepspeed==0.14.3", "torch==2.15.0"),
        ("deepspeed==0.14.4", "torch==2.3.1"),
    ),
    "fsdp2-ignored-params-torch26": (
        ("trl==0.29.0", "trl==1.13.0"),
        ("trl==0.28.0", "trl==1.14.0", "torch==2.7.0"),
    ),
    "get-train-sampler-dataset-arg": (
        ("trl==0.15.0", "transformers==4.52.1", "transformers==4.57.6"),
        ("trl==0.14.0", "trl==0.17.0", "transformers==4.51.3"),
    ),
    "odpo-maybe-log-learning-rate": (
        ("transformers==4.51.0",),
        ("trl==0.12.2", "trl==0.16.1", "transformers==4.50.3", "torch==2.10.0"),
    ),
    "peft-encoderdecodercache-old-tf": (
        ("peft==0.15.2", "transformers==4.42.4"),
        ("peft==0.13.2", "transformers==4.43.0"),
    ),
    "peft-hybridcache-tf5": (
        ("peft==0.16.0", "transformers==5.2.0"),
        ("peft==0.15.2", "peft==0.18.0", "transformers==4.57.6", "trl==0.27.0"),
    ),
    "ppo-optimizer-cls-and-kwargs": (
        ("trl==0.9.6", "transformers==4.47.0"),
        ("trl==0.12.0", "transformers==4.46.3"),
    ),
    "tf452-parallel-styles-torch24": (
        ("transformers==4.52.3", "torch==2.3.1"),
        ("transformers==4.52.1", "transformers==4.53.0", "torch==2.5.1", "torch==2.2.2"),
    ),
    "tf510-deepspeed-engine-none": (
        ("trl==1.16.0",),
        ("transformers==5.0.0", "transformers==5.2.0"),
    ),
    "trl-fsdpmodule-torch25": (
        ("trl==0.29.0", "trl==1.13.0", "torch==2.5.1"),
        ("trl==0.28.0", "trl==1.14.0", "torch==2.6.0"),
    ),
    "trl-optional-deps-truthy-tf53": (
        ("trl==0.14.0", "transformers==5.23.0"),
        ("trl==0.29.0", "transformers==5.2.0"),
    ),
    "trl-triton-setuptools-torch26": (
        ("torch==2.4.1",),
        ("trl==1.15.0", "torch==2.10.0", "python==3.12"),
    ),
    "trl-warnings-issued-tf51": (
        ("trl==0.14.0", "trl==0.27.1", "transformers==5.1.0"),
        ("trl==0.27.2", "trl==0.28.0", "transformers==5.0.0"),
    ),
    "unwrap-model-keep-torch-compile": (
        ("accelerate==0.34.2", "transformers==4.52.1", "trl==0.17.0"),
        ("accelerate==1.3.0", "transformers==4.51.3", "trl==0.16.1"),
    ),
    "zero3-classifier-head-tf520": (
        ("trl==0.28.0",),
        ("transformers==5.1.0", "transformers==5.16.1", "transformers==4.57.6"),
    ),
    "zero3-classifiers-empty-tf454": (
        ("deepspeed==0.15.1", "deepspeed==0.17.5", "transformers==4.54.0"),
        ("deepspeed==0.14.4", "deepspeed==0.17.6", "transformers==4.53.3"),
    ),
    "zero-no-sync-grad-accum": (
        ("deepspeed==0.16.0",),
        ("deepspeed==0.15.4", "transformers==4.47.1", "accelerate==1.9.0", "trl==0.12.2"),
    ),
}


# The same, put into the first stack on record for a trainer whose releases are others.
EDGES_OF_TRAINERS: dict[tuple[str, str], tuple[tuple[str, ...], tuple[str, ...]]] = {
    ("accelerator-init-order-deepspeed", "RLOO"): (
        ("trl==0.9.6", "accelerate==1.0.0"),
        ("trl==0.22.0", "accelerate==0.34.2", "accelerate==1.9.0"),
    ),
    ("fsdp2-ignored-params-torch26", "DPO"): (
        ("trl==0.29.0",),
        ("trl==0.28.0", "trl==1.14.0", "torch==2.7.0"),
    ),
    ("fsdp2-ignored-params-torch26", "RLOO"): (
        ("trl==0.29.0",),
        ("trl==0.28.0", "trl==1.14.0", "torch==2.7.0"),
    ),
    ("fsdp2-ignored-params-torch26", "KTO"): (
        ("trl==1.3.0",),
        ("trl==1.2.0", "trl==1.14.0", "torch==2.7.0"),
    ),
    ("fsdp2-reference-as-fsdp1", "DPO"): (
        ("trl==0.16.0", "trl==0.18.0"),
        ("trl==0.15.2", "trl==0.29.0"),
    ),
    ("fsdp2-reference-as-fsdp1", "RLOO"): (("trl==0.22.0",), ("trl==0.21.0", "trl==0.29.0")),
    ("fsdp2-reference-as-fsdp1", "Online DPO"): (("trl==0.24.0",), ("trl==0.23.1", "trl==0.29.0")),
    ("get-train-sampler-dataset-arg", "KTO"): (
        ("trl==0.8.0", "transformers==4.52.0", "transformers==5.0.0"),
        ("trl==0.18.0", "transformers==4.51.3"),
    ),
    ("get-train-sampler-dataset-arg", "BCO"): (
        ("trl==0.10.1", "transformers==4.52.0", "transformers==5.0.0"),
        ("trl==0.18.0", "transformers==4.51.3"),
    ),
    ("odpo-maybe-log-learning-rate", "XPO"): (
        ("trl==0.13.0", "transformers==4.51.0", "transformers==4.57.6"),
        ("trl==0.16.1", "transformers==4.50.3", "transformers==5.0.0"),
    ),
    ("odpo-maybe-log-learning-rate", "Nash-MD"): (
        ("trl==0.13.0", "transformers==4.51.0", "transformers==4.53.3"),
        ("trl==0.16.1", "transformers==4.50.3", "transformers==4.54.0"),
    ),
    ("ppo-optimizer-cls-and-kwargs", "RLOO"): (
        ("trl==0.9.6",),
        ("trl==0.12.0", "transformers==4.46.3"),
    ),
    ("trl-optional-deps-truthy-tf53", "RLOO"): (
        ("trl==0.22.0", "transformers==5.23.0"),
        ("trl==0.21.0", "trl==0.29.0", "transformers==5.2.0"),
    ),
    ("trl-optional-deps-truthy-tf53", "DPO"): (
        ("trl==0.28.0",),
        ("trl==0.22.2", "trl==0.29.0", "transformers==5.2.0"),
    ),
    ("trl-optional-deps-truthy-tf53", "SFT"): (("trl==0.11.0",), ("trl==0.10.1", "trl==0.12.0")),
    ("trl-optional-deps-truthy-tf53", "BCO"): (
        ("trl==0.24.0", "trl==0.28.0"),
        ("trl==0.16.1", "trl==0.29.0"),
    ),
    ("trl-optional-deps-truthy-tf53", "Online DPO"): (("trl==0.26.0",), ("trl==0.29.0",)),
    ("trl-warnings-issued-tf51", "KTO"): (
        ("trl==0.13.0", "trl==0.27.1", "transformers==5.1.0"),
        ("trl==0.12.0", "trl==0.27.2", "transformers==5.0.0"),
    ),
    ("trl-warnings-issued-tf51", "RLOO"): (("trl==0.22.0",), ("trl==0.21.0", "trl==0.27.2")),
    ("trl-warnings-issued-tf51", "DPO"): (("trl==0.23.0",), ("trl==0.22.2", "trl==0.27.2")),
    ("trl-warnings-issued-tf51", "Reward"): (
        ("trl==0.13.0", "trl==0.23.1"),
        ("trl==0.12.0", "trl==0.24.0", "transformers==5.0.0"),
    ),
    ("unwrap-model-keep-torch-compile", "BCO"): (("accelerate==0.34.2",), ("accelerate==1.3.0",)),
    ("unwrap-model-keep-torch-compile", "CPO"): (
        ("trl==0.9.6", "transformers==4.52.1", "accelerate==0.34.2"),
        ("transformers==4.51.3", "accelerate==1.3.0"),
    ),
    ("unwrap-model-keep-torch-compile", "ORPO"): (
        ("trl==0.9.6", "transformers==4.52.1", "accelerate==0.34.2"),
        ("transformers==4.51.3", "accelerate==1.3.0"),
    ),
    ("unwrap-model-keep-torch-compile", "RLOO"): (
        ("trl==0.22.2",),
        ("trl==0.21.0", "accelerate==1.3.0"),
    ),
    ("zero3-register-hooks-rename", "GKD"): (
        ("trl==0.11.4",),
        ("trl==0.16.0", "deepspeed==0.16.3"),
    ),
    ("zero3-register-hooks-rename", "Online DPO"): (
        ("trl==0.10.1", "trl==0.12.2"),
        ("trl==0.14.0", "deepspeed==0.16.3"),
    ),
    ("zero3-register-hooks-rename", "RLOO"): (
        ("trl==0.12.2",),
        ("trl==0.16.0", "deepspeed==0.16.3"),
    ),
    ("zero3-register-hooks-rename", "XPO"): (
        ("trl==0.11.4",),
        ("trl==0.16.0", "deepspeed==0.16.3"),
    ),
}


@pytest.mark.parametrize("mask", EDGES)
def test_its_ranges_end_where_they_say(mask: str) -> None:
    ends_where_it_says(next(seen for seen in RECORDED if seen.mask == mask), EDGES[mask])


@pytest.mark.parametrize("of", EDGES_OF_TRAINERS, ids=" of ".join)
def test_its_ranges_end_where_they_say_for_a_trainer(of: tuple[str, str]) -> None:
    first = next(seen for seen in RECORDED if (seen.mask, seen.conditions.get("trainer")) == of)
    ends_where_it_says(first, EDGES_OF_TRAINERS[of])


def ends_where_it_says(seen: Recorded, edges: tuple[tuple[str, ...], tuple[str, ...]]) -> None:
    inside, outside = edges
    for requirement in inside:
        package, _, version = requirement.partition("==")
        assert seen.expected_with(**{package: version}).masked_by == seen.mask, requirement
    for requirement in outside:
        package, _, version = requirement.partition("==")
        assert seen.expected_with(**{package: version}).masked_by != seen.mask, requirement
