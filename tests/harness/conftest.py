"""A small, complete project of its own for tests of the pure core."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from hypothesis import settings

from tests.harness.bisect.bench import bisection as bisection
from tests.harness.gate_bench import bench as bench
from tests.harness.hostile import odd as odd
from tests.harness.new_failures import checkout as checkout
from tests.harness.recorded_runs import where as where
from trl_compat.advisories import Catalogue
from trl_compat.advisories import load as load_advisories
from trl_compat.stacks.matrix import Matrix
from trl_compat.stacks.matrix import load as load_matrix

# The same examples every time, no file of them, and no limit that a busy machine exceeds.
settings.register_profile("suite", deadline=None, derandomize=True, database=None)
settings.load_profile("suite")

HARNESS = Path(__file__).parent
ROOT = HARNESS.parents[1]

MATRIX = """
models: [tiny-mistral, tiny-qwen2]
stacks:
  old: {as_of: 2024-10-20, torch: 2.4.1, trl: 0.11.4, transformers: 4.45.2, deepspeed: 0.15.2, accelerate: 0.34.2, peft: 0.13.2}
  masked: {as_of: 2024-10-20, torch: 2.4.1, trl: 0.11.4, transformers: 4.45.2, deepspeed: 0.15.2, accelerate: 1.0.1, peft: 0.13.2}
  new: {as_of: 2026-11-19, torch: 2.13.0, trl: 1.16.0, transformers: 5.23.0, deepspeed: 0.19.8, accelerate: 1.15.0, peft: 0.21.2}
  tree: {as_of: 2025-02-10, torch: 2.4.1, trl: "git+https://github.com/huggingface/trl@724acb971", transformers: 4.48.3, deepspeed: 0.15.2, accelerate: 0.34.2, peft: 0.14.0, only: [saving], why: one tree}
profiles:
  default: {about: all, select: [{models: [tiny-qwen2]}]}
excludes:
  - {stack: new, model: tiny-mistral, reason: the model does not fit here}
"""
ADVISORY = """
id: saving
title: It cannot save
summary: It trains and cannot save.
severity: crash-late
cause: It hands over the wrong thing.
references: [{url: "https://github.com/huggingface/trl/issues/2122"}]
available: {trl: "<1.13"}
symptoms:
  text:
    exception: AttributeError
    message: "no attribute 'gather'"
    where: "accelerate/accelerator.py:get_state_dict"
    through: "trl/*:save_model"
  empty:
    exception: PostConditionFailed
    message: "tensors empty"
    where: "check:saved"
affected:
  - {symptom: text, versions: {trl: ">=0.11,<=1.12.0", transformers: "<5"}, conditions: {zero_stage: [3]}}
  - {symptom: text, commits: {trl: [724acb971]}, conditions: {zero_stage: 3}}
reproduction:
  module: saving
  conditions: {trainer: PPO}
  control: ddp
  default: [zero3]
  variants: {zero3: {zero_stage: 3}, zero2: {zero_stage: 2}, ddp: {}}
fixes:
  - {name: right, entry: "trl_compat.fixes.ppo_zero3_save:apply", summary: It gathers., snippet: x}
wrong_fixes:
  - {name: wrong, entry: "reproduction:wrong", why: It does not gather., symptom: empty}
"""
MASK = """
id: early-stop
title: It does not even start
summary: An earlier failure.
severity: crash-at-start
cause: Another package.
references: []
masks: true
symptoms:
  init: {exception: ValueError, message: "properly initialize", where: "accelerate/state.py:*"}
affected:
  - {symptom: init, versions: {accelerate: ">=1.0.0,<=1.8.1"}, conditions: {trainer: PPO}}
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--profile", default="smoke", help="which cells test_preloading compares")


@pytest.fixture
def project_folder(tmp_path: Path) -> Path:
    """A folder with a matrix, two advisories, a reproduction and no models."""
    (tmp_path / "matrix.yaml").write_text(textwrap.dedent(MATRIX))
    (tmp_path / "advisories").mkdir()
    (tmp_path / "advisories" / "saving.yaml").write_text(ADVISORY)
    (tmp_path / "advisories" / "early-stop.yaml").write_text(MASK)
    reproductions = tmp_path / "tests" / "reproductions"
    reproductions.mkdir(parents=True)
    (reproductions / "saving.py").write_text("def scenario(rank): rank.check('a', True, '')\n")
    (tmp_path / "tiny_models").mkdir()
    return tmp_path


@pytest.fixture
def matrix(project_folder: Path) -> Matrix:
    return load_matrix(project_folder / "matrix.yaml")


@pytest.fixture
def catalogue(project_folder: Path) -> Catalogue:
    return load_advisories(
        project_folder / "advisories", project_folder / "tests" / "reproductions"
    )
