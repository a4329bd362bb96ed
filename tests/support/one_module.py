"""Other functions of a library for one module only: threads that earlier tests left running use the library, too."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace

import pytest

__all__ = ["replace_in"]


def replace_in(patch: pytest.MonkeyPatch, module: ModuleType, library: str, **functions: object) -> None:
    """Give a module other functions of a library that it imports.

    Args:
        patch: undoes it.
        module: the module under test.
        library: the name by which the module knows the library, such as `time`.
        functions: the other functions, by their names.
    """
    patch.setattr(module, library, SimpleNamespace(**{**vars(getattr(module, library)), **functions}))
