"""Saving and resuming over several nodes, in an environment as it is.

Each layout of folders is tried by two launches in fresh processes: one saves, one resumes.  The
nodes are machines that are given an endpoint, or network namespaces of this one.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from trl_compat.cells.rank_records import RankRecord
from trl_compat.checking import node_agents
from trl_compat.checking.network import PORT, Network, address_towards, interface_of
from trl_compat.checking.node_agents import AgentOrder
from trl_compat.checking.node_results import LAYOUTS, RESUME, SAVE, LaunchResult, judge, lines
from trl_compat.checking.run import USUAL_MODEL, Ready
from trl_compat.errors import BadInput
from trl_compat.machine import isolation, namespaces, processes
from trl_compat.machine.host import visible_gpus
from trl_compat.running.execution import bundle, cell_environment, rank_files
from trl_compat.running.execution.runner import StackRunner
from trl_compat.runtime import offline
from trl_compat.runtime.spec import CellSpec
from trl_compat.stacks.in_place.environment import EnvironmentInPlace

SCENARIO = "save_and_resume_over_nodes"
# What a user says of networks to the libraries of communication.
OF_NETWORKS = ("NCCL_", "GLOO_", "UCX_", "FI_")


class Folders:
    """The scratch folder of a run, with a folder for each node."""

    def __init__(self, scratch: Path, shared: Path | None) -> None:
        self.scratch = scratch
        self.shared = shared

    def node(self, number: int) -> Path:
        """All that only this node sees."""
        return self.scratch / f"node{number}"

    def checkpoints(self, number: int, name: str) -> Path:
        """Where a node's ranks save in a layout."""
        if LAYOUTS[name].shared:
            assert self.shared is not None
            return self.shared / name
        return self.node(number) / name


def run(
    ready: Ready,
    network: Network,
    device: str,
    limit: float,
    shared: Path | None,
    layouts: Sequence[str],
    say: Callable[[str], None],
) -> list[LaunchResult]:
    """Tries every layout; says what came of each launch as it ends.

    Args:
        ready: the environment.
        device: ``cpu`` or ``cuda``.
        limit: seconds for one launch.
        shared: a folder that all nodes see; needed where they are machines.
        layouts: names of those to try.

    Raises:
        BadInput: this machine cannot do it.
    """
    if not ready.found.stack.deepspeed:
        raise BadInput(
            f"{ready.found.record.python}: DeepSpeed is not installed there; ZeRO-3 needs it"
        )
    if network.endpoint is None and (why := namespaces.missing()):
        raise BadInput(f"several nodes on one machine: {why}; name the first one with --endpoint")
    environment = EnvironmentInPlace(ready.found.record)
    readable = (ready.where.reproductions, ready.where.models, *environment.readable)
    with StackRunner(environment, readable=readable, preload=False) as runner:
        runner.start()  # compiles what ranks will import
    with tempfile.TemporaryDirectory(prefix="trl-compat-nodes-") as name:
        scratch = Path(name)
        guardian = processes.start_watchdog(scratch.name, scratch)
        try:
            launches = _Launches(ready, network, device, limit, Folders(scratch, shared))
            return list(launches.each(layouts, say))
        finally:
            processes.end_marked(scratch.name)
            assert guardian.stdin is not None
            guardian.stdin.close()
            guardian.wait()


