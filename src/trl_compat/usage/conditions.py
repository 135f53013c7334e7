"""The conditions that a user can specify (trainer, strategy, options), and the words for them.

A condition is a name with one or more values.  Specifying one excludes the scopes that need another
value; all given values are assumed to be used.  An unspecified condition stays open, and failures
that depend on it are listed as "applies if you use ...".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from trl_compat.conditions import Value, in_words, is_bound
from trl_compat.errors import BadInput
from trl_compat.shipped import names
from trl_compat.text.nearest import either, plain
from trl_compat.usage import vocabulary
from trl_compat.usage.strategies import WORDS as STRATEGY_WORDS
from trl_compat.usage.strategies import conditions_of
from trl_compat.usage.vocabulary import Vocabulary

Named = Mapping[str, tuple[Value, ...]]

# Which package a condition needs: without it, the condition cannot hold.
NEEDS = {("strategy", "deepspeed"): "deepspeed", ("peft", True): "peft"}
# What naming one condition says about another.
IMPLIES: dict[str, tuple[str, Value]] = {
    "zero_stage": ("strategy", "deepspeed"),
    "offload_optimizer": ("strategy", "deepspeed"),
    "gradient_clipping": ("strategy", "deepspeed"),
    "fsdp_version": ("strategy", "fsdp"),
}
# The trainers that a named one is a subclass of, where no record knows it by its own name.
EXTENDED = "extended_trainer"
WORDS: dict[tuple[str, Value], str] = {
    **{("strategy", str(name)): words for name, words in STRATEGY_WORDS.items()},
    ("peft", True): "a PEFT model",
    ("peft", False): "no PEFT",
    ("offload_optimizer", "cpu"): "the optimizer offloaded to the CPU",
    ("offload_optimizer", "nvme"): "the optimizer offloaded to a disk",
    ("offload_optimizer", "none"): "no optimizer offload",
    ("device", "cpu"): "CPU ranks",
    ("device", "cuda"): "GPUs",
}


@dataclass
class UsageBuilder:
    """What was named, by whom; two that contradict each other are refused.

    Who speaks first (the command line before the files) may say less or more than who comes after.
    """

    words: Vocabulary = field(default_factory=vocabulary.shipped)
    values: dict[str, tuple[Value, ...]] = field(default_factory=dict)
    said_by: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def say(self, name: str, values: Iterable[Value], who: str) -> None:
        """Names a condition, and what it implies.

        Raises:
            BadInput: there is no such condition or value, or something else was said before.
        """
        given = list(values)
        if name == "strategy":
            self._strategies([str(value) for value in given], who)
            return
        wanted = [one for value in given for one in self.words.read(name, value, who)]
        if wanted:
            self._set(name, wanted, who)
        elif name in self.words.used:
            self.notes.append(f"{who}: no record has this value; {name} is treated as unspecified")
        else:
            self.notes.append(f"{who}: no record depends on {name}; it is ignored")

    def state(self, name: str, values: Iterable[Value], who: str) -> None:
        """What a file says literally: it counts as far as records know it, and is never refused.

        Raises:
            BadInput: something else was said before.
        """
        known = self.words.known_part(name, values)
        if known:
            self._set(name, known, who)

    def _strategies(self, given: Sequence[str], who: str) -> None:
        try:
            meant = conditions_of(given)
        except BadInput as error:
            raise BadInput(f"{who}: {error}") from None
        for name, values in meant.items():
            self._set(name, values, who)

    def _set(self, name: str, values: Iterable[Value], who: str) -> None:
        wanted = tuple(dict.fromkeys(values))
        before = self.values.get(name)
        if before is not None and not set(wanted) & set(before):
            raise BadInput(
                f"{who} says {name} = {either(wanted)}, {self.said_by[name]} says "
                f"{either(before)}; give one value"
            )
        if before is None:
            self.values[name], self.said_by[name] = wanted, who
        if name in IMPLIES:
            other, value = IMPLIES[name]
            self._set(other, (value,), who)
        if name == "trainer" and before is None:
            heirs = _extended(wanted, self.words)
            if heirs:
                self.values[EXTENDED] = heirs


def _extended(trainers: Iterable[Value], words: Vocabulary) -> tuple[Value, ...]:
    """What trainers that no record names are subclasses of, as far as records name that."""
    known = words.used.get("trainer", frozenset())
    by_plain = {plain(name): one for name, one in names.known().trainers.items()}
    found: dict[Value, None] = {}
    todo = [plain(str(trainer)) for trainer in trainers if trainer not in known]
    while todo:
        one = by_plain.get(todo.pop())
        for base in one.extends if one else ():
            spelt = words.trainer(base)
            if spelt in known:
                found[str(spelt)] = None
            else:
                todo.append(plain(base))
    return tuple(found)


def needed(block: Mapping[str, list[Value]]) -> dict[str, list[Value]]:
    """The conditions of a scope with what they imply."""
    implied = {other: [value] for name, (other, value) in IMPLIES.items() if name in block}
    return {**implied, **block}


def phrase(conditions: Mapping[str, Sequence[Value]]) -> str:
    """``the PPO trainer with ZeRO-3``."""
    rest = dict(conditions)
    parts = []
    rest.pop(EXTENDED, None)
    if "trainer" in rest:
        parts.append(f"the {either(rest.pop('trainer'))} trainer")
    if "zero_stage" in rest:
        others = [v for v in rest.pop("strategy", ()) if v != "deepspeed"]
        stages = [f"ZeRO-{stage}" for stage in rest.pop("zero_stage")]
        parts.append(either([*stages, *(WORDS.get(("strategy", v), v) for v in others)]))
    if "fsdp_version" in rest:
        rest.pop("strategy", None)
        parts.append(either(f"FSDP{version}" for version in rest.pop("fsdp_version")))
    parts += [worded(name, values) for name, values in rest.items()]
    return " with ".join(parts[:2]) + "".join(f" and {part}" for part in parts[2:])


def worded(name: str, values: Sequence[Value]) -> str:
    """``name=2, 3 or 4``, ``name >= 3``, ``no name in the configuration``."""
    known = [WORDS[name, value] for value in values if (name, value) in WORDS]
    if len(known) == len(values):
        return either(known)
    exact = [value for value in values if value is not None and not is_bound(value)]
    parts = [f"{name}={either(exact)}"] if exact else []
    parts += [f"{name} {in_words(str(value))}" for value in values if is_bound(value)]
    if None in values:
        parts.append(f"no {name} in the configuration")
    return either(parts)
