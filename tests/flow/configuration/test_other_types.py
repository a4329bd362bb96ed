from __future__ import annotations

from spillable_stream.flow.configuration.other_types import (
    CONFIG_FILTERS,
    INTERCEPTORS,
    PROCESSORS,
    SELECTORS,
    SERIALIZERS,
)

DEFAULTS = {
    "timestamp.headerName": "timestamp",
    "timestamp.preserveExisting": False,
    "host.useIP": True,
    "static.key": "key",
    "static.value": "value",
    "static.preserveExisting": True,
    "remove_header.fromListSeparator": r"\s*,\s*",
    "uuid.headerName": "id",
    "uuid.preserveExisting": True,
    "search_replace.replaceString": "",
    "regex_filter.regex": ".*",
    "regex_filter.excludeEvents": False,
    "multiplexing.header": "flume.selector.header",
    "load_balancing.policy": "round_robin",
    "failover.maxpenalty": 30_000,
    "load_balance.selector": "round_robin",
    "load_balance.backoff": False,
    "load_balance.selector.maxTimeOut": 30_000,
}


def test_defaults_are_flumes() -> None:
    tables = (*INTERCEPTORS, *SELECTORS, *PROCESSORS)
    found = {f"{t.alias}.{p.name}": p.default for t in tables for p in t.properties}
    assert {name: found[name] for name in DEFAULTS} == DEFAULTS


def test_morphlines_and_hadoops_credentials_name_the_way_out() -> None:
    tables = (*INTERCEPTORS, *SERIALIZERS, *SELECTORS, *PROCESSORS, *CONFIG_FILTERS)
    assert {t.alias for t in tables if not t.supported} == {"morphline", "hadoop"}
