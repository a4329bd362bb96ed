"""Properties that do nothing beside the others of their component: what would let them count is not set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from spillable_stream.flow.configuration.findings import Findings
from spillable_stream.flow.configuration.model import ComponentConfig
from spillable_stream.flow.configuration.tree import RawComponent

__all__ = ["find_idle"]

_Keywords = Mapping[str, object]


class _Rule(NamedTuple):
    """When properties do nothing.

    Args:
        types: the types of component that have them.
        names: the properties; one that ends with a dot stands for all that begin so.
        is_idle: tells it by what is set of the component.
        unless: what would let them count.
    """

    types: tuple[str, ...]
    names: tuple[str, ...]
    is_idle: Callable[[_Keywords], bool]
    unless: str


def _file_type(keywords: _Keywords) -> str:
    return str(keywords.get("file_type", "SequenceFile")).lower()


_RULES = (
    _Rule(("exec",), ("restartThrottle",), lambda k: not k.get("restart"), "restart = true"),
    _Rule(
        ("syslogtcp", "multiport_syslogtcp", "http"),
        ("keystore", "keystore-password", "keystorePassword", "keystore-type"),
        lambda k: not k.get("ssl"),
        "ssl = true",
    ),
    _Rule(
        ("hdfs", "parquet"),
        ("hdfs.roundValue", "hdfs.roundUnit"),
        lambda k: not k.get("round"),
        "hdfs.round = true",
    ),
    _Rule(
        ("hdfs",),
        ("hdfs.inUseSuffix",),
        lambda k: bool(k.get("empty_in_use_suffix")),
        "hdfs.emptyInUseSuffix = false",
    ),
    _Rule(
        ("hdfs",),
        ("serializer", "serializer."),
        lambda k: _file_type(k) == "sequencefile",
        "hdfs.fileType = DataStream or CompressedStream",
    ),
    _Rule(
        ("hdfs",),
        ("hdfs.writeFormat",),
        lambda k: _file_type(k) != "sequencefile" and str(k.get("write_format", "")).lower() != "text",  # many write it
        "hdfs.fileType = SequenceFile",
    ),
)


def find_idle(raw: RawComponent, component: ComponentConfig, findings: Findings) -> None:
    """Add the properties of a component that do nothing.

    Args:
        raw: the component as its files describe it.
        component: the component.
        findings: gets what is found.
    """
    for rule in _RULES:
        if component.type not in rule.types or not rule.is_idle(component.keywords):
            continue
        for name, entry in raw.entries.items():
            if any(name == n or (n.endswith(".") and name.startswith(n)) for n in rule.names):
                text = f"{name} does nothing without {rule.unless}: write that, or take the line out"
                findings.add("idle-property", entry, raw.path, text)
