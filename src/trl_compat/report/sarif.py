"""SARIF 2.1.0 from findings, as code scanning services read it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import trl_compat
from trl_compat.report.finding import Finding
from trl_compat.text import uri

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def render(findings: Sequence[Finding], notices: Sequence[str] = ()) -> str:
    """The findings as one run of trl-compat; an empty list says that nothing was found.

    Notices are about the run itself: how much was known, and what could not be looked at.
    """
    rules = {finding.rule_id: finding for finding in findings}
    places = {rule_id: place for place, rule_id in enumerate(rules)}
    driver = {
        "name": "trl-compat",
        "semanticVersion": trl_compat.__version__,
        "rules": [_rule(finding) for finding in rules.values()],
    }
    run: dict[str, Any] = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, places[finding.rule_id]) for finding in findings],
    }
    if notices:
        said = [{"level": "note", "message": {"text": notice}} for notice in notices]
        run["invocations"] = [{"executionSuccessful": True, "toolExecutionNotifications": said}]
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
    place: dict[str, Any] = {"artifactLocation": {"uri": uri.reference(finding.location)}}
    # Code scanning services show nothing without a line.
    place["region"] = {"startLine": finding.line or 1}
    where = f"{finding.location}:{finding.line}" if finding.line else finding.location
    print_of = f"{finding.rule_id}\n{where}\n{finding.message}"
    return {
        "ruleId": finding.rule_id,
        "ruleIndex": rule_index,
        "level": finding.level,
        "message": {"text": finding.message},
        "locations": [{"physicalLocation": place}],
        "partialFingerprints": {"finding/v1": _digest(print_of)},
    }


def _digest(text: str) -> str:
    # Names of files are bytes, and not all of them are text.
    return hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()[:32]
