"""Decoders and opens fed with what nobody wrote: a value, or a typed error; nothing else, and no great allocation."""

from __future__ import annotations

import resource
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.damage_image import Image, make_image
from tests.lab.damage_lab import untyped
from tests.lab.fuzz import forged, surprises
from tests.lab.size import sized

_SHARED_MEMORY = Path("/dev/shm")


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    """A channel with every kind of file."""
    base = Path(tempfile.mkdtemp(prefix="spillable-fuzz-", dir=_SHARED_MEMORY if _SHARED_MEMORY.exists() else None))
    yield make_image(base / "image", "small memory")
    shutil.rmtree(base)


def test_decoders_refuse_what_is_nonsense(image: Image) -> None:
    assert list(surprises(image, 20_000, seed=20261121)) == []


@pytest.mark.crash
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(4))
def test_a_million_inputs_surprise_no_decoder(image: Image, seed: int) -> None:
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert list(surprises(image, sized(50_000, 250_000), seed)) == []
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 100_000


@pytest.mark.crash
@pytest.mark.timeout(3600)
def test_records_that_were_forged_surprise_no_open(image: Image) -> None:
    """Their checksums are right: nothing can be promised of what they say, but the kind of the error."""
    assert untyped(image, forged(image, sized(200, 20_000), seed=1)) == []
