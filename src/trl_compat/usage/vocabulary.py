"""The conditions and values that a user may specify; everything else is rejected.

A misspelt name or value would match no advisory and hide all of them.  So a specified condition
must exist: a trainer of some TRL release, a condition that some advisory depends on with a possible
value, or an option of TRL's or transformers' configurations, for which the report says that no
advisory depends on it.  Values in a script are never rejected; they count only as far as an
advisory knows them (:meth:`Vocabulary.known_part`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property

from packaging.version import Version

from trl_compat.conditions import Value, is_bound
from trl_compat.errors import BadInput
from trl_compat.shipped import names, records
from trl_compat.shipped.records import CompiledAdvisory
from trl_compat.text.nearest import either, hint, plain

# The conditions that have all their values here.
DOMAINS: dict[str, tuple[Value, ...]] = {
    "strategy": ("deepspeed", "fsdp", "ddp", "none"),
    "zero_stage": (0, 1, 2, 3),
    "fsdp_version": (1, 2),
    "offload_optimizer": ("none", "cpu", "nvme"),
    "peft": (True, False),
    "device": ("cuda", "cpu"),
}
NUMBERS = ("world_size",)
# As people write these names; classes are called OnlineDPOTrainer, PPOv2Trainer.
SPELLINGS = {"OnlineDPO": "Online DPO", "NashMD": "Nash-MD", "IterativeSFT": "Iterative SFT"}
# Another name of the same trainer, unless some record tells the two apart.
ALIASES = {"PPOv2": "PPO"}
LONGEST = 100  # characters of a value; Python refuses to read numbers of thousands of digits


@dataclass(frozen=True)
class Vocabulary:
    """What may be named.

    Attributes:
        used: the values that records depend on, by condition.
    """

    used: Mapping[str, frozenset[Value]]

    @cached_property
    def trainers(self) -> dict[str, str]:
        """The name of every known trainer by its plain spelling."""
        found = {}
        mine = {str(value) for value in self.used.get("trainer", ())}
        for name in names.known().trainers:
            spelt = SPELLINGS.get(name, name)
            if name not in mine:
                spelt = ALIASES.get(name, spelt)
            found[plain(name)] = spelt
        return {**found, **{plain(name): name for name in mine}}

    def domain(self, name: str) -> tuple[Value, ...] | None:
        """Every value that a condition can have; None where there is no such list."""
        if name in DOMAINS:
            return DOMAINS[name]
        used = self.used.get(name, frozenset())
        # Of an option that records know as true or false, there is nothing else.
        return (True, False) if used and all(isinstance(v, bool) for v in used) else None

    def trainer(self, name: str) -> str | None:
        """A trainer under the name that records use; None if there is none."""
        bare = name.strip()
        return self.trainers.get(plain(bare)) or self.trainers.get(
            plain(bare.removesuffix("Trainer").removesuffix("trainer"))
        )

    def read(self, name: str, value: Value, who: str) -> tuple[Value, ...]:
        """The values that somebody names; several for ``GRPO,SFT``, none for what no record knows.

        Raises:
            BadInput: no such condition, or no such value of it; the nearest are suggested.
        """
        self._exists(name, who)
        if isinstance(value, str) and len(value) > LONGEST:
            raise BadInput(f"{name}: a value of {len(value)} characters; the limit is {LONGEST}")
        if name == "trainer":
            return tuple(self._trainers(str(value), who))
        if name in NUMBERS:
            return (self._number(name, value, who),)
        domain = self.domain(name)
        if domain is None:
            return self.known_part(name, (value,))
        parts = value.split(",") if isinstance(value, str) else [value]
        return tuple(self._one_of(domain, name, part, who) for part in parts)

    def known_part(self, name: str, values: Iterable[Value]) -> tuple[Value, ...]:
        """The values, if records can tell them from theirs; none if one is a stranger.

        A word that no record has may be a slip of the pen, or another spelling; numbers and truth
        values are what they are.  Where records know only a key that is left out, and no words,
        any word says that it is there.
        """
        used = self.used.get(name, frozenset())
        domain = self.domain(name)
        read = [_typed(value) for value in values]
        if domain is not None:
            known = all(value in domain for value in read)
        else:
            words = any(isinstance(value, str) and not is_bound(value) for value in used)
            free = None in used and not words
            known = all(
                value in used
                or (len(value) <= LONGEST and free if isinstance(value, str) else not words)
                for value in read
            )
        return tuple(read) if used and known else ()

    def _exists(self, name: str, who: str) -> None:
        mine = {*DOMAINS, *NUMBERS, "trainer", *self.used}
        options = names.known().options
        if name in mine or name in options:
            return
        near = hint(name, mine | options)
        said = near if near.startswith("did") else f"records depend on {', '.join(sorted(mine))}"
        raise BadInput(f"{who}: unknown condition or option '{name[:LONGEST]}'; {said}")

    def _trainers(self, text: str, who: str) -> list[str]:
        found: list[str] = []
        for part in text.split(","):
            whole = self.trainer(part)
            found += [whole] if whole else self._words(part, who)
        return found

    def _words(self, text: str, who: str) -> list[str]:
        """Trainers with blanks between them; some have a blank in their name."""
        words, found = text.split(), []
        while words:
            for size in (2, 1):
                name = self.trainer(" ".join(words[:size]))
                if name and len(words) >= size:
                    found.append(name)
                    del words[:size]
                    break
            else:
                near = hint(words[0].removesuffix("Trainer"), set(self.trainers.values()))
                raise BadInput(f"{who}: no TRL release has a trainer '{words[0]}'; {near}")
        if not found:
            raise BadInput(f"{who}: names no trainer")
        return found

    @staticmethod
    def _number(name: str, value: Value, who: str) -> int:
        read = _typed(value)
        if isinstance(read, bool) or not isinstance(read, int) or read < 1:
            raise BadInput(f"{who}: {name} must be a number of at least 1")
        return read

    @staticmethod
    def _one_of(domain: tuple[Value, ...], name: str, value: Value, who: str) -> Value:
        read = _typed(value)
        for one in domain:
            if type(one) is type(read) and one == read:
                return one
        if domain == (True, False) and read in (0, 1) and isinstance(read, int):
            return bool(read)
        words = [str(one).lower() if isinstance(one, bool) else str(one) for one in domain]
        raise BadInput(f"{who}: {name} must be {either(words)}, not '{value}'")


def trainer(name: str, trl: Version) -> names.Trainer | None:
    """Which TRL releases have a trainer; None if it is unknown, or if the release is newer."""
    listed = names.known()
    if trl > Version(listed.newest):
        return None
    by_plain = {plain(SPELLINGS.get(key, key)): one for key, one in listed.trainers.items()}
    return by_plain.get(plain(name))


def _typed(value: Value) -> Value:
    """Numbers, truth and nothing as such."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text.casefold() in ("true", "false"):
        return text.casefold() == "true"
    if text == "null":  # as in records: the configuration does not have the key
        return None
    if re.fullmatch(r"-?[0-9]{1,18}", text):
        return int(text)
    if re.fullmatch(r"-?[0-9]{1,18}(\.[0-9]{1,18})?(e-?[0-9]{1,3})?", text):
        return float(text)
    return text


def of(
    known: Mapping[str, CompiledAdvisory], uses: Iterable[Mapping[str, Value]] = ()
) -> Vocabulary:
    """The vocabulary of records, and of what was run for them."""
    used: dict[str, set[Value]] = {}
    for record in known.values():
        for block in record.blocks:
            for name, values in block.conditions.items():
                used.setdefault(name, set()).update(values)
            for before in (*block.absent, *block.hidden):
                for name, values in before.conditions.items():
                    used.setdefault(name, set()).update(values)
    for use in uses:
        for name, value in use.items():
            used.setdefault(name, set()).add(value)
    return Vocabulary({name: frozenset(values) for name, values in used.items()})


@cache
def shipped() -> Vocabulary:
    """The vocabulary of the records that are shipped."""
    return of(records.shipped(), records.shipped_uses())
