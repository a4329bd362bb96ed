"""Checks what the flow's constructors are given, by their annotations, so that each says once what it takes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cache, wraps
from inspect import signature
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    NamedTuple,
    ParamSpec,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from spillable_stream.arguments import flag, function, instance, path_text, seconds, text, whole_number
from spillable_stream.errors import OptionError
from spillable_stream.shown_value import shown

__all__ = ["Count", "OneOf", "Port", "Size", "Within", "check_fields", "checked"]

P = ParamSpec("P")
R = TypeVar("R")


class Within(NamedTuple):
    """The bounds of an integer, for ``Annotated``.

    Args:
        least: the least that it may be.
        most: the most; None for no bound.
    """

    least: int
    most: int | None = None

    def check(self, name: str, value: object) -> None:
        """Raise OptionError for a value that is no such integer."""
        whole_number(name, value, self.least, self.most)


class OneOf:
    """The words that a text may be, for ``Annotated``.

    Args:
        words: the words.
    """

    def __init__(self, *words: str) -> None:
        self.words = words

    def check(self, name: str, value: object) -> None:
        """Raise OptionError for a value that is none of the words."""
        if not isinstance(value, str) or value not in self.words:
            raise OptionError(f"{name} must be {' or '.join(self.words)}, not {shown(value)}")


Count: TypeAlias = Annotated[int, Within(1)]
Size: TypeAlias = Annotated[int, Within(0)]
Port: TypeAlias = Annotated[int, Within(0, 65535)]


def checked(call: Callable[P, R]) -> Callable[P, R]:
    """Return a function that refuses arguments which are not what its annotations say.

    It knows ``bool``, ``int`` and its bounds (`Within`), ``float``, ``str`` and its words (`OneOf`), paths, functions,
    classes, sequences and mappings of them, and unions. The elements of an ``Iterable`` are not looked at, since that
    would take them.

    Args:
        call: the function. Its annotations are looked up when it is first called.

    Raises:
        OptionError: by the function: an argument is wrong; the message has its name.
    """
    parameters = signature(call)

    @cache
    def hints() -> dict[str, Any]:
        return get_type_hints(call, include_extras=True)

    @wraps(call)
    def checking(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            given = parameters.bind(*args, **kwargs).arguments
        except TypeError:
            given = {}  # one is missing, or unknown: the call says so
        for name, value in given.items():
            if name in hints():
                _check(name, value, hints()[name])
        return call(*args, **kwargs)

    return checking


def check_fields(of: Any) -> None:
    """Check the fields of a dataclass that its constructor takes, as `checked` does; for ``__post_init__``.

    Args:
        of: the new object.

    Raises:
        OptionError: a field is wrong; the message has its name.
    """
    hints = get_type_hints(type(of), include_extras=True)
    for field in fields(of):
        if field.init:
            _check(field.name, getattr(of, field.name), hints[field.name])


def _check(name: str, value: object, hint: Any) -> None:
    kind = get_origin(hint) or hint
    if kind in (Union, UnionType):
        _check_one_of(name, value, get_args(hint))
    elif kind is Annotated:
        hint.__metadata__[0].check(name, value)
    elif kind in (Sequence, Iterable):
        _check_elements(name, value, kind, *get_args(hint))
    elif kind is Mapping:
        _check_mapping(name, value, *get_args(hint))
    elif kind in _CHECKS:
        _CHECKS[kind](name, value)
    elif getattr(kind, "_is_protocol", False):
        if isinstance(value, type) or not isinstance(value, kind):
            raise OptionError(f"{name} must be {_words(hint)}, not {shown(value)}")
    elif isinstance(kind, type) and kind is not object:
        instance(name, value, kind)


def _check_one_of(name: str, value: object, hints: tuple[Any, ...]) -> None:
    if NoneType in hints and value is None:
        return
    kinds = [hint for hint in hints if hint is not NoneType]
    if set(map(_origin, kinds)) == {str, os.PathLike}:
        path_text(name, value)
        return
    errors = []
    for hint in kinds:
        try:
            return _check(name, value, hint)
        except OptionError as e:
            errors.append(e)
    if len(errors) == 1:
        raise errors[0]
    inner = [e for e in errors if not str(e).startswith(f"{name} ")]  # an element is wrong, and the kind is right
    raise inner[0] if inner else OptionError(f"{name} must be {' or '.join(map(_words, kinds))}, not {shown(value)}")


def _check_elements(name: str, value: object, kind: type[Any], element: Any) -> None:
    if isinstance(value, (str, bytes, bytearray, Mapping)) or not isinstance(value, kind):
        raise OptionError(f"{name} must be {_words(kind[element])}, not {shown(value)}")
    if kind is Sequence and isinstance(value, Sequence):
        for i, item in enumerate(value):
            _check(f"{name}[{i}]", item, element)


def _check_mapping(name: str, value: object, key: Any, of: Any) -> None:
    if not isinstance(value, Mapping):
        raise OptionError(f"{name} must be a dict, or another mapping, not {shown(value)}")
    for found, item in value.items():
        _check(f"a key of {name}", found, key)
        _check(f"{name}[{found!r}]", item, of)


def _origin(hint: Any) -> Any:
    return get_origin(hint) or hint


def _words(hint: Any) -> str:
    """Return what a value of a type is called."""
    kind = _origin(hint)
    if kind in (Sequence, Iterable):
        (element,) = get_args(hint)
        return f"a list of {' or '.join(getattr(h, '__name__', str(h)) for h in _alternatives(element))}"
    if kind is str:
        return "a str"
    if getattr(kind, "_is_protocol", False):
        calls = [name for name in vars(kind) if not name.startswith("_")]
        return f"an object with {' and '.join(f'{name}()' for name in calls)}"
    return f"an instance of {getattr(kind, '__name__', kind)}"


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


_CHECKS: dict[Any, Callable[[str, Any], object]] = {
    bool: flag,
    int: lambda name, value: whole_number(name, value, None),
    float: seconds,
    str: text,
    Callable: function,
}
