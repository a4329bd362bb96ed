"""What a cloud's store answered, read from the exceptions of obstore without keeping any of their text.

Those texts show URLs with their signatures, and whole bodies. Only a status, a code that this module knows, and words
of obstore's own are taken from them, so no message, log or report can carry a credential further.
"""

from __future__ import annotations

import os
import re
from enum import Enum
from typing import NamedTuple

from spillable_stream.objects.credentials import FailedProviderError

__all__ = ["CloudAnswer", "Outcome", "read_answer"]


class Outcome(Enum):
    """What became of a request. The value tells whether the store can have done what was asked."""

    EXISTS = "there is an object of this key, or a conflict with another request"
    PROTECTED = "there is an object, which a lease, a hold or a retention policy keeps as it is"
    ARCHIVED = "there is an object, in an archive from which it has to be restored"
    MISSING = "there is no object of this key"
    NO_BUCKET = "there is no bucket or container of this name"
    FORBIDDEN = "the credentials are known, and don't allow it"
    UNKNOWN_CREDENTIALS = "there are no credentials, or wrong ones"
    EXPIRED = "the credentials were valid once"
    NO_CREDENTIALS = "neither the environment nor the role of this host gave credentials"
    FAILED_PROVIDER = "a provider of credentials failed"
    KEY = "the key with which the store encrypts can't be used"
    WRONG_CLOCK = "this host's clock is too far from the store's"
    WRONG_REGION = "the bucket is in another region"
    BEYOND = "the range begins after the end of the object"
    UNSUPPORTED = "the store does not know this kind of request"
    TOO_LARGE = "the store takes no object of this size, or name of this length, in one request"
    REFUSED = "the store refused it for another reason"
    BUSY = "the store has too many requests, or failed inside"
    UNREACHABLE = "no connection was made"
    BROKEN = "a connection was made and broke, or the answer can't be read"
    TIMEOUT = "there was no answer in time"
    UNKNOWN = "nothing is known"


class CloudAnswer(NamedTuple):
    """What a store answered.

    Args:
        outcome: what became of the request.
        status: the HTTP status; 0 if there was none.
        code: the store's own word for it, if this module knows the word; otherwise "".
    """

    outcome: Outcome
    status: int = 0
    code: str = ""


