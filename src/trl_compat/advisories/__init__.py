"""Advisories: one record per failure, the single source for everything said about it.

An advisory states which stacks are affected, as conjunctions of version ranges, commits and
conditions; what the failure looks like (its symptoms); how to trigger it; and which fixes work and
which do not.  An advisory with ``masks: true`` describes a failure that stops other reproductions
before they can show their failure.  Expectations, doctor, gate, tables, xfail marks, pip
constraints and OSV records are derived from advisories.
"""

from trl_compat.advisories.catalogue import Catalogue, load, load_available, load_leniently
from trl_compat.advisories.schema import (
    INTERNAL,
    STANDALONE,
    Absent,
    Advisory,
    Affected,
    ConditionMap,
    Fix,
    FixBase,
    Phase,
    Reference,
    Reproduction,
    Scope,
    Severity,
    Workaround,
    WrongFix,
)
from trl_compat.advisories.symptom import Symptom

__all__ = [
    "INTERNAL",
    "STANDALONE",
    "Absent",
    "Advisory",
    "Affected",
    "Catalogue",
    "ConditionMap",
    "Fix",
    "FixBase",
    "Phase",
    "Reference",
    "Reproduction",
    "Scope",
    "Severity",
    "Symptom",
    "Workaround",
    "WrongFix",
    "load",
    "load_available",
    "load_leniently",
]
