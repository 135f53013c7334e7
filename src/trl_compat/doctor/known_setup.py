"""How much is known about the user's setup: without this, "nothing applies" would be meaningless.

Every trainer and strategy can be named, but only some were ever run; for the others no failure can
be known.  An advisory that depends on neither concerns all of them and is counted, but is no
statement about them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from packaging.version import Version

from trl_compat.conditions import Value
from trl_compat.matching.applies import can_concern
from trl_compat.shipped import names
from trl_compat.shipped.records import CompiledAdvisory, Use
from trl_compat.text.nearest import either
from trl_compat.usage import vocabulary
from trl_compat.usage.conditions import Named, needed, phrase

STAGES = {"deepspeed": "zero_stage", "fsdp": "fsdp_version"}


@dataclass(frozen=True)
class KnownSetup:
    """How much is known about what was asked.

    Attributes:
        what: in words; empty where nothing was named.
        known: how many known failures can concern it, on some versions.
        unseen: the parts of it, in words, of which nothing was ever run and no failure is known.
        void: why nothing can be said of all of it, as a sentence; empty where something can.
        gaps: the same for parts of it.
    """

    what: str
    known: int
    unseen: tuple[str, ...]
    void: str
    gaps: tuple[str, ...]


def of(
    named: Named, trl: Version | None, records: Mapping[str, CompiledAdvisory], uses: Sequence[Use]
) -> KnownSetup:
    """How much is known of what was named, for a release of TRL."""
    concerned = [record for record in records.values() if can_concern(record, named)]
    parts = list(_parts(named))
    unseen = [part for part in parts if not _seen(part, concerned, uses)]
    words = tuple(phrase({n: [v] for n, v in part.items()}) for part in unseen)
    lacking = dict(_not_there(trl, named)) if trl is not None else {}
    void, gaps = "", (*lacking.values(), *(f"no cell was ever run for {one}" for one in words))
    if parts and len(unseen) == len(parts):
        void, gaps = f"no cell was ever run for {either(words)}", tuple(lacking.values())
    elif lacking and len(lacking) == len(named["trainer"]):
        void, gaps = "; ".join(lacking.values()), gaps[len(lacking) :]
    return KnownSetup(phrase(named), len(concerned), words, void, gaps)


def _not_there(trl: Version, named: Named) -> Iterator[tuple[str, str]]:
    """The named trainers that a release of TRL has no more, or not yet, each with the sentence."""
    for trainer in map(str, named.get("trainer", ())):
        one = vocabulary.trainer(trainer, trl)
        if one is not None and not one.is_in(trl):
            end = "on" if one.until == names.known().newest else f"to {one.until}"
            yield trainer, f"TRL {trl} has no {trainer} trainer (others do, from {one.since} {end})"


def _parts(named: Named) -> Iterator[dict[str, Value]]:
    """Each named trainer under each named strategy; nothing where neither was named."""
    ways: list[dict[str, Value]] = []
    for strategy in named.get("strategy", ()):
        stage = STAGES.get(str(strategy), "")
        way = {"strategy": strategy}
        ways += [{**way, stage: value} for value in named.get(stage, ())] or [way]
    trainers: list[dict[str, Value]] = [{"trainer": t} for t in named.get("trainer", ())]
    for trainer in trainers or [{}]:
        for way in ways or [{}]:
            if trainer or way:
                yield {**trainer, **way}


def _seen(
    part: Mapping[str, Value], concerned: Sequence[CompiledAdvisory], uses: Sequence[Use]
) -> bool:
    if any(part.items() <= use.items() for use in uses):
        return True
    blocks = (needed(block.conditions) for record in concerned for block in record.blocks)
    return any(_names(block, part) for block in blocks)


def _names(block: Mapping[str, list[Value]], part: Mapping[str, Value]) -> bool:
    """Whether a scope speaks of this trainer and of this strategy."""
    for name, value in part.items():
        if name not in block:
            # Plain data parallelism and one process have nothing that could fail by itself.
            if name == "trainer" or value in STAGES:
                return False
        elif value not in block[name]:
            return False
    return "trainer" in part or "strategy" in block
