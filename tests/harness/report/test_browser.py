"""The page in a real browser, as a person uses it: filters, opens a cell, copies a fix.

Needs the extra ``browser`` (playwright and axe-core) and a Chromium; skipped, with the reason,
where either is missing.  Nothing is loaded from anywhere: the page is opened from the disk.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.conftest import ROOT

pytestmark = pytest.mark.browser
sync_api = pytest.importorskip("playwright.sync_api", reason="the extra 'browser' is not installed")

CHROMIUM = os.environ.get("CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
ARGUMENTS = [
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PAGE = ROOT / "reports" / "compatibility.html"
SHAPES = {
    "wide": {"viewport": {"width": 1400, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1400, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no Chromium on the path; name one in CHROMIUM")
    with sync_api.sync_playwright() as playwright:
        # Without its sandbox, which a container's root user cannot have; the page is our own.
        started = playwright.chromium.launch(
            executable_path=CHROMIUM, args=ARGUMENTS, chromium_sandbox=False
        )
        yield started
        started.close()


@pytest.fixture(params=["wide"])
def page(browser: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The page in one of the shapes; whatever it complains about fails the test."""
    context = browser.new_context(**SHAPES[request.param])
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    opened = context.new_page()
    complaints: list[str] = []
    url = PAGE.as_uri()
    opened.on("console", lambda message: complaints.append(message.text))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("request", lambda asked: complaints.append(asked.url) if asked.url != url else None)
    opened.goto(url)
    yield opened
    context.close()
    assert complaints == []


every_shape = pytest.mark.parametrize("page", list(SHAPES), indirect=True)


def test_a_box_opens_its_evidence_and_the_keyboard_closes_it(page: Any) -> None:
    box = page.locator(".overview tbody a.fail").first
    box.focus()
    page.keyboard.press("Enter")
    dialog = page.locator("dialog#evidence")
    assert dialog.is_visible()
    said = dialog.inner_text()
    for part in ("What was run", "Signature", "Asserted", "The fix", "Run it again", "Stand-ins"):
        assert part in said
    assert "nox -s matrix -- --stack" in said
    page.keyboard.press("Escape")
    assert not dialog.is_visible()
    assert box.evaluate("element => element === document.activeElement")


def test_a_fix_and_its_proof_are_one_step_from_the_failure(page: Any) -> None:
    page.locator(".overview tbody a.fail").first.click()
    dialog = page.locator("dialog#evidence")
    snippet = dialog.locator("dt:text-is('The fix') + dd .snippet")
    snippet.locator("button.copy").click()
    snippet.locator("button.copy:text-is('Copied')").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == snippet.locator("pre").inner_text()
    assert copied.startswith("from trl_compat.fixes import ")
    dialog.locator("button:text-is('See the proof')").first.click()
    assert "✓ pass" in dialog.locator("details[open] summary").first.inner_text()
    assert "__" in page.evaluate("location.hash")  # a link to this very cell


def test_a_link_to_a_cell_opens_it(page: Any) -> None:
    cell = page.evaluate("JSON.parse(document.getElementById('results').textContent).rows[5][0]")
    page.evaluate("id => { location.hash = `cell=${id}`; }", cell)
    page.locator(f'details[data-cell="{cell}"][open]').wait_for()


def test_filters_and_search_leave_what_matches(page: Any) -> None:
    rows = page.locator(".overview tbody tr:visible")
    everything = rows.count()
    page.fill("input[name=q]", "grpo fsdp 0.14.0")
    assert rows.count() == 1
    assert rows.first.locator("b").inner_text() == "0.14.0"
    assert "of" in page.locator("#matching").inner_text()
    listed = page.locator("#list tbody tr").all_inner_texts()
    assert listed
    assert all("trl-0.14.0" in row and "grpo-fsdp-ref-device" in row for row in listed)
    page.click("button[type=reset]")
    page.wait_for_function(
        "count => document.querySelectorAll('.overview tbody tr:not([hidden])').length === count",
        arg=everything,
    )
    page.click("summary:text-is('Filters')")
    page.select_option("select[name=torch]", index=1)
    page.select_option("select[name=failure]", "ppo-zero3-save")
    assert 0 < rows.count() < everything
    assert page.locator(".overview thead th:visible").count() == 2
    page.select_option("select[name=outcome]", "masked")
    assert page.locator("#matching").inner_text().startswith("0 of ")


def test_every_box_has_evidence(page: Any) -> None:
    unknown = page.evaluate(
        """() => {
          const data = JSON.parse(document.getElementById("results").textContent);
          const [stack, failure] = ["stack", "failure"].map((name) => data.columns.indexOf(name));
          const known = new Set(data.rows.map((row) => `${row[stack]} ${row[failure]}`));
          return [...document.querySelectorAll(".overview a.mark")]
            .map((box) => `${box.dataset.stack} ${box.dataset.failure}`)
            .filter((place) => !known.has(place));
        }"""
    )
    assert unknown == []


def test_the_newest_proven_set_of_a_release_is_found(page: Any) -> None:
    page.select_option("#release", label="1.16.0")
    row = page.locator(".together tbody tr:visible")
    assert row.count() == 1
    row.locator("summary").click()
    assert "trl==1.16.0" in row.locator("pre").inner_text()


@pytest.mark.parametrize("page", ["phone"], indirect=True)
def test_nothing_hangs_over_the_edge_of_a_phone(page: Any) -> None:
    page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.locator(".overview tbody a.fail").first.click()
    assert page.locator("dialog#evidence").bounding_box()["width"] == 390


@every_shape
def test_axe_finds_nothing(page: Any) -> None:
    axe = pytest.importorskip(
        "axe_playwright_python", reason="the extra 'browser' is not installed"
    )
    script = Path(axe.__file__).with_name("axe.min.js").read_text(encoding="utf-8")
    page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    for opened in (False, True):
        if opened:
            page.locator(".overview tbody a.fail").first.click()
        # Through the debugger: the page itself would refuse to run it.
        page.evaluate(script)
        found = page.evaluate("axe.run()")["violations"]
        assert [(v["id"], v["impact"], [n["html"] for n in v["nodes"][:3]]) for v in found] == []


def test_without_javascript_the_table_and_the_fixes_are_there(browser: Any) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(PAGE.as_uri())
    assert page.locator(".overview tbody tr:visible").count() > 1
    assert page.locator("#ppo-zero3-save pre").first.is_visible()
    assert page.locator(".js-only:visible, .copy:visible").count() == 0
    context.close()


def screenshots(folder: Path, shapes: list[str]) -> None:
    """Writes a picture of each shape: ``python -m tests.harness.report.test_browser docs``."""
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=CHROMIUM, args=ARGUMENTS, chromium_sandbox=False
        )
        for name in shapes:
            opened = started.new_context(**SHAPES[name]).new_page()
            opened.goto(PAGE.as_uri())
            opened.screenshot(path=folder / f"report-{name}.png")
        started.close()


if __name__ == "__main__":
    import sys

    screenshots(Path(sys.argv[1]), sys.argv[2:] or ["wide"])
