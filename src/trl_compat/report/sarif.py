"""SARIF 2.1.0 from findings, as code scanning services read it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import trl_compat
from trl_compat.report.findings import Finding

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def render(findings: Sequence[Finding]) -> str:
    """The findings as one run of trl-compat; an empty list says that nothing was found."""
    rules = {
        finding.rule_id: {
            "id": finding.rule_id,
            "shortDescription": {"text": finding.title},
            **({"helpUri": finding.help_uri} if finding.help_uri else {}),
        }
        for finding in findings
    }
    driver = {
        "name": "trl-compat",
        "semanticVersion": trl_compat.__version__,
        "rules": list(rules.values()),
    }
    run = {"tool": {"driver": driver}, "results": [_result(finding) for finding in findings]}
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=1, ensure_ascii=False) + "\n"


def _result(finding: Finding) -> dict[str, Any]:
    path, _, line = finding.location.rpartition(":")
    path, line = (path, line) if line.isdigit() and path else (finding.location, "1")
    place = {"artifactLocation": {"uri": path}, "region": {"startLine": int(line)}}
    return {
        "ruleId": finding.rule_id,
        "level": finding.level,
        "message": {"text": finding.message},
        "locations": [{"physicalLocation": place}],
    }
