"""One check of every record: what it says and what the executed cells say, as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trl_compat.advisories import Catalogue
from trl_compat.publishing.checking.contradictions import Contradiction, contradictions
from trl_compat.publishing.checking.edges import Edge, edges
from trl_compat.publishing.checking.evidence import gather
from trl_compat.publishing.checking.proposals import Edit, NoEdit, propose
from trl_compat.results import Results
from trl_compat.shipped.releases import Releases


@dataclass(frozen=True)
class Checked:
    """What the cells say of one record.

    Attributes:
        bearing: how many cells say something of it.
        showing: how many of them show it.
    """

    failure: str
    bearing: int
    showing: int
    contradictions: tuple[Contradiction, ...]
    edges: tuple[Edge, ...]
    edits: tuple[Edit, ...]
    refused: tuple[NoEdit, ...]

    @property
    def open(self) -> tuple[Edge, ...]:
        """The edges that were not executed on both sides."""
        return tuple(edge for edge in self.edges if not edge.proven)


def check(
    document: Results, catalogue: Catalogue, releases: Releases, failures: Sequence[str] = ()
) -> list[Checked]:
    """Checks every record that holds, or some, in the order of their ids."""
    found = []
    for failure, advisory in sorted(catalogue.records.items()):
        if advisory.withdrawn or (failures and failure not in failures):
            continue
        evidence = gather(document, catalogue, advisory)
        edits, refused = propose(advisory, evidence, releases)
        checked = Checked(
            failure,
            bearing=len(evidence),
            showing=sum(one.shows is not None for one in evidence),
            contradictions=tuple(contradictions(advisory, evidence)),
            edges=tuple(edges(advisory, evidence, releases)),
            edits=tuple(edits),
            refused=tuple(refused),
        )
        found.append(checked)
    return found
