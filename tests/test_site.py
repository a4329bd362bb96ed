"""The documentation site: it builds without a warning, and its reference has every exported name."""

from __future__ import annotations

import importlib.util
import inspect
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import spillable_stream
import spillable_stream.spark

ROOT = Path(__file__).parent.parent
DECISIONS = ROOT / "docs" / "decisions"


def built_by_make_docs() -> bool:
    """Tell whether `make docs` has built the site without a warning, of the pages and modules that there are."""
    built = ROOT / "site" / ".strict"
    sources = [ROOT / "mkdocs.yml", *(ROOT / "docs").rglob("*"), *(ROOT / "spillable_stream").rglob("*.py")]
    return built.exists() and all(path.stat().st_mtime < built.stat().st_mtime for path in sources)


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("zensical") is None, reason="requirements-docs.txt is not installed: run make docs"
)
def test_site_builds_without_a_warning(tmp_path: Path) -> None:
    site = ROOT / "site"
    if not built_by_make_docs():
        site = tmp_path / "site"
        shutil.copy(ROOT / "mkdocs.yml", tmp_path)
        for directory in ("docs", "spillable_stream"):
            shutil.copytree(ROOT / directory, tmp_path / directory, ignore=shutil.ignore_patterns("__pycache__"))
        build = [sys.executable, "-m", "zensical", "build", "--strict"]
        done = subprocess.run(build, cwd=tmp_path, capture_output=True, text=True, timeout=150)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "<h1" in (site / "reference" / "channel.html").read_text()


def test_reference_has_every_exported_name() -> None:
    shown = {
        name.rpartition(".")[2]
        for page in (ROOT / "docs" / "reference").glob("*.md")
        for name in re.findall(r"^::: (\S+)", page.read_text(), re.MULTILINE)
    }
    exported = {*spillable_stream.__all__, *spillable_stream.spark.__all__}
    assert not exported - shown


def test_the_exported_listener_is_the_function_whatever_is_imported() -> None:
    import spillable_stream.spark.source.stream_reader  # a package called `listener` would come in its place

    assert inspect.isfunction(spillable_stream.spark.listener)


def test_every_page_is_in_the_navigation() -> None:
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    records = {f"decisions/{record.name}" for record in DECISIONS.glob("0*.md")}  # the index of decisions has them
    assert set(re.findall(r"\S+\.md", nav)) == pages - records


def test_every_decision_is_in_the_index() -> None:
    index = (DECISIONS / "index.md").read_text()
    for record in sorted(DECISIONS.glob("0*.md")):
        title = record.read_text().partition("\n")[0].removeprefix(f"# {record.name[:4]}: ")
        assert f"[{record.name[:4]}]({record.name}): {title}" in index
