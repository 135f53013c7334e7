"""pip's index settings reach uv where uv has none of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from trl_compat.stacks.environments import settings
from trl_compat.stacks.environments.settings import pip_settings, uv_environment


@pytest.fixture(autouse=True)
def _only_the_homes_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def files(environ: dict[str, str]) -> list[Path]:
        return [Path(environ["HOME"]) / "pip.conf"]

    monkeypatch.setattr(settings, "_pip_files", files)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "pip.conf").write_text(
        "[global]\nindex-url = https://mirror.test/simple\nfind-links = /wheels\n"
        "extra-index-url = https://a.test/simple\n    https://b.test/simple\n"
    )
    return tmp_path


def test_files_are_carried_over(home: Path) -> None:
    assert uv_environment({"HOME": str(home)}) == {
        "UV_DEFAULT_INDEX": "https://mirror.test/simple",
        "UV_EXTRA_INDEX_URL": "https://a.test/simple https://b.test/simple",
        "UV_FIND_LINKS": "/wheels",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }


def test_pips_environment_wins_over_its_files(home: Path) -> None:
    found = pip_settings({"HOME": str(home), "PIP_INDEX_URL": "https://other.test/simple"})
    assert found["index-url"] == ["https://other.test/simple"]


def test_uvs_own_settings_win_over_pips(home: Path) -> None:
    uv_toml = home / ".config" / "uv" / "uv.toml"
    uv_toml.parent.mkdir(parents=True)
    uv_toml.write_text('find-links = ["/mine"]\n')
    found = uv_environment({"HOME": str(home), "UV_INDEX_URL": "https://uv.test/simple"})
    assert "UV_DEFAULT_INDEX" not in found
    assert "UV_FIND_LINKS" not in found
    assert "UV_EXTRA_INDEX_URL" in found


def test_nothing_configured_adds_nothing(tmp_path: Path) -> None:
    assert uv_environment({"HOME": str(tmp_path)}) == {}


def test_it_does_not_matter_who_said_where_to_look(home: Path) -> None:
    environ = {"HOME": str(home)}
    already_told = {**environ, **uv_environment(environ)}
    assert settings.effective(environ) == settings.effective(already_told)
