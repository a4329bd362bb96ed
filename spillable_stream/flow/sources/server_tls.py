"""What a source that listens needs for TLS: a PEM file with its certificate and key."""

from __future__ import annotations

import ssl

from spillable_stream.errors import OptionError

__all__ = ["ServerTls", "server_tls"]


class ServerTls:
    """What a server needs for TLS.

    Args:
        keystore: a PEM file with the certificate and its key.
        password: the key's password.
        kind: the keystore's type: ``PEM``.

    Raises:
        OptionError: there is no keystore, or it is one of Java's.
    """

    def __init__(self, keystore: str | None, password: str | None, kind: str | None) -> None:
        if not keystore:
            raise OptionError("ssl needs a keystore: a PEM file with the certificate and its key")
        name = keystore.lower()
        if (kind or "PEM").upper() == "JKS" or name.endswith(".jks"):
            raise OptionError(
                f"{keystore} is a keystore of Java's; convert it: keytool -importkeystore -srckeystore {keystore} "
                "-destkeystore k.p12 -deststoretype pkcs12, then openssl pkcs12 -in k.p12 -nodes -out k.pem"
            )
        if (kind or "PEM").upper() != "PEM" or name.endswith((".p12", ".pfx")):
            raise OptionError(
                f"{keystore} is not a PEM file; convert it: openssl pkcs12 -in {keystore} -nodes -out k.pem"
            )
        self.keystore: str = keystore
        self.password: str = password or ""

    def context(self) -> ssl.SSLContext:
        """Read the keystore.

        Raises:
            OptionError: the file can't be used.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self.keystore, password=self.password)
        except (OSError, ssl.SSLError) as e:
            raise OptionError(
                f"the keystore {self.keystore} can't be used ({e}); it must be a PEM file with certificate and key"
            ) from e
        return context


def server_tls(use: bool, keystore: str | None, password: str | None, kind: str | None) -> ServerTls | None:
    """Return what a server needs that uses TLS, else None; raises what `ServerTls` raises."""
    return ServerTls(keystore, password, kind) if use else None
