"""The adaptations that let CPU ranks replace GPUs, all in one place.

A stand-in must not touch the code under test; it supplies what a machine without GPUs lacks, or
removes a difference between gloo and NCCL.  Each states why it exists and for which releases it is
needed; a cell lists those that it used.  GPU ranks use none.

There are two kinds: *automatic* ones, installed before the scenario wherever they apply, and
*named* ones (:data:`NAMED`) that a reproduction requests, because they replace a part of the
situation itself and change the meaning of the verdict.  Some are implemented here, some in the one
reproduction that needs them; :func:`reasons` lists all of them.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from . import gathering
from .context import Rank, at_least, installed, replace


@dataclass(frozen=True)
class StandIn:
    """An automatic adaptation.

    Attributes:
        name: what cells and reports call it; ``-N`` at the end is its version.
        reason: why CPU ranks need it, with the source of the fact.
        needed: whether this stack needs it.
        install: applies it to the running process.
    """

    name: str
    reason: str
    needed: Callable[[], bool]
    install: Callable[[], object]


def _no_shared_memory_op() -> None:
    # Not "from deepspeed.comm import torch": the package's namespace holds the real torch there.
    backend = importlib.import_module("deepspeed.comm.torch")
    replace(backend, "build_shm_op", lambda: None)


def _gathers_without_grad() -> None:
    import torch
    from deepspeed import comm
    from deepspeed.comm import comm as comm_module

    gather = comm_module.all_gather_into_tensor

    def gather_without_grad(*args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            return gather(*args, **kwargs)

    replace(comm, "all_gather_into_tensor", gather_without_grad)
    replace(comm_module, "all_gather_into_tensor", gather_without_grad)


def _local_size() -> None:
    os.environ.setdefault("LOCAL_SIZE", os.environ.get("LOCAL_WORLD_SIZE", "1"))


def _no_grad_in_place_of_inference_mode() -> None:
    import torch

    replace(torch, "inference_mode", torch.no_grad)


def _gloo_for_torchrun_ranks() -> None:
    from accelerate import state
    from accelerate.utils import DistributedType

    prepare = state.PartialState._prepare_backend

    def prepare_backend(self: Any, cpu: bool = False, *args: Any, **kwargs: Any) -> Any:
        backend, distributed_type = prepare(self, cpu, *args, **kwargs)
        if backend is None and int(os.environ.get("LOCAL_RANK", "-1")) >= 0:
            return "gloo", DistributedType.MULTI_CPU
        return backend, distributed_type

    replace(state.PartialState, "_prepare_backend", prepare_backend)


AUTOMATIC = (
    StandIn(
        "wait-for-every-all-gather-1",
        "DeepSpeed up to 0.19.7 starts several asynchronous all-gathers and waits for the last one "
        "only. CUDA streams keep their order, gloo does not: parameters are read before they have "
        "arrived and ZeRO-3 weights are silently corrupted. Fixed upstream later.",
        lambda: bool(installed("deepspeed")) and not at_least("deepspeed", "0.19.8"),
        gathering.wait_for_every_handle,
    ),
    StandIn(
        "gathers-without-grad-1",
        "DeepSpeed from 0.18.6 gathers parameters in grad mode at the end of a ZeRO-1/2 step. NCCL "
        "writes into them without autograd, gloo splits and copies: 'Output 0 of SplitBackward0 is "
        "a view and is being modified inplace'. Seen with DeepSpeed 0.18.8 on torch 2.10.",
        lambda: bool(installed("deepspeed")) and at_least("deepspeed", "0.18.6"),
        _gathers_without_grad,
    ),
    StandIn(
        "no-shared-memory-op-1",
        "DeepSpeed's CPU accelerator compiles a shared-memory all-reduce at the first collective "
        "(25-50 s, and a compiler). GPU ranks never use it; without it the same collective runs on "
        "gloo.",
        lambda: bool(installed("deepspeed")),
        _no_shared_memory_op,
    ),
    StandIn(
        "local-size-1",
        "DeepSpeed up to 0.15.x counts the sockets of a CPU machine with the program numactl, "
        "unless LOCAL_SIZE (set by its own launcher) gives the number of ranks: without "
        "either, ZeRO-3's backward dies with FileNotFoundError: 'numactl'.",
        lambda: bool(installed("deepspeed")),
        _local_size,
    ),
    StandIn(
        "no-grad-for-inference-mode-1",
        "TRL up to 0.15.2 runs reference models under torch.inference_mode(); gloo's worker "
        "threads may not write into inference tensors ('Inplace update to inference tensor outside "
        "InferenceMode'), NCCL's kernels may.",
        lambda: not at_least("trl", "0.16.0"),
        _no_grad_in_place_of_inference_mode,
    ),
    StandIn(
        "gloo-for-torchrun-ranks-1",
        "accelerate from 1.13.0 chooses gloo only when asked for a CPU run, and asking for one "
        "turns DeepSpeed off: under torchrun without GPUs every rank would run on its own.",
        lambda: at_least("accelerate", "1.13.0"),
        _gloo_for_torchrun_ranks,
    ),
)


# Each with what it stands in for and what its verdicts mean.
NAMED = {
    "forced-fsdp-state-1": (
        "FSDP on CPU ranks: accelerate enters FSDP from a list of GPU-like distributed types only "
        "and silently drops the plugin otherwise; the state is set as in that branch. This "
        "proves which code path a trainer takes under FSDP, and that the result is sharded; not "
        "how CUDA behaves."
    ),
    "far-device-meta-1": (
        "A device that is not the CPU: accelerator.device is 'meta', which every build of torch "
        "has. On CPU ranks a model is loaded on its target device, so a missing move is not seen. "
        "Nothing can be computed on 'meta'."
    ),
    "cpu-stream-events-1": (
        "FSDP2's forward on CPU: torch 2.6's CPU streams, which do nothing, lack two methods."
    ),
    "gloo-averages-1": (
        "FSDP2's gradients on CPU: up to torch 2.8 gloo's reduce_scatter_tensor takes the "
        "operation AVG and returns the sum (executed; 2.10.0 returns the average). NCCL averages. "
        "The sum is divided by the number of ranks."
    ),
    "fsdp1-optimizer-state-on-cpu-1": (
        "FSDP1 gathers both moments of AdamW into the same memory and copies each to the CPU from "
        "there. On CPU ranks that copies nothing, and both are saved as the second. Each is copied."
    ),
    "fsdp1-state-on-cpu-1": (
        "FSDP1's whole state dict on CPU: before torch 2.15 parameters are moved to the CPU and "
        "those on the device are freed, which are the same on CPU ranks (executed: SIGSEGV). They "
        "stay where they are, as in torch 2.15."
    ),
    "vllm-recorder-1": (
        "Replaces GRPO's vLLM engine, which needs a GPU: stores the weights that it receives and "
        "generates its own tokens. The check is which weights it receives, and when."
    ),
}


def reasons() -> dict[str, str]:
    """Why each stand-in exists that a cell can carry, by name."""
    return {**{stand_in.name: stand_in.reason for stand_in in AUTOMATIC}, **NAMED}


def install(rank: Rank) -> None:
    """Installs the automatic stand-ins that this cell needs; none on GPU ranks."""
    if rank.spec.device != "cpu":
        return
    for stand_in in AUTOMATIC:
        if stand_in.name != rank.condition("without_stand_in") and stand_in.needed():
            stand_in.install()
            rank.use_stand_in(stand_in.name)


@contextlib.contextmanager
def forced_fsdp_state(rank: Rank) -> Iterator[None]:
    """FSDP on CPU ranks: an accelerator made in this block takes the FSDP plugin that it is given.

    accelerate enters FSDP from a list of GPU-like distributed types only and drops the plugin
    elsewhere without a word, in every release up to 1.15.0.  This gives the state what that branch
    gives it.  The device is ``cpu`` and not accelerate's ``cpu:0``, which FSDP refuses
    ("Inconsistent compute device").  It proves which way a trainer goes under FSDP, and that what
    comes out is sharded; not how CUDA behaves.
    """
    if rank.spec.device != "cpu":
        yield
        return
    import torch
    from accelerate.state import AcceleratorState, PartialState
    from accelerate.utils import DistributedType

    original = AcceleratorState.__init__

    def enter(self: Any, *args: Any, fsdp_plugin: Any = None, **kwargs: Any) -> None:
        original(self, *args, fsdp_plugin=fsdp_plugin, **kwargs)
        if fsdp_plugin is None or self.distributed_type != DistributedType.MULTI_CPU:
            return
        if self.mixed_precision != "no":
            fsdp_plugin.set_mixed_precision(self.mixed_precision)
        self.fsdp_plugin = fsdp_plugin
        # Both states: whoever makes an AcceleratorState again copies the partial one over it.
        for state in (self.__dict__, PartialState._shared_state):
            state.update(distributed_type=DistributedType.FSDP, device=torch.device("cpu"))
        if getattr(fsdp_plugin, "fsdp_version", 1) == 2:
            _cpu_stream_events(rank)
            _gloo_averages(rank)

    rank.use_stand_in("forced-fsdp-state-1")
    replace(AcceleratorState, "__init__", enter)
    try:
        yield
    finally:
        replace(AcceleratorState, "__init__", original)


def _cpu_stream_events(rank: Rank) -> None:
    """FSDP2's forward on CPU: torch 2.6's CPU streams, which do nothing, lack two methods."""
    from torch import cpu

    if not hasattr(cpu.Stream, "record_event"):
        rank.use_stand_in("cpu-stream-events-1")
        cpu.Stream.record_event = lambda self: None
        cpu.Stream.wait_event = lambda self, event: None


def _gloo_averages(rank: Rank) -> None:
    """FSDP2's gradients on CPU: up to torch 2.8 gloo returns the sum where the average is asked."""
    import torch.distributed as dist

    if at_least("torch", "2.10.0"):
        return
    scatter = dist.reduce_scatter_tensor

    def averaging(output: Any, input: Any, op: Any = dist.ReduceOp.SUM, **options: Any) -> Any:
        if op != dist.ReduceOp.AVG:
            return scatter(output, input, op=op, **options)
        work = scatter(output, input, op=dist.ReduceOp.SUM, **options)
        if work is not None:
            work.wait()
        output.div_(dist.get_world_size(options.get("group")))
        return work

    rank.use_stand_in("gloo-averages-1")
    replace(dist, "reduce_scatter_tensor", averaging)


