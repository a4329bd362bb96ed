"""`make release`: what it refuses to release."""

from __future__ import annotations

import io
import runpy
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SDIST = ("LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml")


@pytest.fixture
def release(tmp_path: Path) -> dict[str, Any]:
    """The script's names, with a directory of the test's in place of dist/."""
    script = runpy.run_path(str(ROOT / "scripts" / "release.py"))
    script["check_contents"].__globals__["DIST"] = tmp_path
    return script


def archives(directory: Path, *more_in_wheel: str, without: str = "") -> None:
    modules = {
        str(p.relative_to(ROOT))
        for package in ("spillable_stream", "pyspark_spillable")
        for p in (ROOT / package).rglob("*.py")
    } - {without}
    info = "spillable_stream-0.1.0.dist-info"
    with zipfile.ZipFile(directory / "spillable_stream-0.1.0-py3-none-any.whl", "w") as wheel:
        for name in [*modules, "spillable_stream/py.typed", f"{info}/licenses/LICENSE", *more_in_wheel]:
            wheel.writestr(name, "")
    with tarfile.open(directory / "spillable_stream-0.1.0.tar.gz", "w:gz") as sdist:
        for name in [*modules, "spillable_stream/py.typed", *SDIST]:
            sdist.addfile(tarfile.TarInfo(f"spillable_stream-0.1.0/{name}"), io.BytesIO())


def test_whole_archives_are_good(release: dict[str, Any], tmp_path: Path) -> None:
    archives(tmp_path)
    wheel, sdist = release["check_contents"]()
    assert (wheel.suffix, sdist.suffix) == (".whl", ".gz")


def test_a_missing_module_is_named(release: dict[str, Any], tmp_path: Path) -> None:
    archives(tmp_path, without="spillable_stream/log/wal.py")
    with pytest.raises(release["ReleaseError"], match=r"lacks spillable_stream/log/wal\.py"):
        release["check_contents"]()


def test_what_users_do_not_need_is_refused(release: dict[str, Any], tmp_path: Path) -> None:
    archives(tmp_path, "tests/test_release.py")
    with pytest.raises(release["ReleaseError"], match=r"don't need: tests/test_release\.py"):
        release["check_contents"]()


def test_the_changelog_has_the_version_with_its_day(release: dict[str, Any], tmp_path: Path) -> None:
    release["check_changelog"]()
    check = release["check_changelog"]
    check.__globals__["ROOT"] = tmp_path
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "0.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text("## 0.2.0\n")
    with pytest.raises(release["ReleaseError"], match=r"no heading '## 0\.2\.0 - YYYY-MM-DD'"):
        check()
