from __future__ import annotations

import pytest

from spillable_stream.errors import OptionError
from spillable_stream.flow.configuration.components import Refusal, configure
from spillable_stream.flow.configuration.findings import Findings
from spillable_stream.flow.configuration.model import ComponentConfig
from spillable_stream.flow.configuration.options import Kind
from spillable_stream.flow.configuration.properties import Entry
from spillable_stream.flow.configuration.tree import RawComponent
from tests.support.flow_configurations import NoClasses


class Acme(NoClasses):
    """Knows one class."""

    def find(self, kind: Kind, name: str) -> str:
        if name != "acme.Source":
            raise OptionError(f"there is no {name}")
        return "acme:Source"


def raw(kind: Kind, **properties: str) -> RawComponent:
    names = {key.replace("__", ".").replace("_", "-"): value for key, value in properties.items()}
    entries = {k: Entry(f"a1.x.c.{k}", v, "f", i + 1, v) for i, (k, v) in enumerate(names.items())}
    return RawComponent(kind, "a1.x.c", "c", Entry("a1.x", "c", "f", 9, "c"), entries)


def configured(kind: Kind, **properties: str) -> tuple[ComponentConfig, list[str]]:
    findings = Findings()
    config = configure(raw(kind, **properties), findings, Acme())
    return config, [f"{f.line} {f.code}: {f.text}" for f in findings.sorted(["f"])]


def refusal(kind: Kind, **properties: str) -> str:
    with pytest.raises(Refusal) as refused:
        configure(raw(kind, **properties), Findings(), Acme())
    return f"{refused.value.finding.line} {refused.value.finding.code}: {refused.value}"


def test_properties_are_keyword_arguments_those_that_are_given() -> None:
    config, found = configured(Kind.SINK, type="HDFS", hdfs__path="/x", hdfs__rollSize="0", channel="c1")
    assert config.keywords == {"path": "/x", "roll_size": 0} and not found
    assert (config.type, config.name, config.line) == ("hdfs", "c", 1)
    assert config.implementation == "spillable_stream.flow.sinks.hdfs:Hdfs"
    assert config.properties == {"hdfs.path": "/x", "hdfs.rollSize": "0"}


def test_families_are_mappings() -> None:
    config, found = configured(
        Kind.SOURCE, type="taildir", filegroups="g h", filegroups__g="/g", filegroups__h="/h", headers__g__k__x="v"
    )
    assert config.keywords["filegroups"] == {"g": "/g", "h": "/h"}
    assert config.keywords["headers"] == {"g": {"k.x": "v"}} and not found


def test_an_old_name_counts_unless_the_new_one_is_given() -> None:
    old = {"bufferMaxLineLength": "5"}
    config, found = configured(Kind.SOURCE, type="spooldir", spoolDir="/x", **old)
    assert config.keywords["deserializer_max_line_length"] == 5
    assert found[0].startswith("3 deprecated") and "write deserializer.maxLineLength" in found[0]
    config, found = configured(Kind.SOURCE, type="spooldir", spoolDir="/x", **old, deserializer__maxLineLength="7")
    assert config.keywords["deserializer_max_line_length"] == 7 and "not read" in found[0]


def test_a_class_of_the_users_own_gets_all_its_properties_as_text() -> None:
    config, found = configured(Kind.SOURCE, type="acme.Source", maxSize="5", channels="c1", acme__host="h")
    assert config.keywords == {"max_size": "5", "acme_host": "h"} and not found
    assert (config.type, config.implementation) == ("acme.Source", "acme:Source")


def test_a_type_that_does_not_run_names_the_way_out_unless_it_is_given_a_class() -> None:
    class Kafka(NoClasses):
        def find(self, kind: Kind, name: str) -> str:
            return "acme:Kafka"

    config = configure(raw(Kind.SOURCE, type="kafka", topic="t"), Findings(), Kafka())
    assert (config.implementation, config.keywords) == ("acme:Kafka", {"topic": "t"})
    assert refusal(Kind.SOURCE, type="kafka").startswith("1 unsupported-type: the type kafka does not run here: ")


def test_a_component_is_refused_with_the_line_to_change() -> None:
    assert refusal(Kind.SINK, type="null", batchSize="0").startswith("2 bad-value: batchSize must be an integer of at")
    assert refusal(Kind.SOURCE, type="netcat", bind="x").startswith("1 missing-property: it needs port")
    assert refusal(Kind.SINK, hdfs__path="/x").startswith("1 no-type: it has no type")
    assert refusal(Kind.SINK, type="nul") == "1 unknown-type: there is no sink of type 'nul': did you mean null?"
    assert refusal(Kind.SINK, type="x.Y") == "1 unusable-class: there is no x.Y"
    assert refusal(Kind.CHANNEL, type="acme.Source") == (
        "1 unusable-class: a class of your own can't be a channel: the types are memory, file, SPILLABLEMEMORY"
    )
    assert refusal(Kind.CHANNEL, type="file", encryption__activeKey="k").startswith("2 unsupported-property: ")


def test_a_number_above_the_most_is_refused_with_that() -> None:
    for text in ("3000000000", "9" * 30):
        said = refusal(Kind.SINK, type="null", batchSize=text)
        assert f"not '{text}'; the most is 2,147,483,647: it does not run" in said


def test_a_value_may_count_as_not_given() -> None:
    config, found = configured(Kind.CHANNEL, type="memory", capacity="all", transactionCapacity="-1")
    assert config.keywords == {} and [f[:14] for f in found] == ["2 default-used", "3 default-used"]
    config, found = configured(Kind.CHANNEL, type="file", capacity="0")
    assert config.keywords == {} and found[0].startswith("2 default-used")
    assert refusal(Kind.CHANNEL, type="file", capacity="all").startswith("2 bad-value")


def test_a_word_that_is_not_true_is_false_and_found() -> None:
    config, found = configured(Kind.SOURCE, type="exec", command="x", restart="yes", logStdErr="TRUE")
    assert config.keywords == {"command": "x", "restart": False, "log_std_err": True}
    assert found == ["3 bad-boolean: restart must be true or false, not 'yes', which counts as false"]


def test_an_unknown_property_is_found_with_the_nearest_name() -> None:
    _, found = configured(
        Kind.SINK, type="hdfs", hdfs__path="/x", batchSize="1", hdfs__rolSize="0", hdfs__batchsize="1", color="red"
    )
    assert [f.partition(":")[0] for f in found] == ["3 wrong-prefix", *(f"{i} unknown-property" for i in (4, 5, 6))]
    assert "hdfs.batchSize" in found[0] and "hdfs.rollSize" in found[1] and "hdfs.batchSize" in found[2]
    assert found[3].endswith("take it out")


@pytest.mark.parametrize(
    ("kind", "of_type", "name", "meant"),
    [(Kind.SINK, "logger", "channels", "channel"), (Kind.SOURCE, "seq", "channel", "channels")],
)
def test_the_channels_of_a_source_and_the_channel_of_a_sink_are_told_apart(
    kind: Kind, of_type: str, name: str, meant: str
) -> None:
    _, found = configured(kind, type=of_type, **{name: "c1"})
    assert [f.rpartition(": ")[2] for f in found] == [f"did you mean {meant}?"]


def test_a_property_without_use_is_a_note_with_the_reason() -> None:
    _, found = configured(
        Kind.SOURCE, type="http", port="1", QueuedThreadPool__maxThreads="5", excludeProtocols="SSLv3"
    )
    assert found[0].startswith("3 unused-property: QueuedThreadPool.maxThreads has no effect: ")
    assert found[1].startswith("4 unused-property: ")
