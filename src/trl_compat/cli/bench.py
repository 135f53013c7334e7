"""``trl-compat bench``: measure what the harness saves."""

from __future__ import annotations

from pathlib import Path

import click

from trl_compat.cli import extra


@click.command(epilog="Example: trl-compat bench --cells 24")
@click.option(
    "--profile", default="default", show_default=True, help="Profile whose cells are measured."
)
@click.option(
    "--cells",
    "count",
    type=click.IntRange(min=1),
    default=24,
    show_default=True,
    help="Sample size.",
)
@click.option("--whole", is_flag=True, help="Measure every cell of the profile; slow.")
@click.option(
    "--stacks",
    type=click.IntRange(min=1),
    help="Measure so many stacks drawn at random from the releases, in place of a profile.",
)
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Seed of the stacks that are drawn."
)
@click.option(
    "--torchrun",
    "by_torchrun",
    type=click.IntRange(min=1),
    help="Run only so many of the cells with plain torchrun, and scale its total up.",
)
@click.option(
    "--jobs", type=click.IntRange(min=1), help="Stacks that the harness runs in parallel."
)
@click.option(
    "--markdown",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write the table to this file.",
)
@click.pass_obj
def bench(
    root: Path,
    profile: str,
    count: int,
    whole: bool,
    stacks: int | None,
    seed: int,
    by_torchrun: int | None,
    jobs: int | None,
    markdown: Path | None,
) -> None:
    """Measure the same cells with plain torchrun and with the matrix; print the ratios."""
    extra.require("bench")
    from trl_compat.files import project
    from trl_compat.machine import host
    from trl_compat.running import bench as measuring
    from trl_compat.stacks import matrix

    where = project.at(root)
    table = matrix.load(where.matrix_file)
    what = f"'{profile}'"
    if stacks is not None:
        table, profile = measuring.drawn(table, stacks, seed), measuring.DRAWN
        what = f"{stacks} stacks drawn with seed {seed}"
    cells = measuring.cells_of(table, where, profile, None if whole else count)
    lines = [
        f"{host.describe().cpu}, {host.describe().memory}; {len(cells)} cells of {what}",
        "",
        "| what | plain | trl-compat | ratio |",
        "|---|---|---|---|",
    ]
    click.echo("\n".join(lines))
    at_a_time = jobs or host.stacks_at_a_time("cpu", 2)
    for figure in measuring.measure(where, table, cells, at_a_time, by_torchrun):
        ratio = f"{figure.ratio:.1f}×" if figure.ratio else ""
        lines.append(f"| {figure.what} | {figure.plain} | {figure.ours} | {ratio} |")
        click.echo(lines[-1])
    if markdown is not None:
        markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")
