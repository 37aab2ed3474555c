"""Converts plain data, such as YAML, to an `Experiment` and back.

pydantic reads the data: each dataclass is a section, and where there are several, `kind` chooses
one (a discriminated union). When a section has been read, its dataclass checks the values in
`__post_init__`. One error lists the problems of all sections, with the nearest known name of what
is mistyped.
"""

from __future__ import annotations

import dataclasses
import json
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import cache, partial
from pathlib import Path
from reprlib import repr as short
from typing import Annotated, Any, Final, NamedTuple

import pydantic
import typing_extensions
from pydantic_core import PydanticCustomError

from outpace.config.cluster_files import included
from outpace.config.experiment import Experiment
from outpace.config.removed import instead_of, without_former_defaults
from outpace.errors import ConfigError, did_you_mean, nearest
from outpace.support.checks import noted
from outpace.support.paths import with_paths
from outpace.sync.assignment import Sync


def experiment_from(data: Mapping[str, Any], source: str, folder: Path | None = None) -> Experiment:
    """Return the Experiment that plain data, such as YAML, describe.

    The key `include` names cluster files, see `cluster_files`.

    Args:
        source: names the data in errors.
        folder: folder of relative file paths; None: the current one.

    Raises:
        ConfigError: listing the problems of all sections.
    """
    if not isinstance(data, Mapping):
        raise ConfigError(f"{source} must be a mapping of keys, not {data!r}")
    data, origin = included(data, source, folder or Path.cwd())
    experiment: Experiment = _read(Experiment, data, "", source, origin)
    try:
        made: Experiment = with_paths(experiment, folder or Path.cwd())
        return made
    except (OSError, ValueError) as error:
        raise ConfigError(f"{source}: invalid path: {error}") from error


def sync_from(data: Any, source: str) -> Sync:
    """Return the strategy that plain data describe. Raises ConfigError listing all problems."""
    found: Sync = _read(Sync, data, "sync", source, {})
    return found


def section_from(expected: Any, data: Any, path: str, source: str) -> Any:
    """Return the dataclass, or the one of several by `kind`, that plain data describe.

    Args:
        path: of the data in errors.

    Raises:
        ConfigError: listing all problems.
    """
    return _read(expected, data, path, source, {})


def to_plain(experiment: Experiment) -> dict[str, Any]:
    """Return the configuration as plain data with all defaults filled in.

    Without keys that a script decides itself: their defaults are not what it uses.
    """
    found: dict[str, Any] = plain(dataclasses.asdict(experiment))
    if experiment.has_script:
        for key in experiment.decided_by_script:
            del found[key]
    return found


def plain(value: Any) -> Any:
    """Return the value as dictionaries, lists, text and numbers."""
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return value.value if isinstance(value, Enum) else value


def _read(expected: Any, data: Any, path: str, source: str, origin: Mapping[str, Path]) -> Any:
    """Return the data as a value of the type `expected`.

    Args:
        path: of the data in the configuration.
        source: names the data in errors.
        origin: the cluster files that some of the keys come from.

    Raises:
        ConfigError: listing the problems of all sections.
    """
    try:
        text = json.dumps(_whole(without_former_defaults(data, path)))
        return _adapter(expected).validate_json(text, strict=True)
    except pydantic.ValidationError as error:
        problems = _in_words(error.errors(include_url=False), expected, path, data)
    except (RecursionError, ValueError):
        problems = ["it is nested too deeply, or contains itself"]
    except TypeError as error:
        problems = [f"not plain data: {error}"]
    lines = [f"{_source_of(problem, origin) or source}: {problem}" for problem in problems]
    raise ConfigError("\n".join(lines))


