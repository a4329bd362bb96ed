"""What `import spillable_stream` gives, and what it costs."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import spillable_stream


def test_all_names_are_there_and_no_others_are_promised() -> None:
    for name in spillable_stream.__all__:
        assert hasattr(spillable_stream, name), name
    assert len(set(spillable_stream.__all__)) == len(spillable_stream.__all__)


@pytest.mark.parametrize("name", spillable_stream.__all__)
def test_everything_public_is_documented(name: str) -> None:
    thing = getattr(spillable_stream, name)
    assert inspect.getdoc(thing)
    if inspect.isclass(thing):
        for member, value in vars(thing).items():
            if not member.startswith("_") and callable(value):
                assert inspect.getdoc(value), f"{name}.{member}"


def test_importing_brings_neither_spark_nor_pandas() -> None:
    code = "import sys, spillable_stream; print([m for m in ('pyspark', 'pandas') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_the_version_is_the_packages() -> None:
    from importlib.metadata import version

    assert version("spillable-stream") == spillable_stream.__version__
