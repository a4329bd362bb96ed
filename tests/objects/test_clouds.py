"""The words and variables of the clouds."""

from __future__ import annotations

import pytest

from spillable_stream.objects.clouds import CLOUDS, cloud_of
from spillable_stream.objects.location import Location

LOCATIONS = [Location.parse(url) for url in ("s3://b/orders", "az://b/orders", "gs://b/orders")]


def test_every_scheme_that_is_not_a_directory_has_a_cloud() -> None:
    assert {location.scheme for location in LOCATIONS} == set(CLOUDS)


@pytest.mark.parametrize("location", LOCATIONS, ids=str)
def test_a_cloud_names_its_variables_and_a_permission_for_each_verb(location: Location) -> None:
    cloud = cloud_of(location)
    assert cloud.allow_http == f"{cloud.prefix}ALLOW_HTTP"
    assert all(name == name.upper() for name in cloud.endpoints)
    assert set(cloud.rights) == {"write", "read", "delete", "list"}
