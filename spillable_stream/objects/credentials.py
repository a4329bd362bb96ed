"""Named providers of credentials, for hosts whose environment and instance role give none.

The environment variable ``SPILLABLE_CREDENTIALS`` says which one a process uses. It is the name of one that the program
registered, or ``module:factory``, which any process imports by itself, Spark's workers too. No credential is in it.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar, cast

from spillable_stream.arguments import function, text
from spillable_stream.errors import OptionError
from spillable_stream.objects.location import Location
from spillable_stream.shown_value import shown

__all__ = [
    "CREDENTIALS",
    "CredentialsFactory",
    "CredentialsProvider",
    "FailedProviderError",
    "chosen_provider",
    "factory_of",
    "provider_of",
    "register_credentials",
    "without_secrets",
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

CREDENTIALS = "SPILLABLE_CREDENTIALS"
"""The environment variable with the name of the provider that this process uses."""

_factories: dict[str, CredentialsFactory] = {}  # each use is one step, so it needs no lock that a fork could land in


class FailedProviderError(Exception):
    """A provider failed. Its own exception is left out, since that may show credentials."""


def register_credentials(name: str, factory: CredentialsFactory) -> None:
    """Register a provider of credentials, or replace the one of this name.

    Args:
        name: the name by which channels choose it.
        factory: returns the provider for a location; called when a store is first used in a process.

    Raises:
        OptionError: the name is empty or not text, or the factory can't be called.
    """
    function("factory", factory)
    if not text("name", name):
        raise OptionError("a provider of credentials needs a name")
    _factories[name] = factory


def chosen_provider() -> str:
    """Return the name of the provider that this process uses; "" for what the cloud's own tools take."""
    return os.environ.get(CREDENTIALS, "")


def factory_of(name: str) -> CredentialsFactory | None:
    """Return what is registered under a name; None if nothing is, for a name that is imported, or for ""."""
    return _factories.get(name)


def provider_of(name: str, location: Location) -> CredentialsProvider:
    """Return the provider of this name for a location. What it raises names no credential.

    Raises:
        OptionError: this process has registered none of this name, and can't import it.
        FailedProviderError: the factory failed.
    """
    factory = _factories.get(name)
    if factory is None and ":" in name:
        factory = _imported(name)
    if factory is None:
        raise OptionError(
            f"this process has no provider of credentials named {shown(name)}, only {sorted(_factories)}: call "
            f"register_credentials() in every process that opens the store, or set {CREDENTIALS} to module:factory, "
            "which each imports by itself"
        )
    return _Guarded(name, _call(name, lambda: factory(location)))


def _imported(name: str) -> CredentialsFactory:
    """Return the factory that ``module:factory`` names."""
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except Exception as e:  # its own words are left out: they may show credentials
        failed = type(e).__name__
    else:
        return cast(CredentialsFactory, found)
    raise OptionError(
        f"{CREDENTIALS} is {shown(name)}, which this process can't import ({failed}): write module:factory, with a "
        "module that every process finds"
    )


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
    return without_secrets(call, lambda e: f"the provider of credentials {name!r} failed: {type(e).__name__}")


def without_secrets(call: Callable[[], _T], said: Callable[[Exception], str]) -> _T:
    """Call something that has credentials; its exceptions, which may show them, are not even a context of this one's.

    Args:
        call: what to call.
        said: returns what may be said of an exception.

    Raises:
        FailedProviderError: it raised; with what may be said.
    """
    try:
        return call()
    except Exception as e:
        failed = said(e)
    raise FailedProviderError(failed)
