from __future__ import annotations

import inspect
import sys
import threading
from importlib.metadata import EntryPoint
from pathlib import Path
from textwrap import dedent

import pytest

from spillable_stream.errors import OptionError
from spillable_stream.flow.configuration import builder
from spillable_stream.flow.configuration.builder import PythonClasses, build
from spillable_stream.flow.configuration.model import ComponentConfig, Loaded
from spillable_stream.flow.configuration.options import ComponentType, Kind
from spillable_stream.flow.configuration.reading import ConfigurationFile, World, read_agents
from spillable_stream.flow.configuration.registry import TYPES
from spillable_stream.flow.configuration.substitution import Lookups
from spillable_stream.flow.interceptors.headers import Static
from spillable_stream.flow.interceptors.regex_extractor import Millis, RegexExtractor

JAVA = "com.acme.MaskInterceptor$Builder"
MODULE = "spillable_stream.flow.interceptors"


@pytest.fixture(autouse=True)
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of the user's own."""
    (tmp_path / "acme_flow.py").write_text(
        "class Mask:\n"
        "    def __init__(self, *, pattern: str, size: int = 3, part: float | None = None, deep: bool = False):\n"
        "        self.given = (pattern, size, part, deep)\n"
        "class Any:\n"
        "    def __init__(self, **properties: str) -> None:\n"
        "        self.given = properties\n"
        "class Binds:\n"
        "    def __init__(self) -> None:\n"
        "        raise OSError(98, 'Address already in use')\n"
        "NOT_A_CLASS = 3\n"
    )
    (tmp_path / "acme_broken.py").write_text("import no_such_module_at_all\n")
    monkeypatch.syspath_prepend(str(tmp_path))


def component(implementation: str, keywords: dict[str, object], kind: Kind, type_name: str = "") -> ComponentConfig:
    """Return a component whose type is its class's path, or a name that Flume has for it."""
    name = type_name or implementation.replace(":", ".")
    return ComponentConfig(kind=kind, name="c", type=name, implementation=implementation, keywords=keywords)


def own(name: str = "Mask", **keywords: object) -> ComponentConfig:
    """Return a source of a class of the user's own."""
    return component(f"acme_flow:{name}", keywords, Kind.SOURCE)


def flumes(module: str, name: str, **keywords: object) -> ComponentConfig:
    """Return an interceptor of Flume's."""
    return component(f"{MODULE}.{module}:{name}", keywords, Kind.INTERCEPTOR, module)


def read(text: str) -> Loaded:
    """Read a file, with the classes of this process."""
    return read_agents([ConfigurationFile("f", text.encode())], World(PythonClasses(), Lookups({}, {})))


def test_a_class_is_found_by_either_kind_of_import_path() -> None:
    classes = PythonClasses()
    for name in ("acme_flow.Mask", "acme_flow:Mask"):
        assert classes.find(Kind.SOURCE, name) == "acme_flow:Mask"


def test_a_name_of_javas_is_mapped_to_a_class() -> None:
    assert PythonClasses({JAVA: "acme_flow:Mask"}).find(Kind.INTERCEPTOR, JAVA) == "acme_flow:Mask"


def test_an_entry_point_names_a_class(monkeypatch: pytest.MonkeyPatch) -> None:
    def entry_points(*, group: str, name: str) -> list[EntryPoint]:
        return [EntryPoint(name, "acme_flow:Mask", group)] if name == JAVA else []

    monkeypatch.setattr(builder, "entry_points", entry_points)
    assert PythonClasses().find(Kind.INTERCEPTOR, JAVA) == "acme_flow:Mask"


@pytest.mark.parametrize(
    ("name", "mapped", "part"),
    [
        (JAVA, {}, f"--map '{JAVA}=module:Class'"),
        ("com.acme.Source", {}, "there is no Python class com.acme.Source"),
        ("mask", {}, "there is no Python class mask"),
        ("acme_flow.Musk", {}, "has no attribute 'Musk'"),
        ("acme_flow.NOT_A_CLASS", {}, "is not a class"),
        ("acme_broken.Mask", {}, "No module named 'no_such_module_at_all'"),
        (JAVA, {JAVA: "acme_flaw:Mask"}, "is mapped to acme_flaw:Mask"),
    ],
)
def test_a_class_that_cannot_be_loaded_is_an_error_that_says_why(name: str, mapped: dict[str, str], part: str) -> None:
    with pytest.raises(OptionError) as error:
        PythonClasses(mapped).find(Kind.INTERCEPTOR, name)
    assert part in str(error.value)


