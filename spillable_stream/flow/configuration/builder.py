"""Components of a configuration as objects: classes of this package, and of the user's own.

A class of the user's own is named in a file by its import path (``my.module.Mask`` or ``my.module:Mask``), by an entry
point of the group ``spillable_stream.flow``, or by a map from the name of a Java class, so that the file stays as it
is. Its arguments are its properties in snake_case: texts, or what the annotation says (``int``, ``float``, ``bool``).

A reload builds a source or a sink while the one before it still runs, so that it can refuse the new files and stop
nothing. So no class opens anything before it is started.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, cast

from spillable_stream.error_text import may_be_of_a_signal
from spillable_stream.errors import OptionError
from spillable_stream.flow.configuration.model import ComponentConfig
from spillable_stream.flow.configuration.options import Kind
from spillable_stream.flow.configuration.registry import find_type, nearest
from spillable_stream.flow.failures import FAILURES
from spillable_stream.shown_value import shown

__all__ = ["ENTRY_POINTS", "PythonClasses", "build"]

ENTRY_POINTS = "spillable_stream.flow"

_PURE_KINDS = {Kind.INTERCEPTOR, Kind.SERIALIZER, Kind.SELECTOR, Kind.PROCESSOR}
_BOOLEANS = {"true": True, "false": False}


class PythonClasses:
    """Finds the classes of types that are not Flume's, and tries whether a component can be built.

    Args:
        mapped: names of classes, as a file has them, each with the Python class: ``module:Class``.
    """

    def __init__(self, mapped: Mapping[str, str] | None = None) -> None:
        self._mapped = dict(mapped or {})

    def find(self, kind: Kind, name: str) -> str:
        """Return ``module:Class`` for the name of a class.

        Args:
            kind: what the component is.
            name: the type, as the file has it.

        Raises:
            OptionError: no such class can be loaded. The message says why, and what to do.
        """
        named = self._mapped.get(name) or next((e.value for e in entry_points(group=ENTRY_POINTS, name=name)), name)
        module, colon, class_name = named.partition(":")
        if not colon:
            module, _, class_name = named.rpartition(".")
        path = f"{module}:{class_name}"
        if not module or not all(part.isidentifier() for part in (*module.split("."), *class_name.split("."))):
            raise OptionError(_java_advice(name))
        try:
            _load(path)
        except ModuleNotFoundError as e:
            if e.name is None or not f"{module}.".startswith(f"{e.name}."):
                raise OptionError(f"the class {name} can't be loaded: {e}") from e
            raise OptionError(_java_advice(name) if named == name else f"{name} is mapped to {named}: {e}") from e
        except FAILURES as e:  # whatever the import of the user's module raises
            if may_be_of_a_signal(e):
                raise
            raise OptionError(f"the class {name} can't be loaded: {type(e).__name__}: {e}") from e
        return path

    def check(self, component: ComponentConfig) -> None:
        """Try whether a component can be built, as far as nothing binds or writes.

        The sources and sinks of this package do neither before they are started; those of a user should not, but may.

        Raises:
            OptionError: it can't.
        """
        if not component.implementation:
            return
        if component.kind in _PURE_KINDS or _is_flumes(component):
            build(component)
        else:
            _arguments(_load(component.implementation), component)


def _java_advice(name: str) -> str:
    advice = f"if it is a class of Java's, write it in Python, and add --map '{name}=module:Class'"
    return f"there is no Python class {name}: {advice}"


def build(component: ComponentConfig) -> Any:
    """Return the object that a component's configuration describes.

    Args:
        component: the component, with what is nested in it.

    Raises:
        OptionError: its class can't be loaded, or refuses its arguments.
    """
    try:
        made_by = _load(component.implementation)
        return made_by(**_arguments(made_by, component))
    except OptionError:
        raise
    except FAILURES as e:  # whatever the class raises: it is the component that can't be built
        if may_be_of_a_signal(e):
            raise
        advice = "; it must open nothing before it is started" if isinstance(e, OSError) else ""
        raise OptionError(f"{component.type} can't be built: {e or type(e).__name__}{advice}") from e


def _load(path: str) -> Callable[..., Any]:
    module, _, name = path.partition(":")
    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    if not callable(found):
        raise TypeError(f"{path} is not a class")
    return cast("Callable[..., Any]", found)


def _arguments(made_by: Callable[..., Any], component: ComponentConfig) -> dict[str, Any]:
    keywords = {name: _built(value) for name, value in component.keywords.items()}
    if _is_flumes(component):
        return keywords
    parameters = _parameters(made_by, component.type)
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return keywords
    for name in keywords:
        if name not in parameters:
            meant = nearest(name, parameters)
            raise OptionError(
                f"{component.type} has no argument {name}" + (f": did you mean {meant}?" if meant else "")
            )
    for name, parameter in parameters.items():
        if parameter.default is parameter.empty and name not in keywords:
            raise OptionError(f"{component.type} needs the argument {name}, and the file does not give it")
    return {name: _converted(name, value, parameters[name].annotation) for name, value in keywords.items()}


def _parameters(made_by: Callable[..., Any], name: str) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a user's class; with annotations as texts where names in them are not there at runtime.

    Raises:
        OptionError: they can't be told, as with some classes of Python's own.
    """
    try:
        try:
            return inspect.signature(made_by, eval_str=True).parameters
        except (NameError, AttributeError):  # a name that is imported for type checkers only
            return inspect.signature(made_by).parameters
    except (ValueError, TypeError, SyntaxError) as e:
        raise OptionError(f"{name} can't be built, since its arguments can't be told: {e}") from e


def _is_flumes(component: ComponentConfig) -> bool:
    """Return whether a component is of a type of the tables, and not of a class that was given to such a name."""
    known = find_type(component.kind, component.type)
    return known is not None and known.supported


def _built(value: object) -> object:
    """Return a value with the components in it built."""
    if isinstance(value, ComponentConfig):
        return build(value)
    if isinstance(value, tuple):
        return tuple(map(_built, value))
    return value


def _converted(name: str, value: object, annotation: object) -> object:
    try:
        if annotation in (int, int | None, "int", "int | None"):
            return int(str(value))
        if annotation in (float, float | None, "float", "float | None"):
            return float(str(value))
        if annotation in (bool, bool | None, "bool", "bool | None"):
            return _BOOLEANS[str(value).lower()]
    except (ValueError, KeyError):
        raise OptionError(f"{name} must be {getattr(annotation, '__name__', annotation)}, not {shown(value)}") from None
    return value
