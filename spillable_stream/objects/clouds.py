"""The clouds whose stores a channel can be in: their words, and the names of the variables that configure them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from spillable_stream.objects.location import Location

__all__ = ["CLOUDS", "Cloud", "cloud_of", "is_true"]

_TRUE = {"1", "true", "on", "yes", "y"}


class Cloud(NamedTuple):
    """What differs between clouds in messages and in the environment.

    Args:
        name: what its store is called.
        bucket: its word for a bucket.
        prefix: how its environment variables begin.
        endpoints: the variables with another address of the store, the first one that is set counts.
        credentials: what to check in the environment if the credentials are not accepted.
        region: what to set if the bucket is elsewhere.
        rights: the permission that each verb needs.
    """

    name: str
    bucket: str
    prefix: str
    endpoints: tuple[str, ...]
    credentials: str
    region: str
    rights: dict[str, str]

    @property
    def allow_http(self) -> str:
        """The variable that allows unencrypted connections."""
        return f"{self.prefix}ALLOW_HTTP"


_AZURE_WRITES, _AZURE_READS = "the role Storage Blob Data Contributor", "the role Storage Blob Data Reader"

CLOUDS: dict[str, Cloud] = {
    "s3": Cloud(
        "S3",
        "bucket",
        "AWS_",
        ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or the role of this host",
        "set AWS_REGION to the bucket's region",
        {"write": "s3:PutObject", "read": "s3:GetObject", "delete": "s3:DeleteObject", "list": "s3:ListBucket"},
    ),
    "az": Cloud(
        "Azure Blob Storage",
        "container",
        "AZURE_",
        ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
        "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or the identity of this host",
        "set AZURE_STORAGE_ENDPOINT to the address of the account",
        {"write": _AZURE_WRITES, "read": _AZURE_READS, "delete": _AZURE_WRITES, "list": _AZURE_READS},
    ),
    "gs": Cloud(
        "Google Cloud Storage",
        "bucket",
        "GOOGLE_",
        ("GOOGLE_BASE_URL", "STORAGE_EMULATOR_HOST"),
        "GOOGLE_APPLICATION_CREDENTIALS, or the service account of this host",
        "leave GOOGLE_BASE_URL unset",
        {
            "write": "storage.objects.create and storage.objects.delete",
            "read": "storage.objects.get",
            "delete": "storage.objects.delete",
            "list": "storage.objects.list",
        },
    ),
}
"""The clouds by the scheme of their locations."""


def cloud_of(location: Location) -> Cloud:
    """Return the cloud that a location is in."""
    return CLOUDS[location.scheme]


def is_true(environment: Mapping[str, str], name: str) -> bool:
    """Tell whether a variable says yes, as obstore understands it."""
    return environment.get(name, "").lower() in _TRUE
