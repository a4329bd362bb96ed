"""Servers that tests run: where their programs are."""

from __future__ import annotations

import os
import shutil

import pytest

__all__ = ["program"]


def program(name: str, variable: str, package: str) -> str:
    """Return the path of a program, or skip the test.

    Args:
        name: what it is called.
        variable: the environment variable with its path, if it is not among those that the shell finds.
        package: what has it, for the reason.
    """
    found = os.environ.get(variable) or shutil.which(name)
    if not found:
        pytest.skip(f"needs {name}, of {package}: install it, or say where it is in {variable}")
    return found
