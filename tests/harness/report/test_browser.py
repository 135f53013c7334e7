"""The page in a real browser, as a person uses it: filters, opens a cell, copies a fix.

Needs the extra ``browser`` (playwright and axe-core) and a Chromium; skipped, with the reason,
where either is missing.  Nothing is loaded from anywhere: the page is opened from the disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.harness.browsers import ARGUMENTS, CHROMIUM
from tests.harness.conftest import ROOT
from tests.harness.large_results import large
from tests.harness.report_page import cell_of
from trl_compat import results
from trl_compat.advisories import load as load_advisories
from trl_compat.report import html

pytestmark = pytest.mark.browser
sync_api = pytest.importorskip("playwright.sync_api", reason="the extra 'browser' is not installed")

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


def rendered(document: results.Results, folder: Path) -> Path:
    catalogue = load_advisories(ROOT / "advisories", ROOT / "tests" / "reproductions")
    path = folder / "compatibility.html"
    path.write_bytes(html.render(document, catalogue).encode())
    return path


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the committed results."""
    found = results.read(ROOT / "reports" / "results.json")
    assert found is not None
    return rendered(found, tmp_path_factory.mktemp("committed"))


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of ten thousand cells on 120 stacks."""
    return rendered(large(), tmp_path_factory.mktemp("grid"))


@pytest.fixture(params=["wide"])
def page(browser: Any, committed: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The page in one of the shapes; whatever it complains about fails the test."""
    with shown(browser, committed, request.param) as opened:
        yield opened


