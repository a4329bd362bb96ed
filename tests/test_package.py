"""What `import spillable_stream` gives, and what it costs."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields
from pathlib import Path

import pyarrow as pa
import pytest

import spillable_stream
from spillable_stream import Channel, Event, errors, flow, spark

ROOT = Path(__file__).parents[1]


def test_all_names_are_there_and_no_others_are_promised() -> None:
    for name in spillable_stream.__all__:
        assert hasattr(spillable_stream, name), name
    assert len(set(spillable_stream.__all__)) == len(spillable_stream.__all__)
    assert set(errors.__all__) <= set(spillable_stream.__all__)
    assert spillable_stream.errors is errors, "without an import of its own"


@pytest.mark.parametrize("name", spillable_stream.__all__)
def test_everything_public_is_documented(name: str) -> None:
    thing = getattr(spillable_stream, name)
    assert inspect.getdoc(thing)
    if inspect.isclass(thing):
        for member, value in vars(thing).items():
            if not member.startswith("_") and callable(value):
                assert inspect.getdoc(value), f"{name}.{member}"


def public_calls() -> Iterator[tuple[str, Callable[..., object]]]:
    for module in (spillable_stream, spark, flow):
        for name in module.__all__:
            thing = getattr(module, name)
            members = vars(thing) if inspect.isclass(thing) else ()
            calls = [(name, thing), *((f"{name}.{m}", getattr(thing, m)) for m in members if not m.startswith("_"))]
            yield from ((f"{module.__name__}.{at}", call) for at, call in calls if callable(call))


def test_help_shows_no_address_as_a_default() -> None:
    shown = {}
    for name, call in public_calls():
        with suppress(ValueError):  # a signature that C code does not tell
            shown[name] = str(inspect.signature(call))
    assert "spillable_stream.restore" in shown and "spillable_stream.flow.InterceptorChain" in shown
    assert [name for name, signature in shown.items() if " at 0x" in signature] == []


def test_what_a_user_is_handed_says_in_a_shell_what_it_is(tmp_path: Path) -> None:
    async def call(event: object) -> None: ...

    with Channel(tmp_path / "c", minimum_required_space=0) as channel, channel.put_transaction() as put:
        put.put(Event(b"x"))
        assert repr(put) == "PutTransaction(open, 1 event)"
        assert repr(channel.take_transaction("g")) == "TakeTransaction(new, 0 events)"
        assert repr(channel.consumer("g")) == "Consumer('g')"
        assert repr(channel.worker("g", print)) == "Worker('g', new)"
        assert repr(channel.async_worker("g", call)) == "AsyncWorker('g', new)"
        with spillable_stream.serve_metrics([channel]) as server:
            assert repr(server) == f"MetricsServer('127.0.0.1', {server.port})"
    assert repr(put) == "PutTransaction(closed, 1 event)"


USE = """
import sys
import tomllib
from spillable_stream import Channel, Event
with Channel(sys.argv[1], minimum_required_space=0) as channel:
    with channel.put_transaction() as tx:
        tx.put(Event(b"body", {"k": "v"}))
    with channel.take_transaction() as tx:
        assert tx.take() == Event(b"body", {"k": "v"})
print([m for m in ("pyspark", "pandas") if m in sys.modules])
"""


def test_putting_and_taking_imports_neither_spark_nor_pandas(tmp_path: Path) -> None:
    found = subprocess.run([sys.executable, "-c", USE, tmp_path / "c"], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_what_takes_time_is_imported_when_it_is_used() -> None:
    program = """
import sys
import tomllib
from spillable_stream import *
import spillable_stream as ss
print("pyspark" in sys.modules, set(ss.__all__) <= set(dir(ss)))
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "True"]
    program = "import sys, spillable_stream; print([m for m in sys.modules if m.startswith('spillable_stream.')])"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not [
        room
        for room in ("integrity", "observe", "producer", "spark", "ui")
        if f"spillable_stream.{room}" in found.stdout
    ]


