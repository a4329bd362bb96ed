from __future__ import annotations

import threading

import pytest

from spillable_stream.errors import OptionError
from spillable_stream.flow.sources.netcat import Netcat
from spillable_stream.flow.sources.network import bound_socket, server_tls
from tests.support.flow_processors import KeptBatches


def test_all_sources_share_one_loop_which_ends_with_the_last() -> None:
    def loops() -> int:
        return sum(t.name == "flow-network" for t in threading.enumerate())

    sources = [Netcat("127.0.0.1", 0) for _ in range(3)]
    for source in sources:
        source.start(KeptBatches())
    assert loops() == 1
    assert len({s.port for s in sources}) == 3
    for source in sources:
        source.stop()
        source.stop()
    assert loops() == 0


def test_a_source_can_be_started_again_and_one_that_failed_leaves_nothing() -> None:
    source = Netcat("no such host", 0)
    with pytest.raises(OptionError):
        source.start(KeptBatches())
    assert not source.alive
    source = Netcat("127.0.0.1", 0)
    for _ in range(2):
        source.start(KeptBatches())
        assert source.alive
        source.stop()


def test_a_server_without_tls_needs_no_keystore() -> None:
    assert server_tls(False, None, None, None) is None


@pytest.mark.parametrize(
    ("keystore", "kind", "way"),
    [
        ("x", "JKS", "keytool"),
        ("x.jks", None, "keytool"),
        ("x.p12", None, "openssl pkcs12"),
        ("x", "PKCS12", "openssl pkcs12"),
    ],
)
def test_a_keystore_of_javas_is_refused_with_the_command_that_converts_it(
    keystore: str, kind: str | None, way: str
) -> None:
    with pytest.raises(OptionError, match=way):
        server_tls(True, keystore, None, kind)


def test_an_address_of_version_6_is_one_to_listen_on() -> None:
    with bound_socket("::1", 0) as six:
        assert six.getsockname()[1] > 0
