"""The verb ``test``: unit tests of a configuration of Flume's."""

from __future__ import annotations

from typing import Annotated

import typer

from spillable_stream.cli.app import HEALTHY, UNHEALTHY, UNKNOWN, AsJson, fail, print_object
from spillable_stream.cli.arguments import refuse_empty
from spillable_stream.cli.flow_options import AgentName, ClassMap, SystemProperties, conf_file_option, pairs
from spillable_stream.errors import OptionError

__all__ = ["test"]

_TestFile = Annotated[str, typer.Argument(metavar="FILE", callback=refuse_empty("a file"), help="The tests, in TOML.")]
_Files = Annotated[list[str] | None, conf_file_option("The configuration; by default the one that FILE names.")]


def test(
    path: _TestFile,
    files: _Files = None,
    name: AgentName = None,
    define: SystemProperties = None,
    mapped: ClassMap = None,
    as_json: AsJson = False,
) -> None:
    """Run unit tests of a configuration of Flume's: events in, and which reach which channel. Nothing is opened.

    Example: `spillable test flow_tests.toml`

    Exit status: 0 all tests pass, 1 one fails, 2 they can't be read.
    """
    from spillable_stream.flow.testing import run_file

    try:
        results = run_file(path, files or (), name=name, system=pairs(define), mapped=pairs(mapped))
    except (OptionError, OSError, ImportError) as e:
        fail(path, e, as_json, UNKNOWN)
    if as_json:
        tests = [
            {"name": result.name, "passed": not result.failures, "failures": result.failures} for result in results
        ]
        print_object({"path": path, "tests": tests})
    else:
        for result in results:
            typer.echo(f"{'failed' if result.failures else 'passed'}: {result.name}")
            for failure in result.failures:
                typer.echo(f"  {failure}")
    raise typer.Exit(UNHEALTHY if any(result.failures for result in results) else HEALTHY)