def _whole(value: Any) -> Any:
    """Convert integral floats to ints, because YAML reads the count 1e6 as a float."""
    if isinstance(value, Mapping):
        return {k: v if k == "arguments" else _whole(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_whole(entry) for entry in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value


def _source_of(problem: str, origin: Mapping[str, Path]) -> Path | None:
    """Return the cluster file in which the key is written that a problem begins with."""
    key = re.match(r"\w*", problem)
    return None if key is None else origin.get(key[0])


# -- types that pydantic reads ---------------------------------------------------------

_LIST: Final = "list"  # the tag of a list where one section would do, as in `sync`


@cache
def _adapter(expected: Any) -> pydantic.TypeAdapter[Any]:
    return pydantic.TypeAdapter(_readable(expected))


def _readable(expected: Any, usual: Any = None) -> Any:
    """Return the type with which pydantic reads a value of the type `expected`.

    usual: the default; its kind is meant where data give none.
    """
    arguments, options = typing.get_args(expected), _options(expected)
    if not options:
        container: Any = typing.get_origin(expected)
        if container not in (tuple, dict):
            return expected
        return container[tuple(each if each is ... else _readable(each) for each in arguments)]
    found: Any = _section(options[0])
    if _has_kinds(expected):
        choices = [Annotated[_section(each), pydantic.Tag(_kind(each))] for each in options]
        choices += [Annotated[_readable(each), pydantic.Tag(_LIST)] for each in _lists(expected)]
        chosen = _tagged_by(_kind(type(usual)) if type(usual) in options else None)
        found = Annotated[typing.Union[tuple(choices)], pydantic.Discriminator(chosen)]  # noqa: UP007
    return found | None if types.NoneType in arguments else found


@cache
def _section(option: type) -> Any:
    """Return the type of the data of a dataclass, of which pydantic makes an instance."""
    hints, keys = typing.get_type_hints(option), {}
    for entry in dataclasses.fields(option):
        default = _default(entry)
        is_required = default is dataclasses.MISSING
        mark: Any = typing_extensions.Required if is_required else typing_extensions.NotRequired
        keys[entry.name] = mark[_readable(hints[entry.name], default)]
    typed_dict: Any = typing_extensions.TypedDict
    data = typed_dict(option.__name__, keys)
    data.__pydantic_config__ = pydantic.ConfigDict(extra="forbid")
    return Annotated[data, pydantic.AfterValidator(partial(_made, option))]


def _made(option: type, values: Mapping[str, Any]) -> Any:
    """Return an instance of the dataclass. Raises an error with all problems that it finds."""
    made = None
    with noted() as problems:
        try:
            made = option(**values)
        except ValueError as error:
            problems += str(error).split("\n")
    if problems:
        raise PydanticCustomError("checks", "{problems}", {"problems": problems})
    return made


def _tagged_by(usual: str | None) -> Callable[[Any], str | None]:
    """Return what says which of several types data have: their kind, or that they are a list.

    usual: the kind of data that give none.
    """

    def tag(data: Any) -> str | None:
        if isinstance(data, list):
            return _LIST
        kind = data.get("kind", usual) if isinstance(data, dict) else None
        return None if kind is None else str(kind)

    return tag


def _options(expected: Any) -> list[type]:
    """Return the dataclasses in `expected`, which may be a union."""
    union = typing.get_origin(expected) in (typing.Union, types.UnionType)
    members = typing.get_args(expected) if union else (expected,)
    return [m for m in members if isinstance(m, type) and dataclasses.is_dataclass(m)]


def _lists(expected: Any) -> list[Any]:
    """Return the lists in a union of dataclasses."""
    return [each for each in typing.get_args(expected) if typing.get_origin(each) is tuple]


def _has_kinds(expected: Any) -> bool:
    """True if data of this type are tagged by their kind, or as a list."""
    return len(_options(expected)) > 1 or bool(_options(expected) and _lists(expected))


def _kinds(option: type) -> tuple[str, ...]:
    """Return the kind of the dataclass; nothing if it has none."""
    return tuple(str(f.default) for f in dataclasses.fields(option) if f.name == "kind")


def _kind(option: type) -> str:
    (kind,) = _kinds(option)
    return kind


def _default(entry: dataclasses.Field[Any]) -> Any:
    """Return the default of a field; MISSING if it has none."""
    made_by = entry.default_factory
    return entry.default if made_by is dataclasses.MISSING else made_by()


# -- errors in words -------------------------------------------------------------------

_WORDS: Final = {
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "tuple_type": "must be a list",
    "dict_type": "must be a mapping",
    "union_tag_not_found": "must be a mapping",
    "union_tag_invalid": "must be a mapping",
}


class _Place(NamedTuple):
    """Where an error is: its path, the dataclass of that section, and what it is one of."""

    path: str
    section: Any
    options: list[type]


def _place(location: Sequence[Any], expected: Any, path: str) -> _Place:
    """Return the place that a location of pydantic leads to, from data of the type `expected`."""
    section, options = None, _options(expected)
    for step in location:
        if _has_kinds(expected):  # the step is a tag
            options = _options(expected)
            if step == _LIST:
                (expected,) = _lists(expected)
                continue
            (section,) = (each for each in options if _kind(each) == step)
            expected = section
        elif _options(expected):
            if section is not expected:
                options = _options(expected)
                (section,) = options
            path = f"{path}.{step}" if path else step
            expected = typing.get_type_hints(section).get(step, Any)
        elif isinstance(step, int):
            path += f"[{step}]"
            expected = next(iter(typing.get_args(expected)), Any)
        elif typing.get_origin(expected) is dict:
            path += f".{step}"
            expected = typing.get_args(expected)[-1]
        # Else it is a member of a union of plain types.
    return _Place(path, section, _options(expected) if _has_kinds(expected) else options)


def _in_words(found: Sequence[Any], expected: Any, path: str, data: Any) -> list[str]:
    """Return pydantic's errors in data of the type `expected` as text, a line for each place."""
    places = [_place(error["loc"], expected, path) for error in found]
    unknown = {
        nearest(place.path.rpartition(".")[2], _fields(place.section))
        for place, error in zip(places, found, strict=True)
        if error["type"] == "extra_forbidden"
    }
    lines: dict[str, None] = {}
    plain_errors: dict[str, list[Any]] = {}
    for place, error in zip(places, found, strict=True):
        kind, key = error["type"], place.path.rpartition(".")[2]
        if kind == "checks":
            lines |= dict.fromkeys(_below(place.path, each) for each in error["ctx"]["problems"])
        elif kind == "extra_forbidden":
            advice = _in_a_section(place, key, data) or _of_another_kind(key, place.options)
            advice = advice or did_you_mean(key, _fields(place.section))
            lines[instead_of(place.path) or f"{place.path}: unknown key.{advice}"] = None
        elif kind == "missing":
            if key not in unknown:  # else the error of the mistyped key names it
                lines[f"{place.path} is missing"] = None
        elif kind.startswith("union_tag") and isinstance(error["input"], dict):
            lines[_unknown_kind(place, error["input"])] = None
        else:
            plain_errors.setdefault(place.path, []).append(error)
    for where, errors in plain_errors.items():
        inner = any(other != where and other.startswith(f"{where}[") for other in plain_errors)
        if not inner:  # else it is said of the entry of a list
            lines[_wrong_value(where, errors)] = None
    return list(lines)


def _below(path: str, problem: str) -> str:
    """Return a problem that the dataclass at this path has found."""
    return f"{path}{': ' if problem.startswith('needs') else '.'}{problem}" if path else problem


def _unknown_kind(place: _Place, data: Mapping[str, Any]) -> str:
    """Return the error for a section whose kind is missing or not known."""
    kinds = [_kind(option) for option in place.options]
    if "kind" not in data:
        return f"{place.path}.kind is missing. Known: {', '.join(sorted(kinds))}."
    path, kind = f"{place.path}.kind", data["kind"]
    unknown = f"{path}: unknown kind {short(kind)}.{did_you_mean(kind, kinds)}"
    return instead_of(path, kind) or unknown


def _wrong_value(path: str, errors: Sequence[Any]) -> str:
    """Return the error for a value that has none of the types that it could have."""
    value = errors[0]["input"]
    gone = instead_of(path, value) if isinstance(value, str) else ""
    either = " or ".join(dict.fromkeys(_must(each).removeprefix("must be ") for each in errors))
    return gone or f"{path or 'the configuration'} must be {either}, not {short(value)}"


def _must(error: Any) -> str:
    if error["type"] in ("enum", "literal_error"):
        return f"must be {error['ctx']['expected']}"
    return _WORDS.get(error["type"], str(error["msg"]))


def _in_a_section(place: _Place, key: str, data: Mapping[str, Any]) -> str:
    """Return advice if a section, such as `sync`, has this key of the whole configuration.

    data: the configuration; its kinds decide which keys a section has.
    """
    if place.section is not Experiment:
        return ""
    found = []
    for section, hint in typing.get_type_hints(Experiment).items():
        written = data.get(section)
        kind = written.get("kind") if isinstance(written, dict) else None
        options = _options(hint)
        options = [each for each in options if kind in _kinds(each)] or options
        if any(key in _fields(each) for each in options):
            found.append(section)
    found = [section for section in found if section in data] or found
    names = " or ".join(f"'{section}.{key}'" for section in found)
    return f" Did you mean {names}?" if 0 < len(found) <= 3 else ""


def _of_another_kind(key: str, options: Sequence[type]) -> str:
    """Return advice if options of another kind have this key; otherwise an empty text."""
    kinds = sorted(kind for each in options if key in _fields(each) for kind in _kinds(each))
    return f" Only kind: {' or '.join(kinds)} has it." if 0 < len(kinds) <= 3 else ""


def _fields(option: Any) -> list[str]:
    """Return the keys of a dataclass."""
    return [entry.name for entry in dataclasses.fields(option)]
