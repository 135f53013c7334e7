"""What others wrote is printed as text: no command, no control sequence, no markup of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import unicodedata
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.harness.doctor_runs import CLI, IGNORE, NEW, OLD
from tests.harness.gate_bench import Bench
from trl_compat.gate import markdown as gate_markdown
from trl_compat.gate import output
from trl_compat.gate import text as gate_text
from trl_compat.report import sarif, workflow_commands
from trl_compat.report.finding import Finding
from trl_compat.text import console, markdown, terminal, uri, workflow

ESC = "\x1b[2J\x1b]0;title\x07"
BIDI = "\u202egpj.exe\u2066"
# Where GitHub and Azure find a command in a line of a log.
COMMAND = re.compile(r"^\s*::|##\[|##vso\[", re.M)
ANYTHING = st.text(max_size=60) | st.lists(
    st.sampled_from(["::", "##[", "##vso[", "\n", "\r", "\x1b[31m", "|", "`", "[", "](", "<", "%"])
    | st.text(max_size=3),
    max_size=12,
).map("".join)


@given(text=ANYTHING)
@settings(max_examples=400)
def test_a_line_for_a_terminal_is_one_line_of_what_can_be_seen(text: str) -> None:
    safe = terminal.line(text)
    assert len(safe.splitlines()) <= 1
    assert not COMMAND.search(safe)
    assert all(unicodedata.category(s) not in terminal.HIDDEN or s in terminal.SHOWN for s in safe)
    assert not COMMAND.search(terminal.lines(text))


def test_what_is_hidden_is_shown() -> None:
    assert terminal.line(f"a{ESC}b") == "a\\x1b[2J\\x1b]0;title\\x07b"
    assert terminal.line(BIDI) == "\\u202egpj.exe\\u2066"
    assert terminal.line("\ud800 \udcff \U000e0041") == "\\ud800 \\udcff \\U000e0041"
    assert terminal.line("  ::error::x") == "  \\x3a:error::x"
    assert terminal.line("a ##[add-path]x ##vso[y]") == "a #\\x23[add-path]x #\\x23vso[y]"
    assert terminal.line("Grüße → 安全 👩\u200d💻") == "Grüße → 安全 👩\u200d💻"
    assert console.escape("[red]x\x1b[0m") == "\\[red]x\\x1b[0m"  # the second is no markup


@given(text=ANYTHING)
@settings(max_examples=400)
def test_a_cell_of_a_markdown_table_stays_one(text: str) -> None:
    for safe in (markdown.inline(text), markdown.code(text), markdown.paragraph(text)):
        assert "\n" not in safe
        assert not re.search(r"(?<!\\)(?:\\\\)*\|", safe)  # no bar that ends a column
    inline = markdown.inline(text)
    assert "<" not in inline.replace("<!-- -->", "")
    assert not re.search(r"(?<!\\)(?:\\\\)*[\[\]`*]", inline)
    assert not re.search(r"://|(?:^|\W)@\w", inline)


def test_markdown_shows_what_it_was_given() -> None:
    assert markdown.inline("a <b> & c") == "a &lt;b> &amp; c"
    assert markdown.inline("![x](https://e.org)") == "!\\[x\\](https:<!-- -->//e.org)"
    assert markdown.inline("@me #12 www.e.org") == ("@<!-- -->me #<!-- -->12 www<!-- -->.e.org")
    assert markdown.inline("zero3_gloo __init__") == "zero3_gloo \\__init_\\_"
    assert markdown.paragraph("# x") == "\\# x"
    assert markdown.paragraph("1. x") == "1\\. x"
    assert markdown.code("a`b``c") == "```a`b``c```"
    assert markdown.code("`") == "`` ` ``"
    assert markdown.link("x", "javascript:alert(1)") == "x"
    assert markdown.link("a]b", "https://e.org/1") == "[a\\]b](https://e.org/1)"
    assert markdown.block("x\n```\n# y", "python") == ["````python", "x\n```\n# y", "````"]


@given(text=ANYTHING, title=ANYTHING, place=ANYTHING)
@settings(max_examples=300)
def test_an_annotation_is_one_workflow_command(text: str, title: str, place: str) -> None:
    finding = Finding("r", title, text, "error", "", place or "x", 3)
    said = workflow_commands.render([finding], [text])
    first, second, *rest = said.split("\n")
    assert rest == [""]
    found = re.fullmatch(r"::error file=([^,:]*),line=3,title=([^,:]*)::(.*)", first)
    assert found is not None
    decoded = found[3].replace("%0A", "\n").replace("%25", "%")
    assert decoded == terminal.lines(text.replace("\r\n", "\n"))
    assert second == f"::notice title=trl-compat::{workflow.message(text)}"


@given(place=st.text(st.characters(exclude_characters="\0"), min_size=1, max_size=40))
@settings(max_examples=200)
def test_a_uri_is_relative_and_ascii(place: str) -> None:
    made = uri.reference(place)
    assert re.fullmatch(r"(?:[\w.~/-]|%[0-9A-F]{2})*", made, re.ASCII)
    assert not made.startswith("/")
    assert ".." not in made.split("/")


def test_a_file_elsewhere_is_called_by_its_name_alone(tmp_path: Path) -> None:
    here = Path.cwd()
    assert uri.reference(str(here / "a b" / "ü#?.txt")) == "a%20b/%C3%BC%23%3F.txt"
    assert unquote(uri.reference("a:3")) == "a:3"
    assert ":" not in uri.reference("c:x")
    assert uri.reference(str(tmp_path / "uv.lock")) == "uv.lock"
    assert uri.reference("../../x/uv.lock") == "uv.lock"
    finding = Finding("r", "t", "m", "error", "", str(tmp_path / "uv.lock"))
    assert str(tmp_path) not in sarif.render([finding]) + workflow_commands.render([finding])


NAME = f"::error::x ##[group] {ESC}{BIDI} | `a` [l](https://e.org) <img> \udcff.txt"
FORMATS = ("text", "markdown", "json", "github", "sarif")


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    command = [str(CLI), *words]
    return subprocess.run(command, capture_output=True, check=False, cwd=folder)


def harmless(printed: bytes) -> str:
    """What a terminal or a log gets; nothing in it is a command or is hidden."""
    text = printed.decode()
    assert not COMMAND.search(text)
    assert all(sign.isprintable() for sign in text.replace("\n", ""))
    return text


@pytest.mark.parametrize("form", FORMATS)
def test_a_file_of_any_name_is_printed_as_a_name(tmp_path: Path, form: str) -> None:
    (tmp_path / os.fsdecode(os.fsencode(NAME.replace("/", "\u2044")))).write_text(NEW)
    (name,) = os.listdir(tmp_path)
    done = run(tmp_path, "doctor", name, "--format", form, "--trainer", "KTO")
    assert (done.returncode, done.stderr) == (1, b"")
    text = done.stdout.decode()
    if form == "github":
        assert all(line.startswith(("::error ", "::warning ", "::note ", "::notice ")) for line in
                   text.splitlines())  # fmt: skip
    elif form in ("json", "sarif"):
        json.loads(text)
    else:
        harmless(done.stdout)
    assert "\x1b" not in text
    if form == "markdown":
        title = text.splitlines()[0]
        assert title.startswith("### ``\\x3a:error::x #\\x23[group] \\x1b[2J")


def test_errors_are_harmless_too(tmp_path: Path) -> None:
    for words in (
        ("doctor", NAME.replace("/", "")),
        ("doctor", "x.txt", "--trainer", f"G{ESC}"),
        ("doctor", "x.txt", "--set", f"::error::{ESC}=1"),
        ("doctor", "x.txt", "--device", f"{ESC}"),
        ("doctor", "x.txt", f"--{ESC}"),
        ("plan", "--from", NAME.replace("/", ""), "--to", "trl==1.*"),
        ("gate", "--from", f"{ESC}.txt", "--to", "x"),
        ("explain", f"::error::{ESC}"),
        ("fix", f"{ESC}"),
    ):
        done = run(tmp_path, *words)
        assert done.returncode == 2, words
        assert done.stdout == b""
        assert harmless(done.stderr)


def test_a_reason_in_pyproject_cannot_command(tmp_path: Path) -> None:
    (tmp_path / "r.txt").write_text(NEW)
    reason = "\\n::error::we stop \\u001b[2J at any exception | <b>"
    text = IGNORE.format("2999-12-31").replace("we stop at any exception", reason)
    (tmp_path / "pyproject.toml").write_text(text)
    for form in ("text", "markdown"):
        done = run(tmp_path, "doctor", "r.txt", "--format", form)
        assert done.returncode in (0, 1)  # another failure may apply
        assert "we stop" in harmless(done.stdout)


def test_a_note_in_a_lock_cannot_command(tmp_path: Path) -> None:
    line = '"::error::\x1b[31m" @ https://e.org/x\n::error::x @ file:///y\n./::error::%0A##[x]\n'
    (tmp_path / "r.txt").write_text(OLD + line.splitlines()[2] + "\n")
    done = run(tmp_path, "doctor", "r.txt")
    assert "a path or URL without a package name" in harmless(done.stdout)
    (tmp_path / "r.txt").write_text(OLD + line)
    done = run(tmp_path, "doctor", "r.txt")
    assert done.returncode == 2
    assert "r.txt:7: this line is not a requirement" in harmless(done.stderr)


def test_a_gates_report_shows_what_it_was_given(bench: Bench) -> None:
    report = bench.gate("before", "old")
    odd = f"x {ESC}\n::error::y | <b> `c` [d](https://e.org)"
    side = report.candidate.model_copy(update={"given": odd, "notes": (odd,)})
    (failure,) = report.failures
    bad = failure.model_copy(update={"title": odd, "why": odd, "reference_url": "javascript:x"})
    report = report.model_copy(
        update={"candidate": side, "failures": (bad,), "unresolvable": odd, "command": odd}
    )
    assert harmless(gate_text.render(report).encode())
    made = harmless(gate_markdown.render(report).encode())
    assert "<b>" not in made.replace(markdown.code(odd), "")
    assert "javascript" not in made
    for row in (line for line in made.splitlines() if line.startswith("| ")):
        assert len(re.findall(r"(?<!\\)\|", row)) in (4, 5, 7)
    assert all(
        line.startswith(("::error ", "::warning ", "::notice "))
        for line in output.render(report, "github").splitlines()
    )
