from __future__ import annotations

import subprocess
import sys
import venv
import warnings
from pathlib import Path
from unittest.mock import Mock

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceRegistration

import spillable_stream as ss
from spillable_stream.spark import registration
from spillable_stream.spark.registration import wrong_python
from tests.support.spark.sessions import short_sessions

_PACKAGE = Path(ss.__file__).parents[1]
_REGISTER = """
import sys
sys.path.insert(0, sys.argv[1])
from pyspark.sql import SparkSession
import spillable_stream as ss

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
try:
    ss.register(spark)
except ss.PythonMismatchError as e:
    print("refused:", e)
spark.stop()
"""


@pytest.mark.spark
def test_a_format_that_the_session_knows_is_not_registered_again(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark would warn that the source replaced itself."""
    registered = []
    monkeypatch.setattr(DataSourceRegistration, "register", lambda _, source: registered.append(source))
    ss.register(spark)
    ss.register(spark)
    assert registered == []


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_python_of_sparks_without_the_package_is_named_and_what_to_set(tmp_path: Path) -> None:
    venv.create(tmp_path / "other", with_pip=False)
    other = str(tmp_path / "other/bin/python")
    unset = {"PYTHONPATH", "PYSPARK_DRIVER_PYTHON"}
    sessions = short_sessions().items()
    environment = {k: v for k, v in sessions if k not in unset} | {"PYSPARK_PYTHON": other}
    command = [sys.executable, "-c", _REGISTER, str(_PACKAGE)]
    ran = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    said = [line for line in ran.stdout.splitlines() if line.startswith("refused:")]
    assert said == [
        f"refused: Spark's Python, {other}, has no module spillable_stream: set the environment variable "
        f"PYSPARK_PYTHON to a Python that has spillable_stream, such as {sys.executable}, before Spark starts"
    ]
    assert "Traceback" not in ran.stderr


def test_a_session_whose_python_lacks_the_package_is_refused_and_told_what_to_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registration, "tell_workers", lambda _: False)
    spark = Mock()
    spark.sparkContext.pythonExec = "/usr/bin/other"
    reader = spark.read.format.return_value.option.return_value
    reader.load.side_effect = RuntimeError("ModuleNotFoundError: No module named 'spillable_stream'\n SQLSTATE: 38000")
    with pytest.raises(ss.PythonMismatchError) as e:
        ss.register(spark)
    assert str(e.value) == (
        "Spark's Python, /usr/bin/other, has no module spillable_stream: set the environment variable PYSPARK_PYTHON "
        f"to a Python that has spillable_stream, such as {sys.executable}, before Spark starts"
    )
    spark.dataSource.register.assert_not_called()


@pytest.mark.parametrize("condition", ["DATA_SOURCE_ALREADY_EXISTS", "SOMETHING_ELSE"])
def test_a_session_that_found_the_format_by_itself_may_refuse_another_one_quietly(
    monkeypatch: pytest.MonkeyPatch, condition: str
) -> None:
    """Spark 4.0 does. It has deprecated `getErrorClass`, and warns."""
    monkeypatch.setattr(registration, "tell_workers", lambda _: True)
    spark = Mock()
    spark.dataSource.register.side_effect = PySparkException("refused", errorClass=condition)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if condition == "DATA_SOURCE_ALREADY_EXISTS":
            ss.register(spark)
        else:
            with pytest.raises(PySparkException, match="refused"):
                ss.register(spark)
    spark.dataSource.register.assert_called_once()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("ModuleNotFoundError: No module named 'pyarrow'\n SQLSTATE: 38000", "has no module pyarrow"),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 2.7 than that",
            "is 2.7, and this",
        ),
        ('java.io.IOException: Cannot run program "python3": error=2, No such file', "can't be run"),
        ("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: spillable", None),
        ("", None),
    ],
)
def test_what_is_wrong_with_sparks_python_is_told_from_other_failures(error: str, said: str | None) -> None:
    found = wrong_python(error)
    assert found is None if said is None else found is not None and found.startswith(said)
