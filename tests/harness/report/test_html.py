"""compatibility.html: no recorded text acts in it, and the same results give the same bytes."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest

from tests.harness.conftest import ROOT
from tests.harness.large_results import large
from tests.harness.made_results import cell, document
from tests.harness.report_page import cell_of
from trl_compat import results
from trl_compat.advisories import Catalogue
from trl_compat.advisories import load as load_advisories
from trl_compat.report import html
from trl_compat.results import Results

HOSTILE = "</script><img src=x onerror=alert(1)><!--<script>'\"&\u2028]]>{{ 7*7 }}"


class Page(HTMLParser):
    """The elements of a page, and the text of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.words: list[str] = []
        self._in_script = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._in_script = tag == "script"

    def handle_endtag(self, tag: str) -> None:
        self._in_script = False

    def handle_data(self, data: str) -> None:
        (self.scripts if self._in_script else self.words).append(data)


@pytest.fixture
def ours() -> Catalogue:
    return load_advisories(ROOT / "advisories", ROOT / "tests" / "reproductions")


@pytest.fixture
def committed() -> Results:
    found = results.read(ROOT / "reports" / "results.json")
    assert found is not None
    return found


def hostile(catalogue: Catalogue) -> tuple[Results, Catalogue]:
    """Results and advisories in which every free text is hostile."""
    signature = {"exception": HOSTILE, "message": HOSTILE, "where": HOSTILE}
    texts = dict.fromkeys(("reason", "traceback", "variant", "model", "fix", "evidence"), HOSTILE)
    texts |= {"command": HOSTILE, "stack": HOSTILE, "log": "javascript:alert(1)"}
    shown = document(
        cell(**texts, signature=signature, checks=[HOSTILE], stand_ins=[HOSTILE], fixed=True),
        cell(stack=HOSTILE),
        cell(id="other", stack=HOSTILE, outcome="not-applicable", reason=HOSTILE),
    )
    stack = shown.stacks["s"].model_copy(update={"packages": {HOSTILE: HOSTILE}})
    host = shown.host.model_copy(update={"cpu": HOSTILE, "gpus": [HOSTILE]})
    changes = {"stacks": {HOSTILE: stack}, "host": host, "command": HOSTILE, "profile": HOSTILE}
    advisory = catalogue["ppo-zero3-save"].model_copy(
        update=dict.fromkeys(("title", "summary", "cause", "advice"), HOSTILE)
    )
    records = {**catalogue.records, advisory.id: advisory}
    return shown.model_copy(update=changes), Catalogue(records=records)


def test_hostile_texts_stay_texts(ours: Catalogue) -> None:
    text = html.render(*hostile(ours))
    page = Page(text)
    assert len(page.scripts) == 2, "a text ended a script element"
    names = {name for _, attributes in page.elements for name in attributes}
    assert not {name for name in names if name.startswith("on")}
    assert "img" not in {tag for tag, _ in page.elements}
    links = [attributes.get("href") or "" for tag, attributes in page.elements if tag == "a"]
    assert {link.partition(":")[0] for link in links if ":" in link} == {"https"}
    data = json.loads(page.scripts[0])
    assert not set("<>&\u2028") & set(page.scripts[0])
    row = cell_of(data, 0)
    assert row["reason"] == HOSTILE  # nothing is lost either
    assert row["log"] is None  # a link only ever leads to the logs


def test_a_page_that_trusts_its_texts_would_be_noticed(
    ours: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check above, seen to fail."""
    monkeypatch.setattr(html, "_json", json.dumps)
    page = Page(html.render(*hostile(ours)))
    assert len(page.scripts) != 2
    assert ("img", {"src": "x", "onerror": "alert(1)"}) in page.elements


def test_only_our_own_script_may_run(ours: Catalogue, committed: Results) -> None:
    page = Page(html.render(committed, ours))
    (policy,) = [
        attributes["content"] or ""
        for tag, attributes in page.elements
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert html._digest(page.scripts[1]) in policy
    assert "unsafe" not in policy


def test_nothing_is_loaded_from_anywhere(ours: Catalogue, committed: Results) -> None:
    page = Page(html.render(committed, ours))
    assert not {"link", "img", "iframe"} & {tag for tag, _ in page.elements}
    assert not [attributes for _, attributes in page.elements if "src" in attributes]


def test_the_same_results_give_the_same_bytes(ours: Catalogue, committed: Results) -> None:
    assert html.render(committed, ours) == html.render(committed, ours)


def test_a_grid_of_ten_thousand_cells_stays_a_small_file(ours: Catalogue) -> None:
    grid = large()
    assert (len(grid.cells), len(grid.stacks)) == (10_000, 120)
    text = html.render(grid, ours)
    assert len(text.encode()) < 3_000_000
    assert 'id="grid">The grid</h3>' in text
    assert text.count(", pair by pair</summary>") == 2
    data = json.loads(Page(text).scripts[0])
    for number in range(0, 10_000, 97):
        cell, told = grid.cells[number], cell_of(data, number)
        assert (told["id"], told["command"]) == (cell.id, cell.command)
        assert (told["traceback"], told["seconds"]) == (cell.traceback, cell.seconds)


def test_a_large_run_stays_a_sane_file(ours: Catalogue, committed: Results) -> None:
    trace = "\n".join(f'  File "site-packages/trl/trainer/x.py", line {n}, in f' for n in range(12))
    cells = [
        c.model_copy(update={"id": f"{c.id}-{n}", "traceback": trace if c.signature else ""})
        for n in range(4)
        for c in committed.cells
    ]
    text = html.render(committed.model_copy(update={"cells": cells[:1400]}), ours)
    assert len(text.encode()) < 3_000_000


def test_the_first_table_needs_no_script(ours: Catalogue, committed: Results) -> None:
    text = html.render(committed, ours)
    before_script = text[: text.index("<script")]
    rows = re.findall(r'<tr data-stack="([^"]+)">\n<th scope="row"><b>', before_script)
    assert rows[: len(committed.stacks)][0] == "newest"
    assert set(committed.stacks) <= set(rows)
    assert before_script.count('class="mark fail"') > 0
    assert "fix proven" in before_script
