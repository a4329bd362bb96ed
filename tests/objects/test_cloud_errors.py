"""The sentence for each outcome, and what it says about the request."""

from __future__ import annotations

import pytest

from spillable_stream.objects.cloud_answer import CloudAnswer, Outcome
from spillable_stream.objects.cloud_errors import Right, store_error
from spillable_stream.objects.location import Location
from spillable_stream.objects.store import ObjectMissingError, StoreError

S3, AZURE, GOOGLE = (Location.parse(f"{scheme}://bucket/orders") for scheme in ("s3", "az", "gs"))
OPEN = {Outcome.EXISTS, Outcome.BUSY, Outcome.UNREACHABLE, Outcome.BROKEN, Outcome.TIMEOUT, Outcome.UNKNOWN}


def said(location: Location, right: Right, outcome: Outcome, status: int = 0, code: str = "") -> str:
    return str(store_error(location, right, "log/1", CloudAnswer(outcome, status, code)))


@pytest.mark.parametrize("location", [S3, AZURE, GOOGLE], ids=str)
@pytest.mark.parametrize("outcome", Outcome, ids=lambda outcome: outcome.name)
def test_every_outcome_is_one_sentence_that_names_the_object_and_what_to_do(
    location: Location, outcome: Outcome
) -> None:
    error = store_error(location, "write", "log/1", CloudAnswer(outcome))
    assert type(error) is StoreError
    assert str(error).startswith(f"writing {location}/log/1 failed: ")
    assert error.may_have_happened is (outcome in OPEN)
    assert not (error.may_have_happened and error.is_lasting)


def test_a_store_that_is_asked_too_often_may_be_asked_soon_and_has_perhaps_done_it() -> None:
    for status, is_limited in ((429, True), (503, False)):
        error = store_error(GOOGLE, "write", "log/1", CloudAnswer(Outcome.BUSY, status, "SlowDown"))
        assert error.is_limited is is_limited and error.may_have_happened


def test_what_may_be_done_later_is_not_lasting() -> None:
    lasting = {o for o in Outcome if store_error(S3, "write", "log/1", CloudAnswer(o)).is_lasting}
    passing = {Outcome.NO_CREDENTIALS, Outcome.FAILED_PROVIDER, Outcome.BEYOND, Outcome.PROTECTED}
    assert lasting == set(Outcome) - OPEN - passing


def test_an_object_that_is_read_or_deleted_may_be_missing_and_a_bucket_may_not() -> None:
    for right in ("read", "delete"):
        error = store_error(S3, right, "log/1", CloudAnswer(Outcome.MISSING, 404, "NoSuchKey"))  # type: ignore[arg-type]
        assert type(error) is ObjectMissingError and str(error) == "there is no object s3://bucket/orders/log/1"
    error = store_error(S3, "read", "log/1", CloudAnswer(Outcome.NO_BUCKET, 404, "NoSuchBucket"))
    assert type(error) is StoreError and error.is_lasting
    assert str(error) == (
        "reading s3://bucket/orders/log/1 failed (404 NoSuchBucket): the bucket 'bucket' does not exist: create it, or "
        "correct the name"
    )
    assert "the container 'bucket' does not exist" in said(AZURE, "write", Outcome.NO_BUCKET)
    assert "the bucket 'bucket' does not exist" in said(GOOGLE, "write", Outcome.MISSING, 404)
    assert "a rule of the bucket" in said(S3, "write", Outcome.MISSING, 404, "NoSuchUpload")


def test_a_listing_of_a_whole_bucket_is_named_as_users_write_it() -> None:
    error = store_error(Location("s3", "bucket", ""), "list", "", CloudAnswer(Outcome.FORBIDDEN, 403, "AccessDenied"))
    assert str(error).startswith("listing s3://bucket/ failed (403 AccessDenied): ")


def test_credentials_of_clouds_that_do_not_tell_may_have_expired() -> None:
    """Azure answers an expired token as a wrong one, its emulator as a lack of rights; Google answers 401."""
    for location, status, code in ((AZURE, 403, "AuthenticationFailed"), (GOOGLE, 401, "")):
        assert "or they have expired" in said(location, "read", Outcome.UNKNOWN_CREDENTIALS, status, code)
    text = said(AZURE, "read", Outcome.FORBIDDEN, 403, "AuthorizationFailure")
    assert "may not read there, or have expired: allow the role Storage Blob Data Reader, or renew them" in text
    assert text.endswith("; or the network rules of the account keep this host out")
    assert "expired" not in said(AZURE, "read", Outcome.FORBIDDEN, 403, "AuthorizationPermissionMismatch")


