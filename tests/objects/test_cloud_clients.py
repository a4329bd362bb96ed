"""The settings of the clients: from the environment, as each cloud's own tools take it."""

from __future__ import annotations

import base64
import datetime as dt
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spillable_stream.errors import OptionError
from spillable_stream.objects import credentials
from spillable_stream.objects.cloud_clients import CloudClients, RequestTimeouts, import_obstore, make_clients
from spillable_stream.objects.location import Location
from spillable_stream.objects.store import StoreError
from tests.support.self_signed import self_signed
from tests.support.servers.http_stub import HttpStub, Request, Response

S3, AZURE, GOOGLE = (Location.parse(f"{scheme}://bucket/orders") for scheme in ("s3", "az", "gs"))
SECRET = "hunter2-secret"


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hide the settings of whoever runs the tests."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "AZURITE_", "GCE_", "GOOGLE_", "IDENTITY_", "STORAGE_EMULATOR")):
            monkeypatch.delenv(name)
    monkeypatch.setattr(credentials, "_factories", {})
    monkeypatch.setenv("HOME", "/nowhere")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")  # of botocore, which asks it for a profile
    yield


def make(location: Location) -> CloudClients:
    return make_clients(location, RequestTimeouts())


def refusal(location: Location) -> StoreError:
    with pytest.raises(StoreError) as raised:
        make(location)
    error = raised.value
    assert not error.may_have_happened
    assert error.__cause__ is None and error.__context__ is None
    assert SECRET not in "".join(traceback.format_exception(error))
    return error


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpStub]:
    """A server that takes everything."""
    headers = {"etag": '"x"', "last-modified": "Mon, 23 Nov 2026 12:00:00 GMT"}
    with HttpStub(lambda _: Response(200, b"data", headers)) as stub:
        yield stub


def put(client: Any, mode: str = "create") -> None:
    import_obstore().put(client, "orders/log/1", b"data", mode=mode, use_multipart=False)


# ── roles, as the services play them that give their credentials ──────────────────────────────


def _of_an_instance(request: Request) -> Response | None:
    if request.path == "/latest/api/token":
        return Response(200, b"a token for questions")
    if request.path == "/latest/meta-data/iam/security-credentials/":
        return Response(200, b"its-role")
    return _of_a_container(request) if request.path.endswith("/its-role") else None


