"""The data that the page embeds, as its script reads it."""

from __future__ import annotations

from typing import Any

from trl_compat.report.page_data import IN_COMMANDS


def cell_of(data: dict[str, Any], number: int) -> dict[str, Any]:
    """A cell of the embedded data."""
    row = {
        name: column["values"][column["at"][number] if "at" in column else 0]
        for name, column in data["columns"].items()
    }
    usual = [row["stack"], row["failure"], row["variant"], row["model"], f"x{row['ranks']}"]
    ids = {int(place): name for place, name in data["ids"].items()}
    row["id"] = ids.get(number, "__".join([*usual, *([row["fix"]] if row["fix"] else [])]))
    for name, sign in IN_COMMANDS.items():
        row["command"] = row["command"].replace(sign, row[name])
    if isinstance(row["log"], int):
        row["log"] = f"evidence/{row['stack']}.log#L{row['log']}"
    return row
