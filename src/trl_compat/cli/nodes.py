"""``trl-compat nodes``: saving and resuming over several machines."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from trl_compat.cli import extra
from trl_compat.cli.check import REPORTS
from trl_compat.errors import EXIT_FINDINGS, EXIT_OK, BadInput
from trl_compat.text import terminal

# Names of trl_compat.checking.node_results.LAYOUTS, here so that --help needs nothing that runs.
LAYOUTS = ("shared", "node-local", "node-local-each", "node-local-latest")


@click.command(epilog="Example: trl-compat nodes --nodes 2 --python venv/bin/python")
@click.option(
    "--python",
    type=click.Path(path_type=Path),
    help="Interpreter of the environment; default: the one that runs trl-compat.",
)
@click.option("--nodes", type=int, default=2, show_default=True, help="Number of nodes.")
@click.option("--ranks-per-node", type=int, default=1, show_default=True, help="Ranks on each.")
@click.option(
    "--endpoint",
    help="HOST[:PORT] of the first node; default: network namespaces of this machine.",
)
@click.option(
    "--node",
    type=int,
    default=0,
    show_default=True,
    help="Number of this machine, with --endpoint.",
)
@click.option(
    "--shared-folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Empty folder that every node sees, with --endpoint.",
)
@click.option(
    "--layout",
    "layouts",
    type=click.Choice(LAYOUTS),
    multiple=True,
    help="Try only this layout of folders; repeatable.",
)
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto")
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=300.0,
    show_default=True,
    help="Stop a launch after this many seconds.",
)
@click.option(
    "--reports",
    type=click.Path(file_okay=False, path_type=Path),
    default=REPORTS,
    show_default=True,
    help="Folder for nodes.json and the logs.",
)
@click.pass_obj
def nodes(
    root: Path,
    python: Path | None,
    nodes: int,
    ranks_per_node: int,
    endpoint: str | None,
    node: int,
    shared_folder: Path | None,
    layouts: tuple[str, ...],
    device: str,
    timeout: float,
    reports: Path,
) -> None:
    """Save and resume under ZeRO-3 over several nodes, with shared and with node-local folders.

    Torch's elastic agent runs on each node and finds the others by its c10d rendezvous. With
    --endpoint run the same command on every machine, with its number. Nothing in the environment
    is changed.

    Exit code 0: everything is as expected, the known failure with node-local folders included; 1:
    something is not; 2: wrong usage or bad input; 70: the harness failed; 130: interrupted.
    """
    extra.require("nodes", to_build=False)
    from trl_compat.checking import network, node_results, run
    from trl_compat.checking import nodes as running
    from trl_compat.packages import PACKAGES

    if not 2 <= nodes <= 16:
        raise BadInput(f"--nodes {nodes}: 2 to 16 nodes are possible")
    if not 1 <= ranks_per_node <= 8:
        raise BadInput(f"--ranks-per-node {ranks_per_node}: 1 to 8 ranks are possible")
    if not 0 <= node < nodes:
        raise BadInput(f"--node {node}: with {nodes} nodes it is 0 to {nodes - 1}")
    if endpoint is None and (node or shared_folder):
        option = "--shared-folder" if shared_folder else "--node"
        raise BadInput(f"{option} is for several machines; name the first one with --endpoint")
    if shared_folder and not (shared_folder.is_dir() and not any(shared_folder.iterdir())):
        raise BadInput(f"--shared-folder {shared_folder}: an empty folder is expected")
    where = network.endpoint_of(endpoint) if endpoint else None
    joined = network.Network(nodes, ranks_per_node, where, node)
    own = Path(os.environ.get("TRL_COMPAT_CALLED_PYTHON") or sys.executable)
    ready = run.prepare(python or own, root, reports, with_gpus=device != "cpu")
    chosen = ready.device(device, ranks_per_node * len(joined.here))
    for line in ready.lines():
        click.echo(terminal.line(line))
    results = running.run(
        ready,
        joined,
        chosen,
        timeout,
        shared_folder.resolve() if shared_folder else None,
        layouts or LAYOUTS,
        lambda line: click.echo(terminal.line(line)),
    )
    stack = ready.found.stack
    versions = {package: getattr(stack, package) for package in ("python", *PACKAGES)}
    node_results.write(ready.where.reports / "nodes.json", versions, results)
    click.echo(run.compare(ready))
    sys.exit(EXIT_OK if node_results.agree(results) else EXIT_FINDINGS)
