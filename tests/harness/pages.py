"""The pages of the documentation."""

from __future__ import annotations

from tests.harness.conftest import ROOT

PAGES = ["README.md", "CONTRIBUTING.md", *(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))]