@pytest.fixture(params=["wide"])
def large_page(browser: Any, grid: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The same of a grid's page."""
    with shown(browser, grid, request.param) as opened:
        yield opened


@contextmanager
def shown(browser: Any, path: Path, shape: str) -> Iterator[Any]:
    """A page that is open; whatever it complains about fails the test."""
    context = browser.new_context(**SHAPES[shape])
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    opened = context.new_page()
    complaints: list[str] = []
    url = path.as_uri()
    opened.on("console", lambda message: complaints.append(message.text))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("request", lambda asked: complaints.append(asked.url) if asked.url != url else None)
    opened.goto(url)
    yield opened
    context.close()
    assert complaints == []


def first_failing(page: Any) -> Any:
    """The first box of a failing stack, with the groups of stacks unfolded."""
    folded = ".overview .minor:not([hidden]) .fold[aria-expanded=false]"
    page.evaluate("folded => document.querySelectorAll(folded).forEach((b) => b.click())", folded)
    return page.locator(".overview .stacks a.fail:visible").first


every_shape = pytest.mark.parametrize("page", list(SHAPES), indirect=True)


def test_a_box_opens_its_evidence_and_the_keyboard_closes_it(page: Any) -> None:
    box = first_failing(page)
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
    first_failing(page).click()
    dialog = page.locator("dialog#evidence")
    snippet = dialog.locator("dt:text-is('The fix') + dd .snippet").first
    snippet.locator("button.copy").click()
    snippet.locator("button.copy:text-is('Copied')").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == snippet.locator("pre").inner_text()
    assert copied.startswith("from trl_compat.fixes import ")
    dialog.locator("button:text-is('See the proof')").first.click()
    assert "✓ pass" in dialog.locator("details[open] summary").first.inner_text()
    assert "__" in page.evaluate("location.hash")  # a link to this very cell


def test_a_link_to_a_cell_opens_it(page: Any) -> None:
    data = page.evaluate("JSON.parse(document.getElementById('results').textContent)")
    cell = cell_of(data, 5)["id"]
    page.evaluate("id => { location.hash = `cell=${id}`; }", cell)
    page.locator(f'details[data-cell="{cell}"][open]').wait_for()


def test_filters_and_search_leave_what_matches(page: Any) -> None:
    rows = page.locator(".overview .stacks tr:visible")
    shown = ".overview .stacks tr:not([hidden])"
    everything = page.locator(shown).count()
    page.fill("input[name=q]", "grpo fsdp 0.14.0")
    page.locator(".overview .stacks.open").first.wait_for()
    assert set(rows.locator("b").all_inner_texts()) == {"0.14.0"}
    assert "of" in page.locator("#matching").inner_text()
    listed = page.locator("#list tbody tr").all_text_contents()
    assert listed
    assert all("0.14.0" in row and "grpo-fsdp-ref-device" in row for row in listed)
    page.click("button[type=reset]")
    page.wait_for_function(
        "([shown, count]) => document.querySelectorAll(shown).length === count",
        arg=[shown, everything],
    )
    page.click("summary:text-is('Filters')")
    page.select_option("select[name=torch]", index=1)
    page.select_option("select[name=failure]", "ppo-zero3-save")
    assert 0 < page.locator(shown).count() < everything
    assert page.locator(".overview thead th:visible").count() == 2
    page.select_option("select[name=outcome]", "masked")
    assert page.locator("#matching").inner_text().startswith("0 of ")


def test_every_box_has_evidence(page: Any) -> None:
    data = page.evaluate("JSON.parse(document.getElementById('results').textContent)")
    cells = [cell_of(data, number) for number in range(data["count"])]
    known = {(cell["stack"], cell["failure"]) for cell in cells}
    boxes = page.locator(".overview .stacks a.mark").evaluate_all(
        "boxes => boxes.map((box) => [box.closest('tr'), box.closest('td')])"
        ".map(([row, cell]) => [row.dataset.stack, cell.dataset.failure])"
    )
    assert boxes
    unknown = [box for box in boxes if tuple(box) not in known]
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
    first_failing(page).click()
    assert page.locator("dialog#evidence").bounding_box()["width"] == 390


@every_shape
def test_axe_finds_nothing(page: Any) -> None:
    assert_accessible(page)


def test_axe_finds_nothing_on_a_grid(large_page: Any) -> None:
    large_page.fill("input[name=mine-trl]", "0.14.1")
    assert_accessible(large_page)


def assert_accessible(page: Any) -> None:
    axe = pytest.importorskip(
        "axe_playwright_python", reason="the extra 'browser' is not installed"
    )
    script = Path(axe.__file__).with_name("axe.min.js").read_text(encoding="utf-8")
    page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    # What is off the screen is not drawn; it is to be seen all the same.
    page.evaluate("document.querySelector('#cells').style.contentVisibility = 'visible'")
    for opened in (False, True):
        if opened:
            first_failing(page).click()
        # Through the debugger: the page itself would refuse to run it.
        page.evaluate(script)
        found = page.evaluate("axe.run()")["violations"]
        assert [(v["id"], v["impact"], [n["html"] for n in v["nodes"][:3]]) for v in found] == []


def test_the_rows_of_a_grid_are_folded_by_minor_release(large_page: Any) -> None:
    rows = large_page.locator(".overview .stacks tr:visible")
    minors = large_page.locator(".overview .minor:visible")
    assert rows.count() == 0
    assert minors.count() > 30
    fold = large_page.locator(".minor[data-minor='0.14'] .fold")
    fold.click()
    assert fold.get_attribute("aria-expanded") == "true"
    assert rows.count() == large_page.locator(".stacks[data-minor='0.14'] tr").count() > 1
    fold.click()
    assert rows.count() == 0


def test_whoever_names_versions_that_were_run_finds_their_row(large_page: Any) -> None:
    large_page.fill("input[name=mine-trl]", "0.14")
    rows = large_page.locator(".overview .stacks tr:visible")
    assert rows.count() == large_page.locator(".stacks[data-minor='0.14'] tr").count()
    assert "in 4 stacks" in large_page.locator("#nearest").inner_text()
    large_page.click("button[type=reset]")
    large_page.locator("#nearest").wait_for(state="hidden")
    assert rows.count() == 0


def test_whoever_names_others_is_shown_the_nearest_and_what_differs(large_page: Any) -> None:
    large_page.fill("input[name=mine-trl]", "0.14.0")
    large_page.fill("input[name=mine-transformers]", "4.49.1")
    said = large_page.locator("#nearest").inner_text()
    assert said.startswith("Your versions were not run together. Nearest to yours:")
    items = large_page.locator("#nearest li").all_inner_texts()
    assert len(items) == 5
    assert "instead of 4.49.1" in items[0]
    assert "trl 0.14.0" in items[0]
    assert large_page.locator(".overview .stacks tr:visible").count() == 5
    large_page.fill("input[name=mine-trl]", "newest")
    assert "“newest” is not a version" in large_page.locator("#nearest").inner_text()


def test_a_cell_of_a_grid_is_put_together_from_its_columns(large_page: Any) -> None:
    data = large_page.evaluate("JSON.parse(document.getElementById('results').textContent)")
    assert data["count"] == 10_000
    wanted = large().cells[7_777]
    assert cell_of(data, 7_777)["command"] == wanted.command
    large_page.evaluate("id => { location.hash = `cell=${id}`; }", wanted.id)
    opened = large_page.locator(f'details[data-cell="{wanted.id}"][open]')
    opened.wait_for()
    assert wanted.command in opened.inner_text()


def test_the_search_finds_what_is_on_a_grid(large_page: Any) -> None:
    large_page.fill("input[name=q]", "PPO grid-trl-0.12.2")
    listed = large_page.locator("#list tbody tr").all_text_contents()
    assert listed
    assert all("trl-0.12.2" in row for row in listed)
    assert 0 < large_page.locator(".overview .stacks tr:visible").count() <= 4


@pytest.mark.parametrize("which", ["committed", "grid"])
def test_without_javascript_the_table_and_the_fixes_are_there(
    browser: Any, which: str, request: pytest.FixtureRequest
) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(request.getfixturevalue(which).as_uri())
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
            opened.goto((ROOT / "reports" / "compatibility.html").as_uri())
            opened.screenshot(path=folder / f"report-{name}.png")
        started.close()


if __name__ == "__main__":
    import sys

    screenshots(Path(sys.argv[1]), sys.argv[2:] or ["wide"])
