"""What the specified conditions imply for the versions: a package that is used must be installed.

DeepSpeed and PEFT are often installed beside a lock.  If the user names a DeepSpeed strategy and
the lock lists no DeepSpeed, its version is unknown, and its absence proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from trl_compat.matching.applies import matches
from trl_compat.shipped.records import CompiledAdvisory
from trl_compat.stacks.sources.source import Source
from trl_compat.usage.conditions import NEEDS, WORDS, Named

NAMING = {"deepspeed": "--strategy deepspeed", "peft": "--peft"}


def of(source: Source, named: Named) -> tuple[Source, tuple[str, ...]]:
    """The source with what is used and not in it, of unknown version; a sentence for each."""
    notes = []
    unpinned = dict(source.unpinned)
    for (name, value), package in NEEDS.items():
        there = {*source.versions, *source.commits, *unpinned}
        if value in named.get(name, ()) and package not in there:
            unpinned[package] = ""
            said = WORDS[name, value]
            notes.append(
                f"{said[0].upper()}{said[1:]} is used, but {source.name} does not list {package}: "
                "its version is unknown"
            )
    return replace(source, unpinned=MappingProxyType(unpinned)), tuple(notes)


def missing(source: Source, named: Named, records: Mapping[str, CompiledAdvisory]) -> Iterator[str]:
    """What is not in a source and would matter."""
    for (name, _), package in NEEDS.items():
        if source.kind == "environment" or name in named or not source.absent(package):
            continue
        besides = replace(source, unpinned={**source.unpinned, package: ""})
        more = sum(
            bool(matches(record, besides, named)) and not matches(record, source, named)
            for record in records.values()
        )
        if more:
            yield (
                f"{source.name} does not list {package}; if it is installed as well, up to {more} "
                f"more known failures can apply: {NAMING[package]}"
            )
