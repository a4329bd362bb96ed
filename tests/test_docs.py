"""Everything that the documentation shows is run, and its tables are what the code says."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from spillable_stream.options import BATCH, CHANNEL, CREATION, HANDLE, OPTIONS, PRODUCER, SINK, SOURCE
from tests.support.command_line import run
from tests.support.spark.sessions import short_sessions
from tests.support.spark.versions import SPARK

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
# They start Spark sessions of their own; `tests/spark/test_readme.py` runs the README in one that is there.
SLOW_PAGES = {"README.md", "spark.md", "pipelines.md"}
# It has a listener that is not told the groups: see docs/compatibility.md.
NEED_SPARK_4_2 = {"fan_out"}


def page_name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def skip_before_spark_4_2(name: str) -> None:
    if name in NEED_SPARK_4_2 and SPARK < (4, 2):
        pytest.skip("shows what Spark has since 4.2")


@pytest.mark.spark
@pytest.mark.parametrize(
    "page",
    [pytest.param(p, id=page_name(p), marks=[pytest.mark.slow] if p.name in SLOW_PAGES else []) for p in PAGES],
)
def test_python_blocks_run(page: Path, tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    skip_before_spark_4_2(page.name)
    program = tmp_path / "page.py"
    program.write_text("\n".join(blocks))
    if not blocks:
        return
    environment = short_sessions()
    # A new Python: a fork has modules that a page would not import.
    done = subprocess.run([sys.executable, program], cwd=tmp_path, env=environment, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr.decode()[-3000:]


def transcript(page: Path) -> list[tuple[str, str]]:
    """Return the commands of a page's console blocks, and what each one is said to print; ``…`` stands for anything."""
    blocks = re.findall(r"^```console\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    commands: list[tuple[str, str]] = []
    for line in "".join(blocks).splitlines(keepends=True):
        if line.startswith("$ "):
            commands.append((line[2:].strip(), ""))
        else:
            command, output = commands[-1]
            commands[-1] = command, output + line
    return commands


def printed(command: str, environment: dict[str, str]) -> str:
    """Run a command, and return what it prints: a verb in this process, where all that a shell does is to split."""
    if re.fullmatch(r"spillable [\w ./=-]+", command):
        told = run(*command.split()[1:])
        assert told.exit_code == 0, (command, told.stderr)
        return told.stdout
    done = subprocess.run(command, shell=True, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


@pytest.mark.parametrize("page", [page for page in PAGES if "```console" in page.read_text()], ids=page_name)
def test_console_blocks_print_what_they_say(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "spillable"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m spillable_stream "$@"\n')
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    monkeypatch.chdir(tmp_path)
    for command, said in transcript(page):
        found = printed(command, environment)
        pattern = "".join(".*" if part == "…" else re.escape(part) for part in re.split("(…)", said))
        assert re.fullmatch(pattern, found, re.DOTALL), (command, said, found)


def test_option_tables_and_the_configuration_file_are_made_of_the_options() -> None:
    made = dict(runpy.run_path(str(ROOT / "scripts" / "make_option_docs.py"))["files"]())
    scopes = {scope for page in made for scope in re.findall(r"<!-- options: (\w+) -->", page.read_text())}
    assert scopes == {CHANNEL, CREATION, HANDLE, SOURCE, BATCH, SINK, PRODUCER}
    assert not [page for page, text in made.items() if page.read_text() != text], "run scripts/make_option_docs.py"


def test_tables_of_flows_are_made_of_the_tables_of_their_components() -> None:
    made = dict(runpy.run_path(str(ROOT / "scripts" / "make_flow_docs.py"))["files"]())
    assert not [page for page, text in made.items() if page.read_text() != text], "run scripts/make_flow_docs.py"


def test_configuration_file_shows_every_option_with_its_default() -> None:
    text = (ROOT / "conf" / "channel.ini").read_text()
    for option in OPTIONS:
        if {CHANNEL, CREATION} & set(option.scopes):
            shown = re.search(rf"^# {option.name} = ?(.*)$", text, re.MULTILINE)
            assert shown, option.name
            assert option.default is None or option.parse(shown[1]) == option.default


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the site make them."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=page_name)
def test_links_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", prose):
        path = page.parent / target if target else page
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), f"{target}#{anchor}"


def test_pages_name_modules_that_exist() -> None:
    modules = [path.relative_to(ROOT).as_posix() for path in ROOT.glob("*/**/*.py") if ".venv" not in path.parts]
    for page in (page for page in PAGES if page.parent.name != "decisions"):  # those tell of their time
        named = re.findall(r"`([\w/]+\.py)`", page.read_text())
        assert [name for name in named if not any(f"/{path}".endswith(f"/{name}") for path in modules)] == [], page


def test_readme_is_short_and_its_figures_are_those_of_the_benchmarks() -> None:
    readme = (ROOT / "README.md").read_text()
    assert 120 <= len(readme.splitlines()) <= 150
    measured = (ROOT / "docs" / "benchmarks.md").read_text()
    speed = readme.partition("## How fast\n")[2].partition("\n## ")[0]
    figures = re.findall(r"\b\d[\d,]+\b", speed.partition("---:|\n")[2])
    assert len(figures) >= 16
    assert [figure for figure in figures if not re.search(rf"\b{figure}\b", measured)] == []


def test_ci_checks_and_ends_with_all_tests_of_the_command_of_the_readme() -> None:
    run = (ROOT / ".ci" / "run").read_text()
    made = re.findall(r"^make (.+?)(?: &\n(?:\w+)=\$!)?$", run, re.MULTILINE)
    assert all(f"wait ${name}\n" in run for name in re.findall(r"^make .+ &\n(\w+)=", run, re.MULTILINE))
    (tests,) = re.findall(r"^    make (test\S*)", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert {"check", "docs"} < set(made) and made[-1] == f"{tests} ALL=1"
    told = ["make", "-n", "-o", "java", "-o", "classes", tests, "ALL=1"]
    nothing_set = {"PATH": os.environ["PATH"]}
    command = subprocess.run(told, cwd=ROOT, env=nothing_set, capture_output=True, text=True, check=True).stdout
    assert "-m pytest" in command and not re.search(r"pytest .*( -[mk] |--ignore|--deselect)", command)
    assert "--hypothesis-profile ci" in command


def test_durability_says_in_how_many_ways_the_laboratory_is_tested() -> None:
    from tests.lab.mutants import MUTANTS

    assert f"broken in {len(MUTANTS)} ways" in (ROOT / "docs" / "durability.md").read_text()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook_runs_from_top_to_bottom(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    skip_before_spark_4_2(page.stem)
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", short_sessions()["SPARK_SUBMIT_OPTS"])
    notebook = nbformat.read(page, as_version=4)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    left = [path.name for path in tmp_path.iterdir() if path.name.startswith("spillable-")]
    assert not left, "the notebook left its files"
