"""The errors of a cloud's store: one sentence for each outcome, with what to do and without any credential."""

from __future__ import annotations

from typing import Literal

from spillable_stream.objects.cloud_answer import CloudAnswer, Outcome
from spillable_stream.objects.clouds import Cloud, cloud_of
from spillable_stream.objects.location import Location
from spillable_stream.objects.store import ObjectMissingError, StoreError

__all__ = ["Right", "store_error"]

Right = Literal["write", "read", "delete", "list"]
"""What a request needs to be allowed to do."""

# The store, or this host, decided against the request before it was done.
_NOT_DONE = {
    Outcome.PROTECTED,
    Outcome.ARCHIVED,
    Outcome.MISSING,
    Outcome.NO_BUCKET,
    Outcome.FORBIDDEN,
    Outcome.UNKNOWN_CREDENTIALS,
    Outcome.EXPIRED,
    Outcome.NO_CREDENTIALS,
    Outcome.FAILED_PROVIDER,
    Outcome.KEY,
    Outcome.WRONG_CLOCK,
    Outcome.WRONG_REGION,
    Outcome.BEYOND,
    Outcome.UNSUPPORTED,
    Outcome.TOO_LARGE,
    Outcome.REFUSED,
}
_PASSING = {
    Outcome.PROTECTED,
    Outcome.NO_CREDENTIALS,
    Outcome.FAILED_PROVIDER,
    Outcome.BEYOND,
}  # of these, the ones that another try may find gone
_DOING = {"write": "writing", "read": "reading", "delete": "deleting", "list": "listing"}


def store_error(location: Location, right: Right, key: str, answer: CloudAnswer) -> StoreError:
    """Return the error for an answer that is not what was asked for.

    Args:
        location: the store's root.
        right: what the request needed to be allowed to do.
        key: the object, or the prefix of a listing.
        answer: what the store answered.
    """
    cloud = cloud_of(location)
    place = f"{str(location).rstrip('/')}/{key}"
    if answer.outcome is Outcome.MISSING and right in ("read", "delete"):
        return ObjectMissingError(f"there is no object {place}")
    is_conflict = answer.outcome is Outcome.EXISTS and right == "delete"
    if is_conflict and not answer.code and location.scheme == "az":  # whose answers to deletions have no code
        answer = answer._replace(outcome=Outcome.PROTECTED)
    is_not_done = answer.outcome in _NOT_DONE
    return StoreError(
        f"{_DOING[right]} {place} failed{_said(answer)}: {_reason(location, cloud, right, answer)}",
        may_have_happened=not is_not_done,
        is_lasting=is_not_done and answer.outcome not in _PASSING,
        is_limited=answer.status == 429,
    )


def _said(answer: CloudAnswer) -> str:
    words = " ".join(word for word in (str(answer.status or ""), answer.code) if word)
    return f" ({words})" if words else ""


def _reason(location: Location, cloud: Cloud, right: Right, answer: CloudAnswer) -> str:
    """Return what happened and what to do."""
    if answer.outcome is Outcome.FORBIDDEN:
        return _forbidden(location, cloud, right, answer)
    if answer.outcome in (Outcome.MISSING, Outcome.NO_BUCKET):
        if answer.code == "NoSuchUpload":
            return "the parts of the upload are gone: a rule of the bucket must not remove them within a day"
        return f"the {cloud.bucket} {location.bucket!r} does not exist: create it, or correct the name"
    if answer.code == "InvalidRequest" and (location.scheme, right) == ("s3", "write"):
        return (
            "S3 refused the request: set AWS_CHECKSUM_ALGORITHM=SHA256 if the bucket has Object Lock, or check the "
            "settings of the store and the name"
        )
    return {
        Outcome.UNKNOWN_CREDENTIALS: (
            f"{cloud.name} found no credentials, or does not accept them, or they have expired: check "
            f"{cloud.credentials}{'' if location.scheme == 's3' else ', and the clock of this host'}"
        ),
        Outcome.NO_CREDENTIALS: (
            f"no credentials were found: set {cloud.credentials}; or try again, if what gives them to this host is busy"
        ),
        Outcome.EXPIRED: f"the credentials have expired: renew them, by {cloud.credentials}",
        Outcome.FAILED_PROVIDER: (
            "the provider of credentials failed: call it by itself to learn why; for a profile of AWS, `aws sts "
            "get-caller-identity` says it"
        ),
        Outcome.PROTECTED: (
            "a lease, a hold or a retention policy keeps the object as it is: end it for all that is under the root of "
            "the channel"
        ),
        Outcome.ARCHIVED: (
            f"the object has been archived: restore it, and let no rule of the {cloud.bucket} archive what is under "
            "the root of the channel"
        ),
        Outcome.KEY: f"the {cloud.bucket} has a key that can't be used: enable it, and allow the store to use it",
        Outcome.WRONG_CLOCK: "the clock of this host differs too much from the store's: set it",
        Outcome.WRONG_REGION: f"the {cloud.bucket} {location.bucket!r} is in another region: {cloud.region}",
        Outcome.UNSUPPORTED: (
            "the store does not know this kind of request: use one that creates an object only if there is none"
        ),
        Outcome.TOO_LARGE: "the object or its name is larger than the store allows in one request: use less of it",
        Outcome.REFUSED: f"{cloud.name} refused the request: check the settings of the store and the name",
        Outcome.BUSY: "the store is busy, or failed inside: try again later",
        Outcome.UNREACHABLE: (
            f"{cloud.name} can't be reached: check the network of this host, and what is set of "
            f"{', '.join(cloud.endpoints)}"
        ),
        Outcome.BROKEN: "the connection broke before the answer was complete: try again",
        Outcome.TIMEOUT: "there was no answer in time: check the network of this host, or try again",
        Outcome.EXISTS: "another request to the same object was under way: try again",
        Outcome.BEYOND: "the object ends before the range begins",
    }.get(answer.outcome, "the store's client did not say why: check the settings of the store, or try again")


def _forbidden(location: Location, cloud: Cloud, right: Right, answer: CloudAnswer) -> str:
    if answer.code == "AuthorizationFailure":  # Azure says that of several causes
        return (
            f"the credentials may not {right} there, or have expired: allow {cloud.rights[right]}, or renew them, by "
            f"{cloud.credentials}; or the network rules of the account keep this host out"
        )
    needed = f"the credentials may not {right} there: allow {cloud.rights[right]}"
    if location.scheme == "s3" and right == "write":
        return f"{needed}, and kms:GenerateDataKey and kms:Decrypt if the bucket has a key of KMS"
    if location.scheme == "s3" and right == "read":
        return (
            f"{needed}, and s3:ListBucket on the bucket, without which S3 answers the same for an object that does not "
            "exist, and kms:Decrypt if the bucket has a key of KMS"
        )
    return needed
