"""Ranks that share a GPU: gloo whatever was asked for, and the stand-ins that go with it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.harness.conftest import ROOT
from trl_compat.machine import shared_gpu_main
from trl_compat.report import stand_ins as reported
from trl_compat.running.execution import bundle
from trl_compat.runtime import stand_ins
from trl_compat.stacks import matrix
from trl_compat.stacks.environments import build

ASKS_FOR_NCCL = """
import os, sys, tempfile
sys.path.insert(0, sys.argv[1])
import rank_main
os.environ.update(LOCAL_RANK="1", LOCAL_WORLD_SIZE="2")
rank_main.share_gpu()
import torch
from torch.distributed import distributed_c10d
for make in (torch.distributed.init_process_group, distributed_c10d.init_process_group):
    store = f"file://{tempfile.mkdtemp()}/store"
    make("nccl", store, world_size=1, rank=0)
    print(torch.distributed.get_backend(), os.environ["LOCAL_RANK"])
    torch.distributed.destroy_process_group()
make(backend="nccl", init_method=store + "2", world_size=1, rank=0)
print(torch.distributed.get_backend(), os.environ["LOCAL_WORLD_SIZE"])
"""


def test_its_gloo_stand_ins_are_those_of_cpu_ranks_and_every_one_has_a_reason() -> None:
    known = {stand_in.name for stand_in in stand_ins.AUTOMATIC}
    assert set(shared_gpu_main.FOR_GLOO) <= known
    assert set(shared_gpu_main.REASONS) <= set(reported.reasons())


def test_only_a_bundle_for_it_starts_ranks_that_share(tmp_path: Path) -> None:
    plain, shared = (bundle.make(tmp_path / name) for name in ("plain", "shared"))
    bundle.share_gpu(shared)
    assert "share_gpu" not in (plain / "rank_main.py").read_text()
    assert "share_gpu()" in (shared / "rank_main.py").read_text()
    assert sorted(p.name for p in plain.iterdir()) == sorted(p.name for p in shared.iterdir())


@pytest.mark.matrix
@pytest.mark.parametrize("stack", ["trl-1.16.0", "trl-0.11.4"])
def test_every_process_group_is_made_with_gloo(tmp_path: Path, stack: str) -> None:
    made = bundle.make(tmp_path / "bundle")
    bundle.share_gpu(made)
    python = build.ensure(stack, matrix.load(ROOT / "matrix.yaml").stacks[stack]).python
    command = [str(python), "-B", "-c", ASKS_FOR_NCCL, str(made)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.stdout.split("\n")[:3] == ["gloo 0", "gloo 0", "gloo 1"], done.stderr