def test_a_class_whose_annotations_name_what_only_type_checkers_import_is_built(tmp_path: Path) -> None:
    (tmp_path / "acme_late.py").write_text(
        "from __future__ import annotations\n"
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n"
        "    from decimal import Decimal\n"
        "class Late:\n"
        "    def __init__(self, *, size: int | None = None, deep: bool = False, other: Decimal = 0) -> None:\n"
        "        self.given = (size, deep)\n"
    )
    late = component("acme_late:Late", {"size": "7", "deep": "True"}, Kind.SOURCE)
    PythonClasses().check(late)
    assert build(late).given == (7, True)


def test_a_class_whose_arguments_cannot_be_told_is_an_error_and_no_crash() -> None:
    with pytest.raises(
        OptionError, match=r"builtins\.dict can't be built, since its arguments can't be told: no signature"
    ):
        PythonClasses().check(component("builtins:dict", {}, Kind.SINK))


def test_texts_become_what_the_annotation_says() -> None:
    made = build(own(pattern="7", size="7", part="0.5", deep="TRUE"))
    assert made.given == ("7", 7, 0.5, True)
    assert build(own(name="Any", size="7")).given == {"size": "7"}


@pytest.mark.parametrize(
    ("keywords", "part"),
    [
        ({}, "needs the argument pattern"),
        ({"pattern": "x", "sizes": "3"}, "has no argument sizes: did you mean size?"),
        ({"pattern": "x", "size": "many"}, "size must be int, not 'many'"),
        ({"pattern": "x", "deep": "yes"}, "deep must be bool, not 'yes'"),
    ],
)
def test_arguments_that_do_not_fit_are_an_error_before_anything_is_built(keywords: dict[str, str], part: str) -> None:
    with pytest.raises(OptionError, match=part.replace("?", "[?]")):
        PythonClasses().check(own(**keywords))


def test_a_component_of_flumes_is_built_with_what_is_nested_in_it() -> None:
    serializers = [
        component(f"{MODULE}.regex_extractor:{name}", keywords, Kind.SERIALIZER, "DEFAULT")
        for name, keywords in (("PassThrough", {"name": "x"}), ("Millis", {"name": "t", "pattern": "yyyy"}))
    ]
    extractor = build(flumes("regex_extractor", "RegexExtractor", regex="(a)(b)", serializers=tuple(serializers)))
    assert isinstance(extractor, RegexExtractor) and isinstance(extractor.serializers[1], Millis)
    assert [s.name for s in extractor.serializers] == ["x", "t"]


def test_a_class_that_opens_something_before_it_is_started_is_told_to_open_it_later() -> None:
    with pytest.raises(OptionError, match=r"Binds can't be built: .*; it must open nothing before it is started"):
        build(own(name="Binds"))


def test_what_a_class_refuses_is_an_error_with_its_reason() -> None:
    with pytest.raises(OptionError):
        PythonClasses().check(flumes("regex_filter", "RegexFilter", regex="(["))
    good = flumes("headers", "Static", key="k")
    PythonClasses().check(good)
    assert isinstance(build(good), Static)


def test_a_class_that_is_given_to_a_name_of_flumes_is_the_users_own() -> None:
    given = component("acme_flow:Mask", {"pattern": "x", "size": "7"}, Kind.SOURCE, "kafka")
    assert build(given).given == ("x", 7, None, False)


def test_a_class_of_the_users_own_that_may_bind_is_not_built_to_be_checked() -> None:
    PythonClasses().check(own(name="Binds"))


FILES = """
    a1.sources = r1 r2
    a1.channels = c1
    a1.sinks = k1 k2
    a1.channels.c1.type = memory
    a1.sources.r1.type = http
    a1.sources.r1.port = 0
    a1.sources.r1.channels = c1
    a1.sources.r2.type = syslogtcp
    a1.sources.r2.port = 0
    a1.sources.r2.channels = c1
    a1.sinks.k1.type = hdfs
    a1.sinks.k1.channel = c1
    a1.sinks.k1.hdfs.path = /out
    a1.sinks.k2.type = null
    a1.sinks.k2.channel = c1
"""


