"""What is read from the exceptions of obstore, and that nothing more of them is kept."""

from __future__ import annotations

import pytest

from spillable_stream.objects.cloud_answer import CloudAnswer, Outcome, read_answer
from spillable_stream.objects.credentials import FailedProviderError

SECRET = "hunter2-secret"

# As obstore 0.12.1 writes them, shortened.
STATUS = """Generic S3 error: Error performing PUT https://user:{secret}@host/bucket/key?sig={secret} in 2.1ms - \
Server returned non-2xx status code: {status} Somehow: <Error><Code>{code}</Code><Message>{secret}</Message></Error>

Debug source:
Generic {{
    store: "S3",
    source: RetryError(
        RetryErrorImpl {{
            method: PUT,
            uri: Some(
                https://host/bucket/key?sig={secret},
            ),
            retries: 0,
            inner: Status {{
                status: {status},
                body: Some(
                    "<Error><Code>{code}</Code><Message>{secret}</Message></Error>",
                ),
            }},
        }},
    ),
}}"""
NETWORK = """Generic S3 error: Error performing GET http://host/bucket/key?sig={secret} in 1.5s - HTTP error: error \
sending request

Debug source:
Generic {{
    store: "S3",
    source: RetryError(
        RetryErrorImpl {{
            inner: Http(
                HttpError {{
                    kind: {kind},
                    source: reqwest::Error {{ }},
                }},
            ),
        }},
    ),
}}"""


def error(kind: str, text: str) -> Exception:
    return type(kind, (Exception,), {})(text)


def with_status(kind: str, status: int, code: str = "") -> CloudAnswer:
    return read_answer(error(kind, STATUS.format(status=status, code=code, secret=SECRET)))


@pytest.mark.parametrize(
    ("kind", "status", "code", "outcome"),
    [
        ("AlreadyExistsError", 412, "PreconditionFailed", Outcome.EXISTS),
        ("AlreadyExistsError", 409, "ConditionalRequestConflict", Outcome.EXISTS),
        ("AlreadyExistsError", 409, "BlobAlreadyExists", Outcome.EXISTS),
        ("AlreadyExistsError", 409, "ContainerBeingDeleted", Outcome.NO_BUCKET),
        ("AlreadyExistsError", 409, "OperationAborted", Outcome.BUSY),
        ("FileNotFoundError", 404, "NoSuchKey", Outcome.MISSING),
        ("FileNotFoundError", 404, "BlobNotFound", Outcome.MISSING),
        ("FileNotFoundError", 404, "", Outcome.MISSING),
        ("FileNotFoundError", 404, "NoSuchBucket", Outcome.NO_BUCKET),
        ("FileNotFoundError", 404, "ContainerNotFound", Outcome.NO_BUCKET),
        ("GenericError", 404, "NoSuchBucket", Outcome.NO_BUCKET),
        ("PermissionDeniedError", 403, "AccessDenied", Outcome.FORBIDDEN),
        ("PermissionDeniedError", 403, "AuthorizationPermissionMismatch", Outcome.FORBIDDEN),
        ("PermissionDeniedError", 403, "", Outcome.FORBIDDEN),
        ("PermissionDeniedError", 403, "InvalidAccessKeyId", Outcome.UNKNOWN_CREDENTIALS),
        ("PermissionDeniedError", 403, "SignatureDoesNotMatch", Outcome.UNKNOWN_CREDENTIALS),
        ("PermissionDeniedError", 403, "AuthenticationFailed", Outcome.UNKNOWN_CREDENTIALS),
        ("PermissionDeniedError", 403, "RequestTimeTooSkewed", Outcome.WRONG_CLOCK),
        ("UnauthenticatedError", 401, "", Outcome.UNKNOWN_CREDENTIALS),
        ("GenericError", 400, "ExpiredToken", Outcome.EXPIRED),
        ("GenericError", 400, "AuthorizationHeaderMalformed", Outcome.WRONG_REGION),
        ("GenericError", 301, "PermanentRedirect", Outcome.WRONG_REGION),
        ("GenericError", 307, "", Outcome.WRONG_REGION),
        ("GenericError", 416, "InvalidRange", Outcome.BEYOND),
        ("GenericError", 501, "NotImplemented", Outcome.UNSUPPORTED),
        ("GenericError", 400, "EntityTooLarge", Outcome.TOO_LARGE),
        ("GenericError", 400, "InvalidBucketName", Outcome.REFUSED),
        ("GenericError", 418, "", Outcome.REFUSED),
        ("GenericError", 503, "SlowDown", Outcome.BUSY),
        ("GenericError", 500, "InternalError", Outcome.BUSY),
        ("GenericError", 502, "", Outcome.BUSY),
        ("GenericError", 429, "", Outcome.BUSY),
        ("GenericError", 408, "", Outcome.BUSY),
        ("AlreadyExistsError", 409, "BlobImmutableDueToPolicy", Outcome.PROTECTED),
        ("AlreadyExistsError", 409, "BlobImmutableDueToLegalHold", Outcome.PROTECTED),
        ("PreconditionError", 412, "LeaseIdMissing", Outcome.PROTECTED),
        ("PermissionDeniedError", 403, "RetentionPolicyNotMet", Outcome.PROTECTED),
        ("PermissionDeniedError", 403, "ObjectUnderActiveHold", Outcome.PROTECTED),
        ("AlreadyExistsError", 409, "BlobArchived", Outcome.ARCHIVED),
        ("PermissionDeniedError", 403, "InvalidObjectState", Outcome.ARCHIVED),
        ("GenericError", 400, "KMS.DisabledException", Outcome.KEY),
        ("PermissionDeniedError", 403, "KeyVaultEncryptionKeyNotFound", Outcome.KEY),
        ("GenericError", 400, "CloudKmsDisabledKey", Outcome.KEY),
        ("GenericError", 400, "KMS.ThrottlingException", Outcome.BUSY),
        ("OSError", 403, "AccessDenied", Outcome.FORBIDDEN),  # of an upload in parts
    ],
)
def test_a_status_and_a_code_are_an_outcome(kind: str, status: int, code: str, outcome: Outcome) -> None:
    answer = with_status(kind, status, code)
    assert (answer.outcome, answer.status) == (outcome, status)
    assert answer.code in (code, "")


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [
        ("Connect", Outcome.UNREACHABLE),
        ("Timeout", Outcome.TIMEOUT),
        ("Request", Outcome.BROKEN),
        ("Interrupted", Outcome.BROKEN),
        ("Decode", Outcome.BROKEN),
        ("Unknown", Outcome.UNKNOWN),
        ("Invented", Outcome.UNKNOWN),
    ],
)
def test_a_failure_of_the_network_is_an_outcome(kind: str, outcome: Outcome) -> None:
    assert read_answer(error("GenericError", NETWORK.format(kind=kind, secret=SECRET))) == CloudAnswer(outcome)