def test_the_package_itself_imports_nothing() -> None:
    """So the command line answers a signal from its first lines on: all the rest is imported behind its handlers."""
    program = """
import sys, {}
print(*(name for name in sys.modules if name.partition(".")[0] in ("pyarrow", "spillable_stream")))
"""
    of_entry = {"spillable_stream.json_option"}  # a few lines, which the handlers use
    for module, needed in (("spillable_stream", set()), ("spillable_stream.__main__", of_entry)):
        command = [sys.executable, "-c", program.format(module)]
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        assert set(found) == {"spillable_stream", module, *needed}


def test_forks_wait_for_imports_from_the_first_use_on() -> None:
    program = """
import sys, spillable_stream
spillable_stream.Channel
print(*sys.modules)
"""
    command = [sys.executable, "-c", program]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    mine = [name for name in found if name.partition(".")[0] in ("pyarrow", "spillable_stream")]
    assert mine[:2] == ["spillable_stream", "spillable_stream.forks"] and "pyarrow" in mine


# Of the standard library, each takes a millisecond or more, with what it imports itself.
OF_FEW = {"bz2", "configparser", "difflib", "hashlib", "hmac", "html", "secrets", "shutil", "tempfile", "zoneinfo"}
OWN_OF_FEW = {
    "channel.config_file",
    "channel.display",
    "channel.event_table",
    "channel.stats",
    "engine.local.readonly_view",
    "format.value_readers",
    "sharding",
}


def test_a_channel_brings_nothing_that_few_programs_need() -> None:
    program = """
import sys, pyarrow
had = {*sys.modules}
from spillable_stream import Channel
print(*{*sys.modules} - had)
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert "spillable_stream.channel.channel" in found
    assert OF_FEW.isdisjoint(found)
    assert {f"spillable_stream.{name}" for name in OWN_OF_FEW}.isdisjoint(found)


def test_the_flow_says_what_to_install_without_numpy() -> None:
    program = "import sys; sys.modules['numpy'] = None; import spillable_stream.flow.loading"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "ImportError: the flow needs numpy: pip install 'spillable-stream[flow]'" in found.stderr


def test_what_lacks_packages_says_the_command_that_installs_them() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    texts = [
        "".join(part.value for part in ast.walk(raised) if isinstance(part, ast.Constant))
        for module in (ROOT / "spillable_stream").rglob("*.py")
        for raised in ast.walk(ast.parse(module.read_text()))
        if isinstance(raised, ast.Call) and isinstance(raised.func, ast.Name) and raised.func.id == "ImportError"
    ]
    commands = [re.search(r": pip install 'spillable-stream\[(\w+)\]'$", text) for text in texts]
    assert [text for text, command in zip(texts, commands, strict=True) if command is None] == []
    assert {command[1] for command in commands if command} <= {*extras} and len(commands) > 10


def test_names_that_the_documentation_shows_are_the_rooms_own(tmp_path: Path) -> None:
    from spillable_stream import Channel, Report, exit_on_sigterm, listener, repair, verify
    from spillable_stream.spark import listener as sparks

    assert callable(sparks) and spillable_stream.spark.listener is sparks, "no module comes in between"
    with exit_on_sigterm(), Channel(tmp_path / "c", minimum_required_space=0):
        pass
    assert isinstance(verify(tmp_path / "c"), Report) and verify(tmp_path / "c").healthy
    assert isinstance(repair(tmp_path / "c"), Report)
    assert inspect.signature(listener) == inspect.signature(sparks)


def test_every_public_name_that_the_documentation_imports_is_promised() -> None:
    """Pages and examples import from the package itself, from `spillable_stream.spark`, or what the page is about."""
    root = Path(__file__).parents[1]
    pages = [root / "README.md", *root.glob("docs/*.md"), *root.glob("examples/*/*.py")]
    shown = {name for page in pages for name in re.findall(r"\bss\.(\w+)\b(?=\()", page.read_text())}
    shown |= {
        name.split(" as ")[0].strip()
        for page in pages
        for names in re.findall(r"from spillable_stream import ([\w, ]+)", page.read_text())
        for name in names.split(",")
    }
    assert {"Channel", "Producer", "register"} <= shown <= {*spillable_stream.__all__, "flow"}


def test_the_documentation_sends_nobody_to_an_internal_module() -> None:
    """All modules but `spillable_stream.spark` and `.flow` may move in any version (docs/compatibility.md)."""
    root = Path(__file__).parents[1]
    programs = [*root.glob("demo/*.py"), *root.glob("examples/*/*.py"), *root.glob("notebooks/*.ipynb")]
    pages = [root / "README.md", *root.glob("docs/*.md"), *root.glob("docs/reference/*.md"), *programs]
    internal = re.compile(r"\bspillable_stream\.(?!spark\b|flow\b)([a-z]\w*)")
    named = {(page.name, name) for page in pages for name in internal.findall(page.read_text())}
    exported = {*spillable_stream.__all__, "engine", "errors", "svg"}  # what the reference shows by its full path
    assert not {(page, name) for page, name in named if name not in exported}


def test_the_room_of_spark_is_entered_without_pyspark() -> None:
    program = (
        "import sys, spillable_stream.spark as s; print('pyspark' in sys.modules, *(hasattr(s, n) for n in s.__all__))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "True", "True", "True", "True"]


SPARKS_CALL = """
import sys
import tomllib
from pyspark.sql.types import LongType, StructField, StructType
from pyspark_spillable import DefaultSource
call, path = sys.argv[1:]
schema = StructType([StructField("id", LongType())])
source = DefaultSource({"path": path})
if call == "sink":
    source.streamWriter(schema, False)
