from __future__ import annotations

import pytest

from spillable_stream.errors import OptionError
from spillable_stream.flow.sources.server_tls import server_tls


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