def _of_a_container(request: Request) -> Response | None:
    if request.path not in ("/role", "/latest/meta-data/iam/security-credentials/its-role"):
        return None
    ends = (dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    keys = {"AccessKeyId": "key", "SecretAccessKey": SECRET, "Token": "of-the-role", "Expiration": ends}
    return Response(200, json.dumps({"Code": "Success", "LastUpdated": ends, "Type": "AWS-HMAC", **keys}).encode())


def _of_a_web_identity(request: Request) -> Response | None:
    if request.query.get("Action") != "AssumeRoleWithWebIdentity" or request.query["WebIdentityToken"] != "of-the-host":
        return None
    keys = f"<AccessKeyId>key</AccessKeyId><SecretAccessKey>{SECRET}</SecretAccessKey>"
    ends = "<SessionToken>of-the-role</SessionToken><Expiration>2100-01-01T00:00:00Z</Expiration>"
    result = (
        f"<AssumeRoleWithWebIdentityResult><Credentials>{keys}{ends}</Credentials></AssumeRoleWithWebIdentityResult>"
    )
    return Response(200, f"<AssumeRoleWithWebIdentityResponse>{result}</AssumeRoleWithWebIdentityResponse>".encode())


def _of_google(request: Request) -> Response | None:
    if request.path != "/computeMetadata/v1/instance/service-accounts/default/token":
        return None
    return Response(200, b'{"access_token": "of-the-role", "expires_in": 3600, "token_type": "Bearer"}')


def _of_azure(request: Request) -> Response | None:
    if not request.path.startswith("/role"):
        return None
    said = {"access_token": "of-the-role", "expires_in": 3600, "expires_on": "4000000000", "token_type": "Bearer"}
    return Response(200, json.dumps({**said, "resource": "https://storage.azure.com"}).encode())


@pytest.mark.parametrize(
    ("location", "environment", "gives"),
    [
        (S3, {"AWS_METADATA_ENDPOINT": "URL"}, _of_an_instance),
        (S3, {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "URL/role"}, _of_a_container),
        (
            S3,
            {
                "AWS_ENDPOINT_URL_STS": "URL",
                "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/shop",
                "AWS_WEB_IDENTITY_TOKEN_FILE": "DIRECTORY/identity",
            },
            _of_a_web_identity,
        ),
        (GOOGLE, {"GCE_METADATA_HOST": "HOST"}, _of_google),
        (AZURE, {"IDENTITY_ENDPOINT": "URL/role", "IDENTITY_HEADER": "header"}, _of_azure),
        (
            AZURE,
            {
                "AZURE_STORAGE_AUTHORITY_HOST": "URL/role",
                "AZURE_STORAGE_CLIENT_ID": "client",
                "AZURE_STORAGE_CLIENT_SECRET": SECRET,
                "AZURE_STORAGE_TENANT_ID": "tenant",
            },
            _of_azure,
        ),
    ],
    ids=[
        "instance",
        "container",
        "web identity",
        "service account of the host",
        "managed identity",
        "service principal",
    ],
)
def test_credentials_of_a_role_are_asked_of_who_gives_them_and_sent(
    location: Location,
    environment: dict[str, str],
    gives: Callable[[Request], Response | None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    headers = {"etag": '"x"', "last-modified": "Mon, 23 Nov 2026 12:00:00 GMT"}
    (tmp_path / "token").write_text("authorization")
    (tmp_path / "identity").write_text("of-the-host")
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AWS_ALLOW_INVALID_CERTIFICATES", "true")
    certificate = self_signed(tmp_path) if gives is _of_a_web_identity else None  # which needs encryption
    with HttpStub(lambda request: gives(request) or Response(200, b"data", headers), certificate) as stub:
        for name in ("AWS_ENDPOINT_URL", "AZURE_STORAGE_ENDPOINT", "GOOGLE_BASE_URL"):
            monkeypatch.setenv(name, stub.url)
        for name, value in environment.items():
            value = value.replace("URL", stub.url).replace("HOST", stub.url.removeprefix("http://"))
            monkeypatch.setenv(name, value.replace("DIRECTORY", str(tmp_path)))
        assert put(make(location).once) is None
        sent = stub.requests[-1].headers
    assert "of-the-role" in (sent.get("x-amz-security-token", ""), sent["authorization"].removeprefix("Bearer "))
    assert SECRET not in str(sent)


@pytest.mark.parametrize("variable", ["GOOGLE_SERVICE_ACCOUNT_KEY", "GOOGLE_APPLICATION_CREDENTIALS"])
def test_a_service_account_of_google_signs_what_is_sent(
    variable: str, stub: HttpStub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    self_signed(tmp_path)
    key = {"type": "service_account", "client_email": "shop@example", "private_key_id": "1"}
    account = json.dumps({**key, "private_key": (tmp_path / "server.key").read_text()})
    (tmp_path / "account.json").write_text(account)
    monkeypatch.setenv(variable, account if variable.endswith("_KEY") else str(tmp_path / "account.json"))
    monkeypatch.setenv("GOOGLE_BASE_URL", stub.url)
    put(make(GOOGLE).once)
    kind, _, token = stub.requests[0].headers["authorization"].partition(" ")
    claims = token.split(".")[1]
    assert kind == "Bearer" and json.loads(base64.urlsafe_b64decode(claims + "=="))["iss"] == "shop@example"


def test_an_aws_profile_gives_the_credentials_the_region_and_the_address(
    stub: HttpStub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keys = f"aws_access_key_id = of-the-profile\naws_secret_access_key = {SECRET}\n"
    (tmp_path / "config").write_text(f"[profile shop]\n{keys}region = eu-west-3\nendpoint_url = {stub.url}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "shop")
    for client in make(S3):
        put(client, "overwrite")
    assert len(stub.requests) == 3
    for request in stub.requests:
        sent = request.headers["authorization"]
        assert "Credential=of-the-profile/" in sent and "/eu-west-3/s3/" in sent and SECRET not in str(request)
    monkeypatch.setenv("AWS_PROFILE", "other")
    error = refusal(S3)
    assert str(error) == "the AWS profile 'other' gives no credentials: The config profile (other) could not be found"
    assert not error.is_lasting


def test_a_provider_of_ones_own_comes_before_an_aws_profile(
    stub: HttpStub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "config").write_text("[profile shop]\nregion = eu-west-3\nendpoint_url = https://nowhere.example\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "shop")
    monkeypatch.setenv("AWS_ENDPOINT_URL", stub.url)
    own = {"access_key_id": "own", "secret_access_key": SECRET, "token": None}
    credentials.register_credentials("company", lambda _: lambda: own)
    monkeypatch.setenv(credentials.CREDENTIALS, "company")
    put(make(S3).once)
    assert "Credential=own/" in stub.requests[0].headers["authorization"]


def test_one_client_sends_once_and_the_others_are_patient() -> None:
    clients = make(S3)
    assert clients.once.retry_config["max_retries"] == 0
    for client in (clients.reading, clients.writing):
        assert client.retry_config["max_retries"] == 10
        assert client.retry_config["retry_timeout"].total_seconds() == 60
    assert repr(clients) == "CloudClients()"


def test_a_creation_has_its_condition_whatever_the_environment_says(
    stub: HttpStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CONDITIONAL_PUT", "disabled")
    monkeypatch.setenv("AWS_ENDPOINT_URL", stub.url)
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    put(make(S3).once)
    assert stub.requests[0].headers["if-none-match"] == "*"


@pytest.mark.parametrize(
    ("location", "variable", "settings"),
    [
        (S3, "AWS_ENDPOINT_URL", {"AWS_SKIP_SIGNATURE": "true"}),
        (S3, "AWS_ENDPOINT_URL_S3", {"AWS_SKIP_SIGNATURE": "true", "AWS_ENDPOINT_URL": "https://nowhere.example"}),
        (AZURE, "AZURE_STORAGE_ENDPOINT", {"AZURE_SKIP_SIGNATURE": "true", "AZURE_STORAGE_ACCOUNT_NAME": "account"}),
        (AZURE, "AZURITE_BLOB_STORAGE_URL", {"AZURE_STORAGE_USE_EMULATOR": "true"}),
        (GOOGLE, "GOOGLE_BASE_URL", {"GOOGLE_BEARER_TOKEN": "t"}),
        (GOOGLE, "STORAGE_EMULATOR_HOST", {}),
    ],
)
def test_another_address_of_the_store_is_taken(
    stub: HttpStub, location: Location, variable: str, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**settings, variable: stub.url}.items():
        monkeypatch.setenv(name, value)
    for client in make(location):
        put(client, "overwrite")
    assert len(stub.requests) == 3
    assert all(request.path.endswith("/bucket/orders/log/1") for request in stub.requests)


def test_an_emulators_address_may_be_without_a_scheme_and_gets_no_credentials(
    stub: HttpStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", stub.url.removeprefix("http://"))
    monkeypatch.setenv("GOOGLE_BEARER_TOKEN", SECRET)
    put(make(GOOGLE).once)
    assert SECRET not in repr(stub.requests)


@pytest.mark.parametrize(
    ("location", "variables", "allow"),
    [
        (S3, {"AWS_ENDPOINT_URL": "http://10.0.0.1:9000"}, "AWS_ALLOW_HTTP"),
        (S3, {"AWS_ENDPOINT_URL": "http://localhost.example:9000"}, "AWS_ALLOW_HTTP"),
        (GOOGLE, {"GOOGLE_BASE_URL": "HTTP://storage.example"}, "GOOGLE_ALLOW_HTTP"),
        (AZURE, {"AZURE_STORAGE_ACCOUNT_NAME": "a", "AZURE_STORAGE_ENDPOINT": "http://h.example"}, "AZURE_ALLOW_HTTP"),
        (
            AZURE,
            {"AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": "http://h.example"},
            "AZURE_ALLOW_HTTP",
        ),
    ],
)
def test_without_encryption_only_this_host_is_reached_unless_it_is_allowed(
    location: Location, variables: dict[str, str], allow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    error = refusal(location)
    assert error.is_lasting and str(error).endswith(
        f"would be reached without encryption: give it an https:// address, or set {allow}=true"
    )
    monkeypatch.setenv(allow, "true")
    make(location)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "localhost", "[::1]"])
def test_this_host_may_be_reached_without_encryption(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:9000")
    make(S3)


def test_azure_needs_an_account_under_either_name(stub: HttpStub, monkeypatch: pytest.MonkeyPatch) -> None:
    error = refusal(AZURE)
    assert error.is_lasting
    assert str(error) == "az://bucket/orders needs the name of a storage account: set AZURE_STORAGE_ACCOUNT_NAME"
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "account")
    monkeypatch.setenv("AZURE_STORAGE_KEY", "a2V5")
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", stub.url)
    put(make(AZURE).once)
    assert stub.requests[0].headers["authorization"].startswith("SharedKey account:")


@pytest.mark.parametrize(
    ("location", "variables"),
    [
        (S3, {"AWS_ACCESS_KEY_ID": SECRET}),
        (S3, {"AWS_CHECKSUM_ALGORITHM": SECRET}),
        (AZURE, {"AZURE_STORAGE_ACCOUNT_NAME": "account", "AZURE_STORAGE_ACCOUNT_KEY": f"{SECRET}%%%"}),
        (GOOGLE, {"GOOGLE_SERVICE_ACCOUNT_KEY": f'{{"private_key": "{SECRET}"}}'}),
        (GOOGLE, {"GOOGLE_APPLICATION_CREDENTIALS": f"/nowhere/{SECRET}"}),
    ],
)
def test_settings_that_cannot_be_used_are_named_and_never_shown(
    location: Location, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    error = refusal(location)
    assert error.is_lasting
    assert str(error).startswith(f"{location} can't be opened with the settings in the environment: check ")
    assert all(name in str(error) for name in variables)


def test_a_named_provider_must_be_registered_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(credentials.CREDENTIALS, "company")
    with pytest.raises(OptionError, match="no provider of credentials named 'company'"):
        make(S3)

    def fail(_: Location) -> Any:
        raise RuntimeError(SECRET)

    credentials.register_credentials("company", fail)
    error = refusal(S3)
    assert str(error) == "the provider of credentials 'company' failed: RuntimeError" and not error.is_lasting


def test_without_obstore_what_to_install_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(ImportError, match=r"pip install 'spillable-stream\[object\]'"):
        import_obstore()