def test_a_store_that_cannot_be_reached_names_every_variable_with_its_address() -> None:
    text = said(S3, "read", Outcome.UNREACHABLE)
    assert text.endswith("and what is set of AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_ENDPOINT")


def test_what_is_forbidden_says_which_permission_is_lacking() -> None:
    assert "may not write there: allow s3:PutObject, and kms:GenerateDataKey and kms:Decrypt if" in said(
        S3, "write", Outcome.FORBIDDEN, 403, "AccessDenied"
    )
    assert "allow s3:ListBucket" in said(S3, "list", Outcome.FORBIDDEN)
    assert "allow s3:DeleteObject" in said(S3, "delete", Outcome.FORBIDDEN)
    assert "Storage Blob Data Contributor" in said(AZURE, "write", Outcome.FORBIDDEN)
    assert "storage.objects.get" in said(GOOGLE, "read", Outcome.FORBIDDEN)


def test_whoever_may_not_use_the_key_of_the_bucket_is_told_the_right_as_s3_answers_the_same() -> None:
    assert "and kms:Decrypt if the bucket has a key of KMS" in said(S3, "read", Outcome.FORBIDDEN, 403, "AccessDenied")
    for location, right in ((S3, "delete"), (S3, "list"), (AZURE, "write"), (GOOGLE, "read")):
        assert "kms" not in said(location, right, Outcome.FORBIDDEN, 403)  # type: ignore[arg-type]


def test_what_a_lease_a_hold_or_a_policy_protects_is_named_as_that_and_no_right_is_asked_for() -> None:
    for location in (S3, AZURE, GOOGLE):
        text = said(location, "delete", Outcome.PROTECTED)
        assert "a lease, a hold or a retention policy" in text and "allow" not in text
    assert "another request" in said(AZURE, "write", Outcome.EXISTS, 412)


@pytest.mark.parametrize("status", [409, 412])
def test_a_deletion_with_a_conflict_that_has_no_code_is_of_what_azure_protects(status: int) -> None:
    """Azure deletes in batches, whose answers have no code; nothing that is deleted has a condition."""
    error = store_error(AZURE, "delete", "log/1", CloudAnswer(Outcome.EXISTS, status))
    assert "a lease, a hold or a retention policy" in str(error) and not error.may_have_happened


@pytest.mark.parametrize(
    ("location", "code"), [(S3, ""), (S3, "ConditionalRequestConflict"), (GOOGLE, ""), (AZURE, "BlobAlreadyExists")]
)
@pytest.mark.parametrize("status", [409, 412])
def test_any_other_deletion_with_a_conflict_met_another_request(location: Location, code: str, status: int) -> None:
    """S3 and Google answer 403 for what is protected; Google with a code."""
    error = store_error(location, "delete", "log/1", CloudAnswer(Outcome.EXISTS, status, code))
    assert "another request to the same object was under way: try again" in str(error) and error.may_have_happened


def test_credentials_that_are_not_accepted_may_be_a_clock_where_the_cloud_does_not_tell() -> None:
    """Azure and Google answer what they say of wrong credentials."""
    assert "clock of this host" in said(AZURE, "read", Outcome.UNKNOWN_CREDENTIALS, 403, "AuthenticationFailed")
    assert "clock of this host" in said(GOOGLE, "read", Outcome.UNKNOWN_CREDENTIALS, 401)
    assert "clock of this host" not in said(S3, "read", Outcome.UNKNOWN_CREDENTIALS, 403, "InvalidAccessKeyId")


def test_s3_answers_forbidden_for_what_is_missing_without_the_right_to_list() -> None:
    text = said(S3, "read", Outcome.FORBIDDEN, 403)
    assert "s3:GetObject, and s3:ListBucket on the bucket, without which S3 answers the same" in text
    assert "ListBucket" not in said(AZURE, "read", Outcome.FORBIDDEN)


def test_credentials_a_region_and_a_clock_say_what_to_set() -> None:
    assert "AWS_ACCESS_KEY_ID" in said(S3, "write", Outcome.UNKNOWN_CREDENTIALS)
    assert "AZURE_STORAGE_ACCOUNT_KEY" in said(AZURE, "write", Outcome.UNKNOWN_CREDENTIALS)
    assert "GOOGLE_APPLICATION_CREDENTIALS" in said(GOOGLE, "write", Outcome.EXPIRED)
    assert "set AWS_REGION" in said(S3, "write", Outcome.WRONG_REGION)
    assert "clock of this host" in said(S3, "write", Outcome.WRONG_CLOCK)
    assert "AWS_ENDPOINT_URL_S3" in said(S3, "write", Outcome.UNREACHABLE)
