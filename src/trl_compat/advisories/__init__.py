"""Advisories: one record per failure, the single source of all that is said about it.

An advisory says which stacks are affected as conjunctions of version ranges, commits and
conditions, what the failure looks like (its symptoms), how to provoke it, and which fixes work and
which do not.  An advisory with ``masks: true`` describes a failure that stops other reproductions
before their place of interest.  Derived from it: expectations, doctor, gate, tables, xfail marks,
pip constraints and records in the OSV format.
"""

from trl_compat.advisories.catalogue import Catalogue, at_hand, load, load_leniently
from trl_compat.advisories.schema import (
    INTERNAL,
    STANDALONE,
    Absent,
    Advisory,
    Affected,
    Avoidance,
    Conditions,
    Fix,
    Moment,
    Reference,
    Remedy,
    Reproduction,
    Scope,
    Severity,
    Symptom,
    WrongFix,
)

__all__ = [
    "INTERNAL",
    "STANDALONE",
    "Absent",
    "Advisory",
    "Affected",
    "Avoidance",
    "Catalogue",
    "Conditions",
    "Fix",
    "Moment",
    "Reference",
    "Remedy",
    "Reproduction",
    "Scope",
    "Severity",
    "Symptom",
    "WrongFix",
    "at_hand",
    "load",
    "load_leniently",
]
