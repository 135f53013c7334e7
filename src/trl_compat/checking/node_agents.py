"""The elastic agent of each node: torch's own ``torchrun`` with its c10d rendezvous.

On several machines the command starts the agent of its own node.  On one machine this module is
run as a program, puts each node into a network namespace of its own, and starts all agents.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter

from trl_compat.files.models import FrozenModel
from trl_compat.machine import isolation, namespaces, processes

# Seconds in which all nodes must have come, and that they have when one of them has failed: they
# may wait for it in a rendezvous of their own for half an hour.
JOIN_LIMIT, GRACE = 120, 15.0


class AgentOrder(FrozenModel):
    """One launch on one node.

    Attributes:
        command: the agent, with the full path of its program.
        address: of the node.
        folder: where it starts, and where its ranks leave their records.
        readable, writable: what its ranks can reach.
        limit: seconds after which it is ended.
    """

    command: tuple[str, ...]
    env: dict[str, str]
    address: str
    folder: Path
    readable: tuple[Path, ...]
    writable: tuple[Path, ...]
    gpus: bool
    limit: float


def command(
    python: Path,
    script: Path,
    spec: Path,
    *,
    nodes: int,
    node: int,
    ranks: int,
    endpoint: tuple[str, int],
    address: str,
    name: str,
) -> tuple[str, ...]:
    """The agent of a node, as ``torchrun`` starts it.

    Args:
        ranks: on each node.
        endpoint: address and port on the first node, where the rendezvous is.
        address: of this node.
        name: of the launch; the same on all nodes.
    """
    host = "true" if node == 0 else "false"
    return (
        *(str(python), "-m", "torch.distributed.run"),
        *(f"--nnodes={nodes}", f"--nproc-per-node={ranks}", "--max-restarts=0"),
        *("--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint[0]}:{endpoint[1]}"),
        *(f"--rdzv-id={name}", f"--rdzv-conf=is_host={host},join_timeout={JOIN_LIMIT}"),
        *(f"--local-addr={address}", str(script), str(spec)),
    )


def run(order: AgentOrder) -> int:
    """Runs the agent of a node to its end, with nothing of it left; its exit status.

    Its ranks are kept to their files as far as this machine can; the network is the node's.
    """
    done = processes.run_contained(
        order.command,
        env=order.env,
        cwd=order.folder,
        reach=isolation.Reach(order.readable, order.writable, order.gpus),
        limit=order.limit,
        how=isolation.on_the_network(order.address),
    )
    (order.folder / "agent.log").write_text(done.stdout, encoding="utf-8")
    return done.returncode


def run_on_this_machine(orders: Sequence[AgentOrder], scratch: Path) -> None:
    """Runs the agents of all nodes at once, each in a network namespace of its own.

    Raises:
        OSError: the network cannot be made.
    """
    path = scratch / "agents.json"
    path.write_bytes(ORDERS.dump_json(list(orders)))
    done = subprocess.run(
        [sys.executable, "-m", __name__, str(path)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise OSError(f"the nodes could not be started: {done.stderr.strip()[-300:]}")


ORDERS = TypeAdapter(list[AgentOrder])


def main(path: Path) -> None:
    """Each order in its namespace; how an agent ends is seen by what its ranks leave."""
    orders = ORDERS.validate_json(path.read_bytes())
    isolation.containment()  # found out once, before there are several processes

    def work(node: int) -> int:
        return 1 if run(orders[node]) else 0

    if namespaces.BROKEN in namespaces.each(len(orders), work, GRACE):
        sys.exit(1)  # it said why


if __name__ == "__main__":
    main(Path(sys.argv[1]))