@pytest.mark.parametrize(
    ("line", "component", "part"),
    [
        ("a1.sinks.k1.hdfs.codeC = lzo", "a1.sinks.k1", "not 'lzo'"),
        ("a1.sinks.k1.hdfs.fileType = CompressedStream", "a1.sinks.k1", "needs a codec"),
        ("a1.sinks.k1.hdfs.timeZone = Mars", "a1.sinks.k1", "Mars"),
        ("a1.sinks.k1.serializer = com.acme.S", "a1.sinks.k1", "com.acme.S"),
        ("a1.sources.r1.handler = com.acme.H", "a1.sources.r1", "com.acme.H"),
        ("a1.sources.r1.ssl = true", "a1.sources.r1", "needs a keystore"),
        ("a1.sources.r1.keystore-type = JKS", "a1.sources.r1", "not 'JKS'"),
        ("a1.sources.r1.ssl = true\na1.sources.r1.keystore = /etc/k.p12", "a1.sources.r1", "openssl pkcs12"),
        ("a1.sources.r2.ssl = true\na1.sources.r2.keystore = /etc/k.jks", "a1.sources.r2", "keytool"),
    ],
)
def test_what_a_source_or_a_sink_refuses_drops_it_and_the_rest_runs(line: str, component: str, part: str) -> None:
    loaded = read(dedent(FILES) + line)
    (refused,) = [f for f in loaded.errors if f.code == "bad-value"]
    assert refused.component == component and part in refused.text
    a1 = loaded.agents["a1"]
    assert {s.name for s in (*a1.sources, *a1.sinks)} == {"r1", "r2", "k1", "k2"} - {component[-2:]}


def test_a_keystore_is_read_when_its_source_is_started() -> None:
    assert not read(dedent(FILES) + "a1.sources.r1.ssl = true\na1.sources.r1.keystore = /none.pem").errors


# What sources and sinks must be given, by type.
GIVEN = {
    "exec": "command = touch touched\nlogStdErr = true",
    "http": "port = 0\nssl = true\nkeystore = /none.pem",
    "multiport_syslogtcp": "ports = 0",
    "netcat": "bind = localhost\nport = 0",
    "netcatudp": "bind = localhost\nport = 0",
    "seq": "",
    "spooldir": "spoolDir = in",
    "stress": "",
    "syslogtcp": "port = 0\nssl = true\nkeystore = /none.pem",
    "syslogudp": "port = 0",
    "taildir": "filegroups = f\nfilegroups.f = in/.*\npositionFile = positions",
}
GIVEN_TO_SINKS = {
    "channel": "path = other",
    "file_roll": "sink.directory = out",
    "hdfs": "hdfs.path = out",
    "http": "endpoint = http://localhost:1/",
    "logger": "",
    "null": "",
    "parquet": "hdfs.path = out",
}
OPENINGS = ("open", "socket.", "subprocess.", "os.", "_thread.", "fcntl.", "mmap.", "shutil.", "urllib.")
_seen_by_hook: list[str] | None = None


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if _seen_by_hook is not None and event.startswith(OPENINGS) and threading.current_thread().name == "MainThread":
        _seen_by_hook.append(f"{event} {arguments}")


@pytest.fixture(scope="module")
def audited() -> None:
    """No hook can be removed."""
    sys.addaudithook(_hook)


@pytest.mark.usefixtures("audited")
@pytest.mark.parametrize(
    ("kind", "alias"),
    [(t.kind, t.alias) for t in TYPES if t.kind in (Kind.SOURCE, Kind.SINK) and t.implementation],
)
def test_no_source_or_sink_of_flumes_opens_anything_before_it_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind, alias: str
) -> None:
    """At a reload it is built while the one before it still runs."""
    global _seen_by_hook
    monkeypatch.chdir(tmp_path)
    given = (GIVEN if kind is Kind.SOURCE else GIVEN_TO_SINKS)[alias].splitlines()
    name, channel = ("sources.x", "channels") if kind is Kind.SOURCE else ("sinks.x", "channel")
    lines = [f"a1.{name}.{line}" for line in [f"type = {alias}", f"{channel} = c1", *given]]
    text = "\n".join(["a1.channels = c1", "a1.channels.c1.type = file", f"a1.{name[:-2]} = x", *lines])
    loaded = read(text)
    assert not loaded.errors
    (described,) = loaded.agents["a1"].sources or loaded.agents["a1"].sinks
    build(described)  # imports what it needs
    _seen_by_hook = []
    try:
        build(described)
        assert _seen_by_hook == []
        Path("seen").touch()
        assert any("seen" in event for event in _seen_by_hook)
    finally:
        _seen_by_hook = None


BUILT = [t for t in TYPES if t.implementation]


@pytest.mark.parametrize("known", BUILT, ids=lambda t: f"{t.kind}-{t.alias}")
def test_every_class_of_the_tables_takes_its_properties_with_these_defaults(known: ComponentType) -> None:
    parameters = inspect.signature(builder._load(known.implementation)).parameters
    for p in known.properties:
        keyword = known.keyword(p)
        if keyword.startswith("listed_"):
            continue  # the names of a family, which is a mapping
        assert keyword in parameters, keyword
        default = parameters[keyword].default
        if p.required:
            assert default in (inspect.Parameter.empty, None), keyword
        elif not p.depth and p.default is not None:
            assert default == p.default, keyword
