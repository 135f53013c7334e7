"""How long the page takes in Chromium: ``python -m tests.harness.page_bench``.

Measured on the committed results, and on made ones of the size of a grid: from the start of the
navigation to the page being parsed and to its first picture, and each filter to the next picture.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from tests.harness.browsers import ARGUMENTS, CHROMIUM
from tests.harness.conftest import ROOT
from tests.harness.large_results import large
from trl_compat import advisories, results
from trl_compat.report import html
from trl_compat.results import Results

PAINTED = "performance.getEntriesByName('first-contentful-paint').length > 0"
OPENED = """() => [performance.getEntriesByType("navigation")[0].domContentLoadedEventEnd,
  performance.getEntriesByName("first-contentful-paint")[0].startTime]"""
FILTERED = """([name, value]) => new Promise((done) => {
  const field = document.querySelector("#filters").elements[name];
  const start = performance.now();
  field.value = value;
  field.dispatchEvent(new Event("input", { bubbles: true }));
  const script = performance.now() - start;
  requestAnimationFrame(() => setTimeout(() => done([script, performance.now() - start])));
})"""
FILTERS = [
    ("q", "grpo fsdp 0.14"),
    ("q", ""),
    ("failure", "ppo-zero3-save"),
    ("outcome", "masked"),
    ("outcome", ""),
    ("failure", ""),
    ("mine-trl", "0.20.1"),
    ("mine-transformers", "4.53.2"),
    ("mine-trl", ""),
]


def measure(browser: Any, path: Path) -> None:
    """Prints what one page takes, the median of three openings."""
    opened, parsed = [], []
    for _ in range(3):
        page = browser.new_page()
        page.goto(path.as_uri())
        page.wait_for_function(PAINTED)
        times = page.evaluate(OPENED)
        parsed.append(times[0])
        opened.append(times[1])
        last = page
    print(f"{path.stat().st_size / 1e6:.2f} MB, parsed {sorted(parsed)[1]:.0f} ms,", end=" ")
    print(f"first picture {sorted(opened)[1]:.0f} ms")
    for name, value in FILTERS:
        script, drawn = last.evaluate(FILTERED, [name, value])
        print(f"  {name} = {value!r}: {script:.0f} ms, drawn after {drawn:.0f} ms")


def main() -> None:
    """Measures both."""
    from playwright.sync_api import sync_playwright

    committed = results.read(ROOT / "reports" / "results.json")
    assert committed is not None
    catalogue = advisories.load(ROOT / "advisories", ROOT / "tests" / "reproductions")
    shown: dict[str, Results] = {"committed": committed, "large": large()}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=ARGUMENTS, chromium_sandbox=False
        )
        for name, document in shown.items():
            path = Path(folder, f"{name}.html")
            path.write_bytes(html.render(document, catalogue).encode())
            print(f"{name}: {len(document.cells)} cells, {len(document.stacks)} stacks:", end=" ")
            measure(browser, path)
        browser.close()


if __name__ == "__main__":
    main()