class _Launches:
    """The launches of a run, one after the other."""

    def __init__(
        self, ready: Ready, network: Network, device: str, limit: float, folders: Folders
    ) -> None:
        self.ready, self.network, self.device, self.limit = ready, network, device, limit
        self.folders = folders
        self.environment = EnvironmentInPlace(ready.found.record)
        self.bundle = bundle.make(folders.scratch / "bundle")
        if network.endpoint is None and folders.shared is None:
            folders.shared = folders.scratch / "shared"
            folders.shared.mkdir()

    def each(self, layouts: Sequence[str], say: Callable[[str], None]) -> Iterator[LaunchResult]:
        """All that can be tried here."""
        number = 0
        for name in layouts:
            if LAYOUTS[name].shared and self.folders.shared is None:
                say(f"{name}: not tried; name a folder that every node sees: --shared-folder")
                continue
            for phase in (SAVE, RESUME):
                result = self._launch(name, phase, number)
                number += 1
                for line in lines(result):
                    say(line)
                yield result

    def _launch(self, name: str, phase: str, number: int) -> LaunchResult:
        orders = {node: self._order(node, name, phase, number) for node in self.network.here}
        begun = time.monotonic()
        if self.network.endpoint is None:
            node_agents.run_on_this_machine(list(orders.values()), self.folders.scratch)
        else:
            for order in orders.values():
                node_agents.run(order)
        seconds = round(time.monotonic() - begun, 1)
        self._keep_logs(orders, name, phase)
        found: dict[int, RankRecord] = {}
        for order in orders.values():
            found |= rank_files.records(order.folder, self.network.world_size)[0]
        version = self.ready.found.stack.deepspeed
        return judge(name, phase, self.network, found, self._evidence(), seconds, version)

    def _evidence(self) -> str:
        backend = "nccl" if self.device == "cuda" else "gloo"
        where = "machines" if self.network.endpoint else "network namespaces"
        ranks, nodes = self.network.world_size, self.network.nodes
        return f"{self.device}-{backend} × {ranks} on {nodes} {where}"

    def _order(self, node: int, name: str, phase: str, number: int) -> AgentOrder:
        layout, own = LAYOUTS[name], self.folders.node(node)
        folder, home, kept = own / f"{name}-{phase}", own / "home", own / f"{name}-kept"
        checkpoints = self.folders.checkpoints(node, name)
        for path in (folder, home / "tmp", kept, checkpoints):
            path.mkdir(parents=True, exist_ok=True)
        spec = CellSpec(
            cell=f"nodes__{name}__{phase}",
            reproduction=str(self.ready.where.reproductions / f"{SCENARIO}.py"),
            variant=name,
            conditions={
                "zero_stage": 3,
                "phase": phase,
                "checkpoints": str(checkpoints),
                "kept": str(kept),
                "save_on_each_node": layout.save_on_each_node,
                "write_latest": layout.write_latest,
                "weights_on_every_node": layout.shared,
            },
            model=USUAL_MODEL,
            model_dir=str(self.ready.where.models / USUAL_MODEL),
            world_size=self.network.world_size,
            device=self.device,
            folder=str(folder),
        )
        spec.write(folder / "spec.json")
        address, (host, port) = self._addresses(node)
        words = node_agents.command(
            self.environment.python,
            self.bundle / "rank_main.py",
            folder / "spec.json",
            nodes=self.network.nodes,
            node=node,
            ranks=self.network.ranks,
            # A port of its own: the store of the launch before may still be closing.
            endpoint=(host, port + number),
            address=address,
            name=f"{name}-{phase}",
        )
        readable = (
            self.bundle,
            *isolation.interpreter_files(self.environment.python),
            *(self.ready.where.reproductions, self.ready.where.models),
            *(self.environment.bytecode, *self.environment.readable),
        )
        return AgentOrder(
            command=words,
            env=self._env(node, home, address),
            address=address,
            folder=folder,
            readable=readable,
            writable=(folder, home, kept, checkpoints),
            gpus=self.device == "cuda",
            limit=self.limit,
        )

    def _addresses(self, node: int) -> tuple[str, tuple[str, int]]:
        """The address of a node, and the endpoint."""
        if self.network.endpoint is None:
            return namespaces.address(node), (namespaces.address(0), PORT)
        host, port = self.network.endpoint
        address = host if node == 0 else address_towards(host)
        return address, (host, port)

    def _env(self, node: int, home: Path, address: str) -> dict[str, str]:
        env = cell_environment.build(
            self.environment, home, gpus=self._gpus(node), run_id=self.folders.scratch.name
        )
        env.pop(offline.VARIABLE, None)  # the other nodes are on the network
        if self.network.endpoint is None:
            interface = namespaces.INTERFACE
        else:
            env |= {k: v for k, v in os.environ.items() if k.startswith(OF_NETWORKS)}
            interface = interface_of(address)
        for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            env.setdefault(variable, interface)
        return env

    def _gpus(self, node: int) -> tuple[str, ...]:
        if self.device != "cuda":
            return ()
        first = self.network.ranks * (node if self.network.endpoint is None else 0)
        return tuple(visible_gpus()[first : first + self.network.ranks])

    def _keep_logs(self, orders: dict[int, AgentOrder], name: str, phase: str) -> None:
        """Puts what agents and ranks printed beside the results."""
        target = self.ready.where.reports / "nodes"
        target.mkdir(parents=True, exist_ok=True)
        for node, order in orders.items():
            for log in order.folder.glob("*.log"):
                shutil.copyfile(log, target / f"{name}-{phase}-node{node}-{log.name}")
