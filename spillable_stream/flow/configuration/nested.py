"""Components whose properties describe parts of their own: groups of files, and the serializers of an extractor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from spillable_stream.errors import OptionError
from spillable_stream.flow.configuration.components import Classes, Refusal, configure
from spillable_stream.flow.configuration.findings import Findings
from spillable_stream.flow.configuration.model import ComponentConfig
from spillable_stream.flow.configuration.options import Kind, word_list
from spillable_stream.flow.configuration.registry import find_type
from spillable_stream.flow.configuration.tree import RawComponent

__all__ = ["configure_whole"]


def configure_whole(
    raw: RawComponent, findings: Findings, classes: Classes, *, default_type: str = ""
) -> ComponentConfig:
    """Return a component with its properties, and what is nested in them, parsed.

    The arguments, and what is raised, are those of `configure`.
    """
    component = configure(raw, findings, classes, default_type=default_type)
    finish = _FINISH.get((raw.kind, component.type))
    if finish is not None:
        component = replace(component, keywords=finish(raw, dict(component.keywords), findings, classes))
    try:
        classes.check(component)
    except OptionError as e:
        known = find_type(raw.kind, component.type)
        code = "bad-value" if known is not None and known.supported else "unusable-class"
        raise Refusal(findings.add(code, raw.first, raw.path, f"{e}; it does not run")) from e
    return component


def _file_groups(raw: RawComponent, keywords: dict[str, object], findings: Findings, _: Classes) -> dict[str, object]:
    """Keep the groups of files that are listed."""
    del keywords["listed_filegroups"]
    paths = keywords["filegroups"]
    assert isinstance(paths, dict)
    listed = _listed(raw, "filegroups", paths, findings)
    if not listed:
        text = "no group of files is both listed and described, so it does not run: write filegroups.NAME = …"
        raise Refusal(findings.add("missing-property", raw.entries["filegroups"], raw.path, text))
    return {**keywords, "filegroups": {name: paths[name] for name in listed}}


def _serializers(
    raw: RawComponent, keywords: dict[str, object], findings: Findings, classes: Classes
) -> dict[str, object]:
    """Make the serializers components of their own."""
    del keywords["listed_serializers"]
    described = keywords.pop("serializers", {})
    assert isinstance(described, dict)
    for name in _listed(raw, "serializers", described, findings, needed=True):
        described[name] = configure_whole(
            raw.below(f"serializers.{name}", Kind.SERIALIZER, name), findings, classes, default_type="DEFAULT"
        )
    names = word_list(raw.entries["serializers"].value)
    return {**keywords, "serializers": tuple(described[name] for name in names)}


def _listed(
    raw: RawComponent, of: str, described: dict[str, object], findings: Findings, *, needed: bool = False
) -> list[str]:
    """Return the names of a list that are described, each once, and say which are only one of both."""
    names = list(dict.fromkeys(word_list(raw.entries[of].value)))
    for name in names:
        if name not in described:
            text = f"{of} lists {name}, which has no property: describe it as {of}.{name}, or take it off the list"
            finding = findings.add("not-described", raw.entries[of], raw.path, text)
            if needed:
                raise Refusal(finding)
    for name in described:
        if name not in names:
            key = f"{of}.{name}"
            at = raw.entries.get(key) or raw.below(key, raw.kind, name).first_given
            findings.add("not-listed", at, raw.path, f"{of} does not list {name}, so nothing reads this: add it")
    return [name for name in names if name in described]


_Finish = Callable[[RawComponent, dict[str, object], Findings, Classes], dict[str, object]]

_FINISH: dict[tuple[Kind, str], _Finish] = {
    (Kind.SOURCE, "taildir"): _file_groups,
    (Kind.INTERCEPTOR, "regex_extractor"): _serializers,
}
