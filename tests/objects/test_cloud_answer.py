"""What is read from the exceptions of obstore, and that nothing more of them is kept."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from spillable_stream.objects.cloud_answer import CloudAnswer, Outcome, read_answer
from spillable_stream.objects.credentials import FailedProviderError
from spillable_stream.objects.location import Location
from spillable_stream.objects.store import ObjectMissingError
from tests.support.cloud_stores import AZURE, S3, error_of, impatient
from tests.support.self_signed import self_signed
from tests.support.servers.http_stub import HttpStub, Request, Response

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
        ("GenericError", 404, "", Outcome.NO_BUCKET),
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
            (
                "GenericError",
                f"Error performing GET http://{host} … status code: {status}",
                Outcome.UNKNOWN_CREDENTIALS if status == 404 else Outcome.NO_CREDENTIALS,
            )
            for host in ("169.254.169.254/a", "169.254.170.2/a", "169.254.170.23/v1", "metadata.google.internal/a")
            for status in (404, 408, 410, 429)
        ),
        (
            "GenericError",
            "Generic MicrosoftAzure error: Error performing token request: … status code: 404 Not Found",
            Outcome.NO_CREDENTIALS,
        ),
        (
            "GenericError",
            "Generic GCS error: Error performing token request: … status code: 404 Not Found",
            Outcome.UNKNOWN_CREDENTIALS,
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


# ── services that give a host its credentials, and have none ────────────────────────────────────

TOKEN, ROLES = "/latest/api/token", "/latest/meta-data/iam/security-credentials/"
INSTANCE, CONTAINER = {"AWS_METADATA_ENDPOINT": "URL"}, {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "URL/role"}
IDENTITY = {"IDENTITY_ENDPOINT": "URL/role", "IDENTITY_HEADER": "header"}
WEB_IDENTITY = {
    "AWS_ENDPOINT_URL_STS": "URL",
    "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/shop",
    "AWS_WEB_IDENTITY_TOKEN_FILE": "DIRECTORY/identity",
}
NONE, BUSY = "found no credentials", "if what gives them to this host is busy"


@pytest.fixture
def no_keys(cloud_settings: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide what gives credentials, so that they are asked for."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_STORAGE_SAS_TOKEN"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")  # of botocore, which asks it for a profile
    monkeypatch.setenv("HOME", "/nowhere")


@pytest.mark.usefixtures("no_keys")
@pytest.mark.parametrize(
    ("location", "environment", "missing", "status", "says"),
    [
        (S3, INSTANCE, TOKEN, 403, NONE),
        (S3, INSTANCE, TOKEN, 404, NONE),
        (S3, INSTANCE, TOKEN, 503, BUSY),
        (S3, INSTANCE, ROLES, 404, NONE),
        (S3, INSTANCE, ROLES, 429, BUSY),
        (S3, INSTANCE, f"{ROLES}its-role", 404, NONE),
        (S3, {"AWS_METADATA_ENDPOINT": "URL/"}, TOKEN, 404, NONE),
        (S3, {"AWS_METADATA_ENDPOINT": "URL/of/roles"}, f"/of/roles{TOKEN}", 404, NONE),
        (S3, CONTAINER, "/role", 404, NONE),
        (S3, {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "URL"}, "/", 404, NONE),
        (S3, CONTAINER, "/role", 500, BUSY),
        (S3, WEB_IDENTITY, "/", 403, NONE),
        (S3, WEB_IDENTITY, "/", 404, NONE),
        (S3, WEB_IDENTITY, "/", 503, BUSY),
        (AZURE, IDENTITY, "/role", 400, NONE),
        (AZURE, IDENTITY, "/role", 404, BUSY),
        (AZURE, IDENTITY, "/role", 410, BUSY),
    ],
)
def test_what_a_service_of_credentials_answers_is_not_taken_for_the_stores_and_a_busy_one_is_asked_again(
    location: Location,
    environment: dict[str, str],
    missing: str,
    status: int,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """A read of an object that is there must not be told that there is none, least of all."""

    def answer(request: Request) -> Response:
        if request.path == missing:
            return Response(status, b"<html></html>")
        return Response(200, {TOKEN: b"a token", ROLES: b"its-role"}.get(request.path, b"the object"))

    for name in ("token", "identity"):
        (tmp_path / name).write_text("of the host")
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AWS_ALLOW_INVALID_CERTIFICATES", "true")
    certificate = self_signed(tmp_path) if environment is WEB_IDENTITY else None  # which needs encryption
    with HttpStub(answer, certificate) as stub:
        for name, value in {**environment, "AWS_ENDPOINT_URL": "URL", "AZURE_STORAGE_ENDPOINT": "URL"}.items():
            monkeypatch.setenv(name, value.replace("URL", stub.url).replace("DIRECTORY", str(tmp_path)))
        store = impatient(location)
        for ask in (lambda: store.get("log/1"), lambda: store.delete("log/1"), lambda: store.create("log/1", b"data")):
            error = error_of(ask)
            assert says in str(error)
            assert not isinstance(error, ObjectMissingError)
            assert (error.is_lasting, error.may_have_happened) == (says is NONE, False)
    assert {request.path for request in stub.requests} <= {TOKEN, ROLES, missing}


@pytest.mark.usefixtures("no_keys")
def test_a_host_that_had_a_role_is_asked_for_it_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What gives it, such as an agent beside a container, may restart while a spool ships."""
    role = f"{ROLES}its-role"
    gone: list[str] = []
    until = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()  # so it is renewed at each request
    document = json.dumps(
        {"AccessKeyId": "id", "SecretAccessKey": SECRET, "Token": "token", "Expiration": until, "Code": "Success"}
    ).encode()

    def answer(request: Request) -> Response:
        if request.path in gone:
            return Response(404, b"<html></html>")
        given = {TOKEN: b"a token", ROLES: b"its-role", role: document}
        return Response(
            200,
            given.get(request.path, b"the object"),
            {"etag": '"x"', "last-modified": "Mon, 23 Nov 2026 12:00:00 GMT"},
        )

    with HttpStub(answer) as stub:
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", stub.url)
        monkeypatch.setenv("AWS_ENDPOINT_URL", stub.url)
        store = impatient(S3)
        assert bytes(store.get("log/1")) == b"the object"
        time.sleep(0.11)  # it is asked for ten times a second, at most
        gone.append(ROLES)
        for ask in (lambda: store.get("log/1"), lambda: store.create("log/1", b"data")):
            error = error_of(ask)
            assert BUSY in str(error) and not error.is_lasting and not error.may_have_happened
        gone.clear()
        assert bytes(store.get("log/1")) == b"the object"
