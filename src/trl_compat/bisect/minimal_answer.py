"""What an isolation answers: the smallest set of moves, their edges and corners, in words."""

from __future__ import annotations

from packaging.version import Version
from pydantic import Field

from trl_compat.bisect.answer import Answer
from trl_compat.errors import EXIT_OK
from trl_compat.files.models import FrozenModel


class Corner(FrozenModel):
    """One combination of releases at the edges, run.

    Attributes:
        predicted: the side that the conjunction predicts; ``side`` what was seen.
    """

    versions: dict[str, str]
    predicted: str
    side: str
    outcome: str
    command: str

    @property
    def words(self) -> str:
        """Its releases."""
        return ", ".join(f"{package} {version}" for package, version in self.versions.items())


class Minimal(FrozenModel):
    """The answer.

    Attributes:
        differ: what differs between the stacks; ``causes`` the smallest set that brings it about.
        moves: from and to which version each of them is moved.
        edges: of each cause that is a package under test and can be judged between its ends.
        corners: the combinations of the releases beside the edges.
        unproven: what could not be judged.
        holds: no corner contradicts the conjunction.
        not_varied: packages that are the same in both stacks.
    """

    question: str
    good_stack: str
    bad_stack: str
    differ: tuple[str, ...]
    causes: tuple[str, ...]
    moves: dict[str, tuple[str, str]]
    edges: tuple[Answer, ...]
    corners: tuple[Corner, ...]
    unproven: tuple[str, ...]
    holds: bool
    not_varied: tuple[str, ...]
    runs: int
    exit_code: int = Field(default=EXIT_OK)


def bound(edge: Answer) -> str:
    """The failing side of an edge, e.g. ``transformers ≥ 5.0.0``."""
    above = Version(edge.bad.version) > Version(edge.good.version)
    return f"{edge.package} {'≥' if above else '≤'} {edge.bad.version}"


def sentence(found: Minimal) -> str:
    """The answer in a sentence, no wider than what was run."""
    by_package = {edge.package: bound(edge) for edge in found.edges}
    moves = {cause: f"{cause} {old} → {new}" for cause, (old, new) in found.moves.items()}
    bounds = [by_package.get(cause, moves[cause]) for cause in found.causes]
    told = " and ".join(bounds)
    span = f"between {found.good_stack} and {found.bad_stack}"
    if not found.holds:
        against = [c.words for c in found.corners if c.side not in ("unjudged", c.predicted)]
        return (
            f"{found.question}: {span}, {told} is enough, but not the whole condition: "
            f"{'; '.join(against)} contradicts it."
        )
    only = "if" if found.unproven else "if and only if"
    return f"{found.question}: {span}, breaks {only} {told}."


def text(found: Minimal) -> str:
    """The answer for people."""
    lines = [sentence(found), ""]
    lines.append(f"  differ: {', '.join(found.differ)}; needed: {', '.join(found.causes)}")
    for edge in found.edges:
        lines.append(
            f"  {edge.package}: {edge.good.version} {edge.good.shows}, {edge.bad.version} "
            f"{edge.bad.shows} ({edge.tried} of {edge.candidates} releases run)"
        )
        lines += [f"    not judged: {p.named}: {p.shows}" for p in edge.between]
        lines += [f"    {place.command}" for place in (edge.good, edge.bad)]
        if edge.advice:
            word = "agrees" if edge.advice.agrees else "differs"
            lines.append(f"    the advisory {word}: {'; '.join(edge.advice.lines)}")
            lines += [f"      proposed: {line}" for line in edge.advice.proposed]
    if found.corners:
        lines.append("  corners:")
        lines += [f"    {c.words}: {c.outcome} (predicted {c.predicted})" for c in found.corners]
    lines += [f"  not proven: {one}" for one in found.unproven]
    if found.not_varied:
        lines.append(f"  not varied, so not proven for others: {', '.join(found.not_varied)}")
    lines.append(f"  {found.runs} cells run now")
    return "\n".join(lines) + "\n"