elif call == "batch sink":
    source.writer(schema, False)
elif call == "source":
    source.streamReader(source.schema()).initialOffset()
elif call == "batch source":
    source.reader(source.schema()).partitions()
print(*sorted(m for m in sys.modules if m.startswith("spillable_stream.") or m in ("pandas", "pyarrow.compute")))
"""
OF_SINKS = {"sink_channel", "sink_options", "sink_plan", "writer", "task_stage"}
OF_SOURCES = {"stream_reader", "stream_query", "batch_plan", "query_position", "late_commit"}
OF_BATCH_SOURCES = {"batch_reader"}
OF_SEVERAL_CHANNELS = {"set_reader", "set_members", "set_batch_reader", "sharded_channels", "sharded_writer"}


@pytest.mark.parametrize(
    ("call", "needs"),
    [
        ("none", set[str]()),
        ("sink", OF_SINKS),
        ("batch sink", OF_SINKS),
        ("source", OF_SOURCES),
        ("batch source", OF_BATCH_SOURCES),
    ],
)
def test_a_process_of_spark_imports_only_what_its_call_needs(tmp_path: Path, call: str, needs: set[str]) -> None:
    """The first batch of a query waits for it: each kind of call has a process of its own."""
    if call.endswith("source"):
        schema = pa.schema([("id", pa.int64())])
        spillable_stream.Channel(tmp_path / "c", schema=schema, minimum_required_space=0).close()
    program = [sys.executable, "-c", SPARKS_CALL, call, tmp_path / "c"]
    found = subprocess.run(program, capture_output=True, text=True, check=True).stdout.split()
    assert {"pandas", "pyarrow.compute"}.isdisjoint(found), "each takes as long as most of the package"
    everything = OF_SINKS | OF_SOURCES | OF_BATCH_SOURCES | OF_SEVERAL_CHANNELS
    modules = {name.rpartition(".")[2] for name in found if name.startswith("spillable_stream.spark.")}
    assert everything & modules == needs


def test_no_module_has_the_name_of_what_the_room_of_spark_exports() -> None:
    """An import of the module would put it in the export's place."""
    program = (
        "import spillable_stream.spark.datasource, spillable_stream.spark as s\n"
        "from spillable_stream.spark import QueryListener, QueryReport, explain, listener\n"
        "print(*(callable(getattr(s, n)) for n in s.__all__), listener is s.listener)"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["True"] * 5


def test_the_version_is_the_packages() -> None:
    from importlib.metadata import version

    assert version("spillable-stream") == spillable_stream.__version__


def test_the_parts_of_exported_statistics_are_exported_too() -> None:
    exported = [getattr(spillable_stream, name) for name in spillable_stream.__all__ if name.endswith("Stats")]
    types = [str(field.type) for stats in exported for field in fields(stats)]
    parts = {part for type_ in types for part in re.findall(r"\w+Stats\b", type_)}
    assert parts >= {"TierStats", "KeptStats"} and parts <= set(spillable_stream.__all__)