_CODES = {
    Outcome.NO_BUCKET: "NoSuchBucket ContainerNotFound AccountNotFound ContainerBeingDeleted ContainerDisabled",
    Outcome.MISSING: "NoSuchKey BlobNotFound NoSuchUpload",
    Outcome.EXISTS: "ConditionalRequestConflict BlobAlreadyExists",
    Outcome.PROTECTED: (
        "BlobImmutableDueToPolicy BlobImmutableDueToLegalHold LeaseIdMissing LeaseIdMismatchWithBlobOperation "
        "LeaseLost SnapshotsPresent RetentionPolicyNotMet ObjectUnderActiveHold"
    ),
    Outcome.ARCHIVED: "InvalidObjectState BlobArchived BlobBeingRehydrated",
    Outcome.KEY: (
        "KMS.DisabledException KMS.NotFoundException KMS.InvalidStateException KMS.KMSInvalidStateException "
        "KMS.InvalidKeyUsageException KMS.KeyUnavailableException KMS.AccessDeniedException "
        "KeyVaultEncryptionKeyNotFound KeyVaultAccessTokenCannotBeAcquired KeyVaultVaultNotFound "
        "CloudKmsBadKey CloudKmsDisabledKey CloudKmsDecryptionKeyNotFound CloudKmsEncryptionKeyNotFound "
        "CloudKmsKeyLocationNotAllowed"
    ),
    Outcome.EXPIRED: "ExpiredToken ExpiredTokenException TokenRefreshRequired RequestExpired",
    Outcome.UNKNOWN_CREDENTIALS: (
        "InvalidAccessKeyId SignatureDoesNotMatch AuthenticationFailed InvalidAuthenticationInfo InvalidToken "
        "NoAuthenticationInformation AuthenticationRequired InvalidSecurity "
        "UnrecognizedClientException InvalidClientTokenId"
    ),
    Outcome.FORBIDDEN: (
        "AccessDenied AccessDeniedException AllAccessDisabled AccountProblem AuthorizationFailure "
        "AuthorizationPermissionMismatch AuthorizationProtocolMismatch AuthorizationResourceTypeMismatch "
        "AuthorizationServiceMismatch AuthorizationSourceIPMismatch InsufficientAccountPermissions AccountIsDisabled "
        "PublicAccessNotPermitted UserProjectAccountProblem UserProjectMissing NotSignedUp"
    ),
    Outcome.WRONG_CLOCK: "RequestTimeTooSkewed",
    Outcome.WRONG_REGION: (
        "PermanentRedirect TemporaryRedirect AuthorizationHeaderMalformed IllegalLocationConstraintException"
    ),
    Outcome.BEYOND: "InvalidRange",
    Outcome.UNSUPPORTED: "NotImplemented UnsupportedHeader UnsupportedHttpVerb MethodNotAllowed",
    Outcome.TOO_LARGE: "EntityTooLarge RequestBodyTooLarge KeyTooLongError",
    Outcome.BUSY: (
        "SlowDown ServiceUnavailable InternalError ServerBusy OperationTimedOut RequestTimeout Throttling "
        "OperationAborted RequestLimitExceeded ThrottlingException KMS.ThrottlingException"
    ),
    Outcome.REFUSED: (
        "InvalidRequest InvalidArgument MalformedXML BadDigest InvalidDigest XAmzContentSHA256Mismatch "
        "InvalidBucketName InvalidHeaderValue InvalidInput InvalidQueryParameterValue InvalidUri InvalidResourceName "
        "OutOfRangeInput InvalidBucketState QuotaExceeded InsufficientStorage"
    ),
}
_OUTCOME_OF_CODE = {code: outcome for outcome, codes in _CODES.items() for code in codes.split()}
_OUTCOME_OF_STATUS = {
    304: Outcome.EXISTS,
    401: Outcome.UNKNOWN_CREDENTIALS,
    403: Outcome.FORBIDDEN,
    404: Outcome.MISSING,
    405: Outcome.UNSUPPORTED,
    408: Outcome.BUSY,
    409: Outcome.EXISTS,
    412: Outcome.EXISTS,
    413: Outcome.TOO_LARGE,
    416: Outcome.BEYOND,
    429: Outcome.BUSY,
    501: Outcome.UNSUPPORTED,
}
_OUTCOME_OF_NETWORK = {
    "Connect": Outcome.UNREACHABLE,
    "Timeout": Outcome.TIMEOUT,
    "Request": Outcome.BROKEN,
    "Interrupted": Outcome.BROKEN,
    "Decode": Outcome.BROKEN,
}
_OUTCOME_OF_KIND = {
    "FileNotFoundError": Outcome.MISSING,
    "NotFoundError": Outcome.MISSING,
    "AlreadyExistsError": Outcome.EXISTS,
    "PreconditionError": Outcome.EXISTS,
    "NotModifiedError": Outcome.EXISTS,
    "PermissionDeniedError": Outcome.FORBIDDEN,
    "PermissionError": Outcome.FORBIDDEN,
    "UnauthenticatedError": Outcome.UNKNOWN_CREDENTIALS,
    "NotSupportedError": Outcome.UNSUPPORTED,
    "NotImplementedError": Outcome.UNSUPPORTED,
    "InvalidPathError": Outcome.REFUSED,
    "ValueError": Outcome.REFUSED,
    "TimeoutError": Outcome.TIMEOUT,
    "ConnectionError": Outcome.UNREACHABLE,
    "ConnectionRefusedError": Outcome.UNREACHABLE,
    "ConnectionResetError": Outcome.BROKEN,
    "ConnectionAbortedError": Outcome.BROKEN,
    "BrokenPipeError": Outcome.BROKEN,
}
_CODE = re.compile(r"<Code>([\w.]{1,64})</Code>")
_STATUS = re.compile(r"(?:status(?: code)?: |\(code: )(\d{3})\b")  # the second: of Azure's deletions, in batches
_NETWORK = re.compile(r"HttpError \{\s*kind: (\w{1,16})\b")
_FAILED_PROVIDER = FailedProviderError.__name__
_REDIRECTS = range(300, 400)
# Requests for credentials, which obstore sends by itself: to the metadata service of a host, or to a token service,
# whose address it leaves out.
_FOR_CREDENTIALS = re.compile(
    r"Error performing token request|^Generic S3 error: Error performing POST REDACTED|"
    r"Error performing [A-Z]+ https?://(?:"
    r"169\.254\.169\.254|169\.254\.170\.(?:2|23)|\[fd00:ec2::(?:254|23)\]|metadata\.google\.internal|"
    r"sts\.(?:[\w-]+\.)?amazonaws\.com(?:\.cn)?|\S+/latest/api/token in|"
    r"\S+/latest/meta-data/iam/security-credentials)[:/ ]"
)
_OF_A_CONTAINER = "AWS_CONTAINER_CREDENTIALS_FULL_URI"  # the only such address of any form
_ASKED = re.compile(r"Error performing GET (\S+) in ")
_NOT_YET = {408, 410, 429}  # of such a service: it has too many requests, or is not there for a moment
_NO_ROLE = 404  # of Azure's: it is updated; of the others: this host has no role, or has none for a moment
_AZURE = "Generic MicrosoftAzure error"


