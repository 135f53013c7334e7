"""What cells showed where a record says something else, as lines for the record."""

from __future__ import annotations

import glob
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from trl_compat.advisories import Advisory, Catalogue, Symptom, patterns
from trl_compat.advisories.symptom import OBSERVE
from trl_compat.cells.outcome import Outcome
from trl_compat.cells.plan import Cell
from trl_compat.publishing.adding import brackets
from trl_compat.publishing.checking.yaml_edit import Replacement
from trl_compat.results import CellResult, Signature
from trl_compat.stacks.matrix import Matrix

FIELDS = ("exception", "message", "where")
LONGEST = 160  # characters of a message; more makes no symptom clearer
SPECIAL = re.compile(r"[\\.^$*+?{}\[\]|()]")
ADDRESS = re.compile(r"0x[0-9a-f]+")


@dataclass(frozen=True)
class Observed:
    """Cells that showed the same, which is not what the record says.

    Attributes:
        symptom: the one that the record predicts for them; None where it predicts none.
        signature: the values of :data:`FIELDS`; empty for what violates an invariant.
        measured: of that, the values as a record has them.
    """

    symptom: str | None
    cells: tuple[CellResult, ...]
    signature: Mapping[str, str]
    measured: Mapping[str, str]

    def lines(self) -> Iterator[str]:
        """The cells, and what they showed as YAML."""
        where = ", ".join(dict.fromkeys(f"{c.variant} on {c.stack}" for c in self.cells))
        what = f"not symptom '{self.symptom}'" if self.symptom else "no symptom is predicted"
        yield f"{what}: {where}; observed:"
        for name, value in self.signature.items():
            yield f"    {name}: {json.dumps(value, ensure_ascii=False)}"
        if self.measured:
            yield "    measured:"
        for name, value in self.measured.items():
            yield f"      {name}: {value}"


def observed(
    planned: Sequence[Cell],
    results: Mapping[str, CellResult],
    table: Matrix,
    catalogue: Catalogue,
    failure: str,
) -> list[Observed]:
    """What cells of a run raised that no symptom describes, those that raised the same together.

    Args:
        planned: the cells of the run.
        results: what came of them, by id.
    """
    grouped: dict[tuple[str | None, tuple[str, ...]], list[CellResult]] = {}
    for cell in planned:
        result = results.get(cell.id)
        if result is None or result.signature is None:
            continue
        if result.outcome is not Outcome.OTHER_FAILURE:
            continue
        symptom = brackets.symptom_of(cell, table, catalogue, failure)
        # Numbers differ from cell to cell; together they are a range.
        measures = cell.failure in catalogue.invariants and bool(result.measured)
        shown = ("measured", cell.failure) if measures else tuple(_fields(result).values())
        grouped.setdefault((symptom, shown), []).append(result)
    return [_observed(symptom, cells, shown) for (symptom, shown), cells in grouped.items()]


def _observed(symptom: str | None, cells: Sequence[CellResult], shown: tuple[str, ...]) -> Observed:
    if shown[0] == "measured":
        return Observed(symptom, tuple(cells), {}, _measured(cells))
    return Observed(symptom, tuple(cells), _fields(cells[0]), {})


def _fields(cell: CellResult) -> dict[str, str]:
    """What a cell raised, as a symptom says it."""
    assert cell.signature is not None
    values = (
        cell.signature.exception,
        pattern(cell.signature, cell.traceback),
        glob.escape(cell.signature.where),
    )
    return dict(zip(FIELDS, values, strict=True))


def pattern(raised: Signature, traceback: str) -> str:
    """A regular expression for the beginning of a message."""
    text = raised.message
    if len(text) > LONGEST:
        text = text[:LONGEST].rpartition(" ")[0] or text[:LONGEST]
    one_line = text in traceback
    text = SPECIAL.sub(r"\\\g<0>", "".join(c if c.isprintable() else "\0" for c in text))
    text = ADDRESS.sub("0x[0-9a-f]+", text).replace("\0", ".")
    # Results have each message in one line; where it has more, its line breaks are not known.
    return "^" + (text if one_line else text.replace(" ", r"\s+"))


def _measured(cells: Sequence[CellResult]) -> dict[str, str]:
    """What cells measured: the smallest and the largest number, or the texts."""
    found: dict[str, list[float | str]] = {}
    for cell in cells:
        for name, value in cell.measured.items():
            found.setdefault(name, []).append(value)
    return {name: _values(values) for name, values in found.items()}


def _values(values: Sequence[float | str]) -> str:
    numbers = [value for value in values if not isinstance(value, str)]
    if len(numbers) == len(values):
        return f"[{min(numbers):g}, {max(numbers):g}]"
    texts = dict.fromkeys(SPECIAL.sub(r"\\\g<0>", str(value)) for value in values)
    return json.dumps("|".join(texts), ensure_ascii=False)


def to_write(record: Advisory, found: Sequence[Observed]) -> list[Replacement]:
    """What the record's ``observe`` becomes: of symptoms whose cells all raised the same."""
    replacements = []
    for name, symptom in record.symptoms.items():
        mine = [one for one in found if one.symptom == name and one.signature]
        if len(mine) == 1 and _can_be_read(mine[0].signature["message"]):
            replacements += list(_of_symptom(name, symptom, mine[0].signature))
    return replacements


def _of_symptom(name: str, symptom: Symptom, raised: Mapping[str, str]) -> Iterator[Replacement]:
    for field in FIELDS:
        if getattr(symptom, field) == OBSERVE:
            keys = ("symptoms", name, field)
            yield Replacement(keys, OBSERVE, raised[field], f"symptom {name}")


def _can_be_read(pattern: str) -> bool:
    try:
        patterns.compiled(pattern)
    except patterns.NoPattern:
        return False
    return True
