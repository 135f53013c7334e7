"""SARIF 2.1.0 from findings, as code scanning services read it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any

import trl_compat
from trl_compat.report.findings import Finding

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LOCATION = re.compile(r"(?P<path>.+?)(?::(?P<line>[1-9]\d*))?")


def render(findings: Sequence[Finding]) -> str:
    """The findings as one run of trl-compat; an empty list says that nothing was found."""
    rules = {finding.rule_id: finding for finding in findings}
    places = {rule_id: place for place, rule_id in enumerate(rules)}
    driver = {
        "name": "trl-compat",
        "semanticVersion": trl_compat.__version__,
        "rules": [_rule(finding) for finding in rules.values()],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, places[finding.rule_id]) for finding in findings],
    }
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=1, ensure_ascii=False) + "\n"


def _rule(finding: Finding) -> dict[str, Any]:
    rule: dict[str, Any] = {
        "id": finding.rule_id,
        "shortDescription": {"text": finding.title},
        "defaultConfiguration": {"level": finding.level},
    }
    if finding.help_uri:
        rule["helpUri"] = finding.help_uri
    return rule


def _result(finding: Finding, rule_index: int) -> dict[str, Any]:
    found = LOCATION.fullmatch(finding.location)
    assert found is not None, "a finding is about some file"
    place: dict[str, Any] = {"artifactLocation": {"uri": found["path"]}}
    # Code scanning services show nothing without a line.
    place["region"] = {"startLine": int(found["line"] or 1)}
    print_of = f"{finding.rule_id}\n{finding.location}\n{finding.message}"
    return {
        "ruleId": finding.rule_id,
        "ruleIndex": rule_index,
        "level": finding.level,
        "message": {"text": finding.message},
        "locations": [{"physicalLocation": place}],
        "partialFingerprints": {"finding/v1": hashlib.sha256(print_of.encode()).hexdigest()[:32]},
    }