def read_answer(error: BaseException, *, had_credentials: bool = False) -> CloudAnswer:
    """Return what the store answered, as far as an exception of obstore says it.

    Args:
        error: the exception.
        had_credentials: whether there were some before: a host that has no role now may have one again soon, as while
            an agent that gives roles to containers restarts.
    """
    text = str(error)
    status = int(found[1]) if (found := _STATUS.search(text)) else 0
    code = found[1] if (found := _CODE.search(text)) and found[1] in _OUTCOME_OF_CODE else ""
    return CloudAnswer(_outcome(type(error).__name__, text, status, code, had_credentials), status, code)


def _outcome(kind: str, text: str, status: int, code: str, had_credentials: bool) -> Outcome:
    if _FAILED_PROVIDER in text or kind == _FAILED_PROVIDER:
        return Outcome.FAILED_PROVIDER
    if _is_for_credentials(text):
        return _outcome_for_credentials(text, status, code, had_credentials)
    if code:
        return _OUTCOME_OF_CODE[code]
    if "BareRedirect" in text or "Received redirect without LOCATION" in text:
        return Outcome.WRONG_REGION
    if status == 404 and kind == "GenericError":  # of an object, it is a FileNotFoundError
        return Outcome.NO_BUCKET
    if status:
        return _outcome_of_status(status)
    if "StartTooLarge" in text or "0--1/0" in text:  # Azurite answers 206 for a range that begins at an object's end
        return Outcome.BEYOND
    if found := _NETWORK.search(text):
        return _OUTCOME_OF_NETWORK.get(found[1], Outcome.UNKNOWN)
    return _OUTCOME_OF_KIND.get(kind, Outcome.UNKNOWN)


def _is_for_credentials(text: str) -> bool:
    container, asked = os.environ.get(_OF_A_CONTAINER, "").rstrip("/"), _ASKED.search(text)
    return bool(_FOR_CREDENTIALS.search(text)) or (asked is not None and asked[1].rstrip("/") == container)


def _outcome_for_credentials(text: str, status: int, code: str, had_credentials: bool) -> Outcome:
    not_yet = _NOT_YET | ({_NO_ROLE} if had_credentials or text.startswith(_AZURE) else set())
    is_refused = 400 <= status < 500 and status not in not_yet and _OUTCOME_OF_CODE.get(code) is not Outcome.BUSY
    return Outcome.UNKNOWN_CREDENTIALS if is_refused else Outcome.NO_CREDENTIALS


def _outcome_of_status(status: int) -> Outcome:
    if found := _OUTCOME_OF_STATUS.get(status):
        return found
    if status in _REDIRECTS:
        return Outcome.WRONG_REGION
    if status >= 500:
        return Outcome.BUSY
    return Outcome.REFUSED if status >= 400 else Outcome.UNKNOWN
