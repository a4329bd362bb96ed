"""Named providers of credentials, for hosts whose environment and instance role give none.

A program registers a provider under a name in every process that opens the store, workers too. Only the name travels:
in options, in what is pickled, and in messages.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

from spillable_stream.errors import OptionError
from spillable_stream.objects.location import Location

__all__ = [
    "CredentialsFactory",
    "CredentialsProvider",
    "FailedProviderError",
    "provider_of",
    "register_credentials",
]

_T = TypeVar("_T")

CredentialsProvider: TypeAlias = Callable[[], Mapping[str, Any]]
"""Returns credentials when it is called, and is called again before they expire.

The mapping is as obstore takes it: ``access_key_id``, ``secret_access_key`` and ``token`` for S3; ``token``,
``access_key`` or ``sas_token`` for Azure; ``token`` for Google; each with ``expires_at``, a `datetime` with a time
zone, or None.
"""

CredentialsFactory: TypeAlias = Callable[[Location], CredentialsProvider]
"""Returns the provider for a location."""

_factories: dict[str, CredentialsFactory] = {}
_lock = threading.Lock()


class FailedProviderError(Exception):
    """A provider failed. Its own exception is left out, since that may show credentials."""


def register_credentials(name: str, factory: CredentialsFactory) -> None:
    """Register a provider of credentials, or replace the one of this name.

    Args:
        name: the name by which channels choose it.
        factory: returns the provider for a location; called when a store is first used in a process.

    Raises:
        OptionError: the name is empty.
    """
    if not name:
        raise OptionError("a provider of credentials needs a name")
    with _lock:
        _factories[name] = factory


def provider_of(name: str, location: Location) -> CredentialsProvider:
    """Return the provider of this name for a location. What it raises names no credential.

    Raises:
        OptionError: this process has registered none of this name.
        FailedProviderError: the factory failed.
    """
    with _lock:
        factory = _factories.get(name)
        known = sorted(_factories)
    if factory is None:
        raise OptionError(
            f"this process has no provider of credentials named {name!r}, only {known}: call register_credentials() in "
            "every process that opens the store"
        )
    return _Guarded(name, _call(name, lambda: factory(location)))


class _Guarded:
    """A provider whose exceptions name only their type.

    Attributes:
        refresh_threshold: how long before their end credentials are renewed, if the provider says so.
    """

    def __init__(self, name: str, provider: CredentialsProvider) -> None:
        self._name = name
        self._provider = provider
        if hasattr(provider, "refresh_threshold"):
            self.refresh_threshold = provider.refresh_threshold

    def __call__(self) -> Mapping[str, Any]:
        return _call(self._name, lambda: {"expires_at": None, **self._provider()})


def _call(name: str, call: Callable[[], _T]) -> _T:
    try:
        return call()
    except Exception as e:
        failed = type(e).__name__
    raise FailedProviderError(f"the provider of credentials {name!r} failed: {failed}")
