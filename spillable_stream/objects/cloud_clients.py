"""The obstore clients of a cloud's store: made from the environment of this process, and never pickled.

The client that creates slots sends each request once: one that repeats it would take its own object for another's. Two
more repeat what fails. The one that reads gives up a silent connection soon, since a reader waits for it; the one that
writes large bodies can't, as nothing comes back until the last byte is there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from ipaddress import ip_address
from types import ModuleType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from spillable_stream.errors import OptionError
from spillable_stream.objects.aws_profile import NO_PROFILE, AwsProfile, aws_profile
from spillable_stream.objects.clouds import Cloud, cloud_of, is_true
from spillable_stream.objects.credentials import FailedProviderError, chosen_provider, provider_of
from spillable_stream.objects.location import Location
from spillable_stream.objects.store import StoreError

__all__ = ["CloudClients", "RequestTimeouts", "import_obstore", "make_clients"]

_CONNECT_SECONDS = 5
# What fails at once is repeated for some 3 seconds, 5 at most.
_REPEATS = 10
_PAUSES = {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(milliseconds=500), "base": 2}
_WHOLE_SECONDS = 300  # of a request, whose body may be large
_AZURITE, _AZURITE_ACCOUNT = "http://127.0.0.1:10000", "devstoreaccount1"


class CloudClients(NamedTuple):
    """The obstore stores of one location.

    Args:
        once: creates; sends each request once.
        reading: reads, deletes and lists.
        writing: replaces and uploads.
    """

    once: Any
    reading: Any
    writing: Any

    def __repr__(self) -> str:
        """Leave out what obstore says of its stores, which is more than a report needs."""
        return "CloudClients()"


class RequestTimeouts(NamedTuple):
    """How long requests may take.

    Args:
        create_seconds: a request that is sent once.
        silence_seconds: the silence of the store while something is read; it is asked again then.
        repeat_seconds: how long a request that fails is repeated, at most; ten times.
    """

    create_seconds: float = 10.0
    silence_seconds: float = 10.0
    repeat_seconds: float = 60.0


def import_obstore() -> ModuleType:
    """Return the module.

    Raises:
        ImportError: it is not installed.
    """
    try:
        import obstore
        import obstore.store
    except ImportError as e:
        raise ImportError("a channel in a cloud needs obstore: pip install 'spillable-stream[object]'") from e
    found: ModuleType = obstore
    return found


def make_clients(location: Location, timeouts: RequestTimeouts) -> CloudClients:
    """Return the clients for a location.

    Args:
        location: the root of a channel in a cloud.
        timeouts: how long requests may take.

    Raises:
        StoreError: the environment's settings can't be used, or those of the AWS profile.
        OptionError: the environment names a provider that is not registered.
    """
    cloud = cloud_of(location)
    provider = chosen_provider()
    profile = _profile(location, provider)
    config = _config(location, cloud, os.environ, profile)
    whole = config | {"timeout": f"{_WHOLE_SECONDS} seconds"}
    reading = whole | {"read_timeout": _duration(timeouts.silence_seconds)}
    repeated = {
        "max_retries": _REPEATS,
        "retry_timeout": timedelta(seconds=timeouts.repeat_seconds),
        "backoff": _PAUSES,
    }
    creating = config | {"timeout": _duration(timeouts.create_seconds)}
    try:
        return CloudClients(
            _make(location, provider, profile, creating, {"max_retries": 0}),
            _make(location, provider, profile, reading, repeated),
            _make(location, provider, profile, whole, repeated),
        )
    except OptionError:
        raise
    except FailedProviderError as e:
        failed = str(e)
    except Exception:
        failed = ""
    # Raised here, where no exception of obstore's, which may show what it was given, becomes the context of this one.
    raise StoreError(
        failed or f"{location} can't be opened with the settings in the environment: check {_names(cloud, os.environ)}",
        may_have_happened=False,
        is_lasting=not failed,
    )


def _profile(location: Location, provider: str) -> AwsProfile:
    """Return what the AWS profile says, where it counts.

    Raises:
        StoreError: it counts, and can't be used.
    """
    if location.scheme != "s3" or provider:
        return NO_PROFILE
    try:
        return aws_profile(os.environ)
    except FailedProviderError as e:
        failed = str(e)
    raise StoreError(failed, may_have_happened=False, is_lasting=False)


def _make(
    location: Location, provider: str, profile: AwsProfile, config: dict[str, str], repeats: dict[str, object]
) -> Any:
    stores = import_obstore().store
    kind = {"s3": stores.S3Store, "az": stores.AzureStore, "gs": stores.GCSStore}[location.scheme]
    gives = provider_of(provider, location) if provider else profile.provider
    credentials = {} if gives is None else {"credential_provider": gives}
    return kind(location.bucket, config=config, retry_config=repeats, **credentials)


def _duration(seconds: float) -> str:
    return f"{round(seconds * 1000)} ms"


def _config(location: Location, cloud: Cloud, environment: Mapping[str, str], profile: AwsProfile) -> dict[str, str]:
    """Return the settings that obstore does not take from the environment itself, or must not.

    Raises:
        StoreError: a setting is missing, or its store is reached by unencrypted connections.
    """
    config = {"connect_timeout": f"{_CONNECT_SECONDS} seconds", "allow_http": "false"}
    endpoint = next((environment[name] for name in cloud.endpoints if environment.get(name)), profile.endpoint)
    if profile.region:
        config["region"] = profile.region
    if location.scheme == "s3":
        # A slot is created by If-None-Match, whatever the environment says; stores of other vendors lack bulk deletes.
        config |= {"conditional_put": "etag", "disable_bulk_delete": "true"}
        if endpoint:
            config["endpoint"] = endpoint
    elif location.scheme == "az":
        config |= _azure_config(location, environment)
        if is_true(environment, "AZURE_STORAGE_USE_EMULATOR"):
            endpoint = environment.get("AZURITE_BLOB_STORAGE_URL") or _AZURITE
    elif endpoint:
        endpoint = endpoint if "://" in endpoint else f"http://{endpoint}"
        config["base_url"] = endpoint.rstrip("/")
        if not environment.get("GOOGLE_BASE_URL"):  # an emulator, which Google's own libraries give no credentials
            config["bearer_token"] = "emulator"
    if endpoint.lower().startswith("http://"):
        _require_http(location, cloud, endpoint, environment)
        config["allow_http"] = "true"
    return config


def _azure_config(location: Location, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the account, under the names that Azure's own command line has for its variables, too."""
    names = ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT")
    account = next((environment[name] for name in names if environment.get(name)), "")
    if not account and is_true(environment, "AZURE_STORAGE_USE_EMULATOR"):
        account = _AZURITE_ACCOUNT
    if not account:
        raise StoreError(
            f"{location} needs the name of a storage account: set {names[0]}", may_have_happened=False, is_lasting=True
        )
    config = {"account_name": account}
    if environment.get("AZURE_STORAGE_KEY") and not environment.get("AZURE_STORAGE_ACCOUNT_KEY"):
        config["account_key"] = environment["AZURE_STORAGE_KEY"]
    return config


def _require_http(location: Location, cloud: Cloud, endpoint: str, environment: Mapping[str, str]) -> None:
    """Refuse an unencrypted connection to another host, unless the environment allows it."""
    if not _is_loopback(endpoint) and not is_true(environment, cloud.allow_http):
        raise StoreError(
            f"{location} would be reached without encryption: give it an https:// address, or set "
            f"{cloud.allow_http}=true",
            may_have_happened=False,
            is_lasting=True,
        )


def _is_loopback(endpoint: str) -> bool:
    host = ""
    try:
        host = urlsplit(endpoint).hostname or ""
        return ip_address(host).is_loopback
    except ValueError:  # not an address, or not a URL
        return host == "localhost"


def _names(cloud: Cloud, environment: Mapping[str, str]) -> str:
    """Return the names of the variables that are set, never a value."""
    names = sorted(name for name in environment if name.startswith(cloud.prefix) or name in cloud.endpoints)
    return ", ".join(names) or f"that {cloud.credentials} are set"
