"""The import contracts in setup.cfg name every room that there is, so that no new one is without."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = "spillable_stream"

# Anybody may import these of the package's own modules, and they import anybody: what is exported, and `python -m`.
DOORS = {"__init__", "__main__"}
PURE = {"format", "state"}


def rooms() -> set[str]:
    """The package's folders and the modules beside them."""
    found = (ROOT / PACKAGE).iterdir()
    return {p.stem for p in found if p.suffix == ".py" or (p / "__init__.py").exists()} - DOORS


def contract(name: str, key: str) -> set[str]:
    """What a contract says of the package's rooms, or of other modules."""
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    words = config[f"importlinter:contract:{name}"][key].replace("|", " ").replace(" : ", " ").split()
    return {word.removeprefix(f"{PACKAGE}.") for word in words}


def exceptions(name: str) -> set[str]:
    """The imports that a contract lets pass."""
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    lines = config[f"importlinter:contract:{name}"]["ignore_imports"].replace(f"{PACKAGE}.", "").strip().splitlines()
    return set(lines)


def folders_of(room: str) -> set[str]:
    """The rooms within a room, by their names within the package."""
    return {f"{room}.{p.parent.name}" for p in (ROOT / PACKAGE / room).glob("*/__init__.py")}


def allows_indirect_imports(name: str) -> bool:
    """Tell whether a contract looks only at what a module imports itself."""
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    return config.getboolean(f"importlinter:contract:{name}", "allow_indirect_imports", fallback=False)


def test_every_room_has_its_layer() -> None:
    assert contract("layers", "layers") == rooms()


def imports_for_types(tree: ast.AST) -> Iterator[str]:
    """The modules that code imports for annotations only: import-linter leaves out these, and no others."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            found = (n.module for n in ast.walk(node) if isinstance(n, ast.ImportFrom) and n.module is not None)
            yield from (module for module in found if module.startswith(f"{PACKAGE}."))


def test_what_is_imported_for_annotations_comes_from_no_layer_above() -> None:
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    layers = config["importlinter:contract:layers"]["layers"].replace(f"{PACKAGE}.", "").strip().splitlines()
    depth = {room: number for number, layer in enumerate(layers) for room in re.split(" [|:] ", layer)}
    up = [
        f"{module.relative_to(ROOT)}: {imported}"
        for room in sorted(rooms())
        for module in [ROOT / PACKAGE / f"{room}.py", *(ROOT / PACKAGE / room).rglob("*.py")]
        if module.exists()
        for imported in imports_for_types(ast.parse(module.read_text()))
        if depth[imported.split(".")[1]] < depth[room]
    ]
    assert up == []


def test_the_drawing_of_the_rooms_has_the_layers_of_the_contract() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    drawing = re.findall(r"^ {4}(.*)", page.partition("## Rooms")[2].partition("| room")[0], re.MULTILINE)
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    layers = config["importlinter:contract:layers"]["layers"].replace(f"{PACKAGE}.", "").strip().splitlines()
    drawn = [set(re.findall(r"(\w+)(?:/|\.py)", line)) for line in drawing]
    assert drawn == [set(re.split(" [|:] ", layer)) for layer in layers]


def test_workers_are_below_the_handle_that_makes_them_and_above_all_that_they_use_of_its_room() -> None:
    """The modules below them are named one by one, since the rest of the room needs none of it."""
    used = {
        f"channel.{name}"
        for module in (ROOT / PACKAGE / "workers").glob("*.py")
        for name in re.findall(r"^ *from spillable_stream\.channel\.(\w+) import", module.read_text(), re.MULTILINE)
    }
    named = contract("workers", "layers")
    assert used <= named - {"channel.channel", "workers"}
    assert named >= {"channel.channel", "workers"}


def test_every_room_but_spark_is_kept_from_pyspark() -> None:
    assert contract("pyspark", "source_modules") == rooms() - {"spark"}
    assert contract("pyspark", "forbidden_modules") == {"pyspark"}


def test_the_pure_rooms_neither_read_nor_write_nor_ask_the_time() -> None:
    assert contract("pure", "source_modules") == PURE
    assert contract("pure", "forbidden_modules") >= {"os", "io", "time", "pathlib", "shutil", "mmap", "socket"}
    calls = {
        name
        for room in PURE
        for module in (ROOT / PACKAGE / room).rglob("*.py")
        for name in re.findall(r"(?<![.\w])open\(|\b(?:now|today|utcnow)\(", module.read_text())
    }
    assert not calls


def test_verify_and_repair_are_kept_from_every_handle_however_they_would_get_one() -> None:
    assert contract("integrity", "source_modules") == {"integrity"}
    assert contract("integrity", "forbidden_modules") == {
        "channel",
        "engine.committer",
        "engine.engine",
        "engine.local.local_log",
        "engine.store.object_log",
        "workers",
    }
    assert not allows_indirect_imports("integrity")


def test_spark_the_producers_and_the_flow_are_kept_from_all_of_a_channel_but_its_port() -> None:
    sources = {"flow", "producer", "spark"}
    assert contract("port", "source_modules") == sources
    assert contract("port", "forbidden_modules") == {"engine.*", "log", "objects.*", "storage"}
    doors = {"engine.port", "objects.location"}
    assert exceptions("port") == {f"{source}.** -> {door}" for source in sources for door in doors}


def test_the_engines_of_the_two_kinds_of_storage_are_kept_apart_and_from_what_they_share() -> None:
    assert contract("storages", "modules") == {"engine.local", "engine.store"} == folders_of("engine")
    assert contract("engine", "source_modules") == {"engine.*"}
    assert contract("engine", "forbidden_modules") == {"engine.local", "engine.store"}
    assert exceptions("engine") == {"engine.open_engine -> engine.local.**", "engine.open_engine -> engine.store.**"}


def test_the_source_and_the_sink_of_spark_are_kept_apart() -> None:
    assert contract("ends", "modules") == {"spark.source", "spark.sink"} == folders_of("spark") - {"spark.progress"}


def test_matplotlib_is_kept_from_all_of_the_package() -> None:
    assert contract("matplotlib", "source_modules") == {PACKAGE}
