"""The credentials, region and address of an AWS profile, as AWS's own tools have them, read by botocore.

Obstore reads the environment and asks the services of a host, but no profile in ``~/.aws``. AWS's tools prefer keys in
the environment to a profile, and a profile to the host (`precedence
<https://boto3.amazonaws.com/v1/documentation/api/latest/guide/credentials.html>`_), and so does this.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from spillable_stream.objects.clouds import is_true
from spillable_stream.objects.credentials import CredentialsProvider, FailedProviderError, without_secrets

__all__ = ["NO_PROFILE", "AwsProfile", "aws_profile"]

_T = TypeVar("_T")

_FILES = {"AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials", "AWS_CONFIG_FILE": "~/.aws/config"}
# Botocore renews credentials 15 minutes before they expire and gives none away in the last 10, so it is asked again
# every 5: obstore asks 5 minutes before the time that it is told.
_VALID = dt.timedelta(minutes=10)
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")


class AwsProfile(NamedTuple):
    """What a profile says.

    Args:
        provider: returns its credentials; None where obstore finds those that count, if there are any.
        region: its region; "" if it names none, or the environment does.
        endpoint: another address of S3; "" if it names none.
    """

    provider: CredentialsProvider | None = None
    region: str = ""
    endpoint: str = ""


NO_PROFILE = AwsProfile()
"""Where no profile counts."""


def aws_profile(environment: Mapping[str, str]) -> AwsProfile:
    """Return what the profile says that AWS's tools would take; `NO_PROFILE` if they would take none.

    Args:
        environment: the variables of this process.

    Raises:
        FailedProviderError: the profile can't be read, or gives no credentials though the environment names it; or it
            does, and botocore is not installed.
    """
    named = environment.get("AWS_DEFAULT_PROFILE") or environment.get("AWS_PROFILE") or ""
    has_other = environment.get("AWS_ACCESS_KEY_ID") or is_true(environment, "AWS_SKIP_SIGNATURE")
    if has_other or not (named or _has_files(environment)):
        return NO_PROFILE
    if not _has_botocore():
        if named:
            raise FailedProviderError(
                f"AWS_PROFILE is {named!r}, and profiles need botocore: pip install 'spillable-stream[aws]'"
            )
        return NO_PROFILE
    return _call(named, lambda: _read(environment, named))


def _has_files(environment: Mapping[str, str]) -> bool:
    return any(Path(environment.get(name) or path).expanduser().is_file() for name, path in _FILES.items())


def _has_botocore() -> bool:
    try:
        import botocore.session  # noqa: F401
    except ImportError:
        return False
    return True


def _read(environment: Mapping[str, str], named: str) -> AwsProfile:
    from botocore.session import Session

    session = Session()
    set_region = next((environment[name] for name in _REGIONS if environment.get(name)), "")
    if set_region:
        session.set_config_variable("region", set_region)  # botocore itself reads only the second
    profile = session.get_scoped_config()
    of_s3 = session.full_config.get("services", {}).get(profile.get("services"), {}).get("s3", {})
    region = "" if set_region else profile.get("region", "")
    endpoint = of_s3.get("endpoint_url") or profile.get("endpoint_url", "")
    found = session.get_credentials()
    if found is None and named:
        raise FailedProviderError(f"the AWS profile {named!r} has no credentials: `aws configure list` shows it")
    provider = None if found is None else _Provider(named, found)
    if provider is not None:
        provider()  # what fails fails now, where it can be said why
    return AwsProfile(provider, region, endpoint)


class _Provider:
    """Returns the credentials as obstore takes them. Botocore renews them."""

    def __init__(self, named: str, credentials: Any) -> None:
        self._named = named
        self._credentials = credentials

    def __call__(self) -> Mapping[str, Any]:
        found = _call(self._named, self._credentials.get_frozen_credentials)
        return {
            "access_key_id": found.access_key,
            "secret_access_key": found.secret_key,
            "token": found.token,
            "expires_at": dt.datetime.now(dt.UTC) + _VALID,
        }


def _call(named: str, call: Callable[[], _T]) -> _T:
    """Call something of botocore's; its exceptions become one that shows no credential."""
    return without_secrets(call, lambda e: _said(named, e))


def _said(named: str, error: Exception) -> str:
    """Return this module's own words, else botocore's where they show no credential, else the kind of the error."""
    from botocore import exceptions as known

    if isinstance(error, FailedProviderError):
        return str(error)
    harmless = (
        known.ClientError,
        known.ConfigParseError,
        known.NoRegionError,
        known.PartialCredentialsError,
        known.ProfileNotFound,
        known.SSOError,
    )
    why = str(error) if isinstance(error, harmless) else type(error).__name__
    return f"the AWS profile {named or 'default'!r} gives no credentials: {why}"