def fsdp1_state_on_cpu(rank: Rank) -> None:
    """FSDP1's whole state dict on CPU: before torch 2.15 it reads what it has freed."""
    from torch.distributed.fsdp._flat_param import FlatParamHandle

    if rank.spec.device == "cpu" and not hasattr(FlatParamHandle, "_offload_to_cpu"):
        rank.use_stand_in("fsdp1-state-on-cpu-1")
        replace(FlatParamHandle, "to_cpu", lambda self: contextlib.nullcontext())


def fsdp1_optimizer_state_on_cpu(rank: Rank) -> None:
    """FSDP1's whole optimizer state on CPU: its tensors are views of one buffer, used again."""
    from torch.distributed.fsdp import _optim_utils

    if rank.spec.device != "cpu":
        return
    rank.use_stand_in("fsdp1-optimizer-state-on-cpu-1")
    unflatten = _optim_utils._unflatten_orig_param_states

    def copied(info: Any, states: dict[str, Any], name: str, *more: Any, **options: Any) -> None:
        unflatten(info, states, name, *more, **options)
        for state in states.values():
            if name in state:
                state[name] = state[name].clone()

    replace(_optim_utils, "_unflatten_orig_param_states", copied)


@contextlib.contextmanager
def far_device(rank: Rank) -> Iterator[Any]:
    """A device that is not the CPU: in this block ``accelerator.device`` is ``meta`` on CPU ranks.

    Whether a model was moved cannot be seen where it is loaded on the device that it should go to.
    ``meta`` is in every build of torch, and ``prepare_model`` moves a model there as it would to a
    GPU.  FSDP1 moves one too, with help: it asks for the module of the device (``torch.cuda``),
    which meta has not, and it assigns to ``parameter.data``, which meta refuses.  Nothing can be
    computed there.

    Yields:
        The device, or None on GPU ranks, where the accelerator's own is far enough.
    """
    if rank.spec.device != "cpu":
        yield None
        return
    import torch
    from accelerate import Accelerator
    from torch.distributed.fsdp import _init_utils
    from torch.distributed.fsdp._common_utils import _FSDPDeviceHandle

    meta = torch.device("meta")
    device, move = Accelerator.device, _init_utils._move_module_to_device
    from_device = _FSDPDeviceHandle.__dict__["from_device"]

    def handle(cls: Any, device: Any) -> Any:
        if device.type == "meta":
            return cls(device, SimpleNamespace(current_device=lambda: meta))
        return from_device.__func__(cls, device)

    def move_module(module: Any, ignored: Any, ignored_buffers: Any, device: Any) -> None:
        if device is None or device.type != "meta":
            move(module, ignored, ignored_buffers, device)
            return
        moved: dict[Any, Any] = {}  # tied parameters stay tied
        for part in module.modules():
            for tensors in (part._parameters, part._buffers):
                for name, tensor in tensors.items():
                    if tensor is not None and tensor.device.type == "cpu":
                        tensors[name] = moved.setdefault(tensor, _far_copy(tensor))

    rank.use_stand_in("far-device-meta-1")
    replace(Accelerator, "device", property(lambda self: meta))
    replace(_FSDPDeviceHandle, "from_device", classmethod(handle))
    replace(_init_utils, "_move_module_to_device", move_module)
    try:
        yield meta
    finally:
        replace(Accelerator, "device", device)
        replace(_FSDPDeviceHandle, "from_device", from_device)
        replace(_init_utils, "_move_module_to_device", move)


def _far_copy(tensor: Any) -> Any:
    import torch

    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(tensor.detach().to("meta"), tensor.requires_grad)
    return tensor.to("meta")
