"""Profiles, as AWS's own tools have them: `test_cloud_clients` sees what is sent."""

from __future__ import annotations

import builtins
import datetime as dt
import json
import os
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from spillable_stream.objects.aws_profile import NO_PROFILE, AwsProfile, aws_profile
from spillable_stream.objects.credentials import FailedProviderError
from tests.support.servers.http_stub import HttpStub, Response

SECRET = "hunter2-secret"
KEYS = f"aws_access_key_id = key\naws_secret_access_key = {SECRET}\n"

Home = Callable[..., Mapping[str, str]]


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Home:
    """Return what writes the files of AWS's tools, and sets variables; it returns the environment."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    (tmp_path / ".aws").mkdir()

    def write(credentials: str = "", config: str = "", **variables: str) -> Mapping[str, str]:
        for name, text in (("credentials", credentials), ("config", config)):
            if text:
                (tmp_path / ".aws" / name).write_text(text)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return os.environ

    return write


def keys_of(found: AwsProfile) -> Any:
    assert found.provider is not None
    given = dict(found.provider())
    left = given.pop("expires_at") - dt.datetime.now(dt.UTC)
    assert dt.timedelta(minutes=9) < left <= dt.timedelta(minutes=10)
    return given


def refusal(environment: Mapping[str, str]) -> str:
    with pytest.raises(FailedProviderError) as raised:
        aws_profile(environment)
    assert raised.value.__cause__ is None and raised.value.__context__ is None
    assert SECRET not in "".join(traceback.format_exception(raised.value))
    return str(raised.value)


def test_the_default_profile_counts_where_the_environment_names_none(home: Home) -> None:
    found = aws_profile(home(f"[default]\n{KEYS}", "[default]\nregion = eu-west-3\n"))
    assert keys_of(found) == {"access_key_id": "key", "secret_access_key": SECRET, "token": None}
    assert (found.region, found.endpoint) == ("eu-west-3", "")


@pytest.mark.parametrize("variable", ["AWS_PROFILE", "AWS_DEFAULT_PROFILE"])
def test_the_environment_names_a_profile(home: Home, variable: str) -> None:
    files = (
        f"[default]\naws_access_key_id = other\naws_secret_access_key = other\n[shop]\n{KEYS}aws_session_token = t\n"
    )
    found = aws_profile(home(files, **{variable: "shop"}))
    assert keys_of(found) == {"access_key_id": "key", "secret_access_key": SECRET, "token": "t"}


def test_files_elsewhere_are_read(home: Home, tmp_path: Path) -> None:
    (tmp_path / "c").write_text(f"[default]\n{KEYS}")
    assert keys_of(aws_profile(home(AWS_SHARED_CREDENTIALS_FILE=str(tmp_path / "c"))))["access_key_id"] == "key"


@pytest.mark.parametrize("variable", ["AWS_ACCESS_KEY_ID", "AWS_SKIP_SIGNATURE"])
def test_keys_in_the_environment_come_first(home: Home, variable: str) -> None:
    environment = home(f"[default]\n{KEYS}", AWS_PROFILE="default", **{variable: "true"})
    assert aws_profile(environment) is NO_PROFILE


def test_without_files_and_names_none_counts(home: Home) -> None:
    assert aws_profile(home()) is NO_PROFILE


def test_a_default_profile_without_credentials_has_its_region_only(home: Home) -> None:
    assert aws_profile(home(config="[default]\nregion = eu-west-3\n")) == AwsProfile(None, "eu-west-3", "")


def test_a_region_in_the_environment_comes_first(home: Home) -> None:
    assert aws_profile(home(config="[default]\nregion = eu-west-3\n", AWS_REGION="us-east-2")).region == ""


@pytest.mark.parametrize("services", [False, True], ids=["of all services", "of S3"])
def test_a_profile_has_an_address_of_the_store(home: Home, services: bool) -> None:
    general = "[default]\nendpoint_url = https://general.example\n"
    own = "services = mine\n[services mine]\ns3 =\n  endpoint_url = https://s3.example\n"
    found = aws_profile(home(config=general + own if services else general))
    assert found.endpoint == ("https://s3.example" if services else "https://general.example")


def test_a_process_gives_credentials_and_is_asked_again_before_they_expire(home: Home, tmp_path: Path) -> None:
    said = tmp_path / "said"

    def say(key: str, minutes: int) -> None:
        ends = (dt.datetime.now(dt.UTC) + dt.timedelta(minutes=minutes)).isoformat()
        keys = {"Version": 1, "AccessKeyId": key, "SecretAccessKey": SECRET, "SessionToken": "t", "Expiration": ends}
        said.write_text(json.dumps(keys))

    say("first", 5)
    found = aws_profile(home(config=f"[default]\ncredential_process = cat {said}\n"))
    say("second", 60)
    assert keys_of(found)["access_key_id"] == "second"
    said.write_text("broken")
    assert keys_of(found)["access_key_id"] == "second"


def test_a_profile_takes_a_role(home: Home) -> None:
    role = (
        "<AssumeRoleResponse xmlns='https://sts.amazonaws.com/doc/2011-06-15/'><AssumeRoleResult><Credentials>"
        f"<AccessKeyId>of-the-role</AccessKeyId><SecretAccessKey>{SECRET}</SecretAccessKey>"
        "<SessionToken>t</SessionToken><Expiration>2100-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleResult>"
        "</AssumeRoleResponse>"
    )
    config = "[profile shop]\nrole_arn = arn:aws:iam::123456789012:role/shop\nsource_profile = default\n"
    with HttpStub(lambda _: Response(200, role.encode())) as sts:
        environment = home(
            f"[default]\n{KEYS}", config, AWS_PROFILE="shop", AWS_ENDPOINT_URL_STS=sts.url, AWS_REGION="us-east-1"
        )
        assert keys_of(aws_profile(environment))["access_key_id"] == "of-the-role"


def test_a_profile_that_is_not_there_is_named(home: Home) -> None:
    environment = home(f"[default]\n{KEYS}", AWS_PROFILE="shop")
    assert refusal(environment) == (
        "the AWS profile 'shop' gives no credentials: The config profile (shop) could not be found"
    )


def test_a_profile_that_is_asked_for_and_has_no_credentials_is_named(home: Home) -> None:
    environment = home(config="[profile shop]\nregion = eu-west-3\n", AWS_PROFILE="shop")
    assert refusal(environment) == "the AWS profile 'shop' has no credentials: `aws configure list` shows it"


def test_a_session_of_sso_that_has_ended_is_named(home: Home) -> None:
    sso = "sso_session = s\nsso_account_id = 123456789012\nsso_role_name = r\n"
    start = "[sso-session s]\nsso_start_url = https://x.example/start\nsso_region = us-east-1\n"
    said = refusal(home(config=f"[default]\n{sso}region = us-east-1\n{start}"))
    assert said.startswith("the AWS profile 'default' gives no credentials: Error loading SSO Token: Token for s does")


def test_what_a_process_says_when_it_fails_is_not_shown(home: Home) -> None:
    environment = home(config=f"[default]\ncredential_process = sh -c 'echo {SECRET} >&2; exit 1'\n")
    assert refusal(environment) == "the AWS profile 'default' gives no credentials: CredentialRetrievalError"


def test_without_botocore_what_to_install_is_said_where_a_profile_is_asked_for(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported = builtins.__import__

    def importing(name: str, *more: Any) -> Any:
        if name.startswith("botocore"):
            raise ImportError(name)
        return imported(name, *more)

    monkeypatch.setattr(builtins, "__import__", importing)
    environment = home(f"[default]\n{KEYS}")
    assert aws_profile(environment) is NO_PROFILE
    environment = home(AWS_PROFILE="shop")
    assert refusal(environment) == (
        "AWS_PROFILE is 'shop', and profiles need botocore: pip install 'spillable-stream[aws]'"
    )