@pytest.mark.parametrize(
    ("kind", "text", "outcome"),
    [
        ("GenericError", "Received redirect without LOCATION, this normally indicates…", Outcome.WRONG_REGION),
        (
            "UnauthenticatedError",
            "FailedProviderError: the provider of credentials 'x' failed",
            Outcome.FAILED_PROVIDER,
        ),
        ("UnauthenticatedError", SECRET, Outcome.UNKNOWN_CREDENTIALS),
        ("GenericError", "Error performing token request: … status code: 403 Forbidden", Outcome.UNKNOWN_CREDENTIALS),
        ("GenericError", "Error performing PUT http://169.254.169.254/latest/api/token in 1s", Outcome.NO_CREDENTIALS),
        ("GenericError", "Error performing POST https://sts.eu-west-1.amazonaws.com/ in 1s", Outcome.NO_CREDENTIALS),
        ("GenericError", "Error performing token request: … status code: 429 Too Many", Outcome.NO_CREDENTIALS),
        ("GenericError", "Error performing token request: … status code: 503 Busy", Outcome.NO_CREDENTIALS),
        *(
            ("GenericError", f"Error performing GET http://{host} … status code: {status}", Outcome.NO_CREDENTIALS)
            for host in ("169.254.169.254/a", "169.254.170.2/a", "169.254.170.23/v1", "metadata.google.internal/a")
            for status in (404, 408, 410, 429)
        ),
        (
            "GenericError",
            "Error performing POST https://sts.amazonaws.com/ … status code: 400: <Code>Throttling</Code>",
            Outcome.NO_CREDENTIALS,
        ),
        (
            "GenericError",
            "Error performing POST https://sts.eu-west-1.amazonaws.com/ … status code: 403: <Code>AccessDenied</Code>",
            Outcome.UNKNOWN_CREDENTIALS,
        ),
        *(
            ("FileNotFoundError", f"Error performing GET http://{host}/bucket/a … status code: 404", Outcome.MISSING)
            for host in ("169.254.7.7:9000", "169.254.170.20", "sts.example.com", "sts.shop.internal:9000")
        ),
        ("GenericError", "Wanted range starting at 10 […] StartTooLarge {", Outcome.BEYOND),
        ("GenericError", 'Failed to parse value for CONTENT_RANGE header: "bytes 0--1/0"', Outcome.BEYOND),
        ("FileNotFoundError", "Bulk delete request failed for key a: It is gone. (code: 404)", Outcome.MISSING),
        ("GenericError", "Bulk delete request failed for key a: You may not. (code: 403)", Outcome.FORBIDDEN),
        ("ValueError", f"Could not parse path: {SECRET}", Outcome.REFUSED),
        ("ConnectionResetError", SECRET, Outcome.BROKEN),
        ("TimeoutError", SECRET, Outcome.TIMEOUT),
        ("PanicException", SECRET, Outcome.UNKNOWN),
        ("GenericError", SECRET, Outcome.UNKNOWN),
        ("GenericError", "", Outcome.UNKNOWN),
    ],
)
def test_an_exception_without_a_status_is_an_outcome_by_its_kind(kind: str, text: str, outcome: Outcome) -> None:
    assert read_answer(error(kind, text)).outcome is outcome


def test_a_providers_own_exception_is_known() -> None:
    assert read_answer(FailedProviderError("x")).outcome is Outcome.FAILED_PROVIDER


def test_a_code_that_is_not_known_is_not_kept() -> None:
    """A store could send anything there, a key too."""
    for code in ("AKIAIOSFODNN7EXAMPLE", SECRET, "x" * 100):
        answer = with_status("GenericError", 403, code)
        assert answer == CloudAnswer(Outcome.FORBIDDEN, 403, "")
