"""Azure Blob Storage as Microsoft's emulator plays it, where that is installed: ``npm install -g azurite``."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import urllib.request
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path
from urllib.parse import urlencode

from demo.cluster.processes import LOOPBACK, serving
from tests.support.servers.process import program

__all__ = ["azure_environment", "azurite_server", "break_lease", "lease_blob", "make_container"]

_ACCOUNT = "devstoreaccount1"
# The key that every emulator has; it is in its documentation.
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_VERSION = "2023-11-03"


@contextlib.contextmanager
def azurite_server(directory: Path) -> Iterator[str]:
    """Run the emulator without telemetry and yield its address."""
    found = program("azurite-blob", "AZURITE_BLOB", "the npm package azurite")
    flags = ["--disableTelemetry", "--skipApiVersionCheck", "--silent", "--location", str(directory)]
    with serving(
        lambda port: [found, "--blobHost", LOOPBACK, "--blobPort", str(port), *flags], directory / "azurite.log"
    ) as port:
        yield f"http://{LOOPBACK}:{port}"


def azure_environment(url: str) -> dict[str, str]:
    """Return the variables for a store in the emulator."""
    return {"AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": url}


def make_container(url: str, name: str) -> None:
    """Make a container."""
    _put(url, name, {"restype": "container"}, {})


def lease_blob(url: str, container: str, key: str) -> None:
    """Let somebody lease a blob for good, so that nobody else can change or delete it."""
    _put(url, f"{container}/{key}", {"comp": "lease"}, {"x-ms-lease-action": "acquire", "x-ms-lease-duration": "-1"})


def break_lease(url: str, container: str, key: str) -> None:
    """End the lease of a blob at once."""
    _put(url, f"{container}/{key}", {"comp": "lease"}, {"x-ms-lease-action": "break", "x-ms-lease-break-period": "0"})


def _put(url: str, path: str, query: dict[str, str], more: dict[str, str]) -> None:
    """Send a signed request, since the client library has none for it."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": _VERSION, **more}
    canonical = "".join(f"{header}:{value}\n" for header, value in sorted(headers.items()))
    resource = f"/{_ACCOUNT}/{_ACCOUNT}/{path}" + "".join(f"\n{name}:{value}" for name, value in sorted(query.items()))
    signed = "PUT" + "\n" * 12 + canonical + resource
    digest = hmac.new(base64.b64decode(_KEY), signed.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {_ACCOUNT}:{base64.b64encode(digest).decode()}"
    target = f"{url}/{_ACCOUNT}/{path}?{urlencode(query)}"
    urllib.request.urlopen(urllib.request.Request(target, method="PUT", headers=headers), timeout=30).close()
