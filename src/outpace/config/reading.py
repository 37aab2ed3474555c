"""Converts plain data, such as YAML, to an `Experiment` and back.

Keys and kinds are checked against the dataclasses (an error suggests the nearest known name),
types by pydantic, and ranges by `__post_init__` of the dataclasses. One error lists as many
problems as can be found in one pass.
"""

from __future__ import annotations

import dataclasses
import json
import re
import types
import typing
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import cache, reduce
from operator import or_
from pathlib import Path
from reprlib import repr as short
from typing import Any, Final

import pydantic

from outpace.config.cluster_files import included
from outpace.config.experiment import Experiment
from outpace.config.removed import instead_of, is_former_default
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
        ConfigError: listing all problems.
    """
    if not isinstance(data, Mapping):
        raise ConfigError(f"{source} must be a mapping of keys, not {data!r}")
    problems: list[str] = []
    experiment: Any = _UNREADABLE
    data, origin = included(data, source, folder or Path.cwd())
    try:
        whole = json.loads(json.dumps(_whole(data)))
        experiment = _read(Experiment, whole, "", problems)
    except (RecursionError, ValueError):
        problems = ["it is nested too deeply, or contains itself"]
    except TypeError as error:
        problems = [f"not plain data: {error}"]
    if problems:
        lines = [f"{_source_of(problem, origin) or source}: {problem}" for problem in problems]
        raise ConfigError("\n".join(lines))
    try:
        made: Experiment = with_paths(experiment, folder or Path.cwd())
        return made
    except (OSError, ValueError) as error:
        raise ConfigError(f"{source}: invalid path: {error}") from error


def sync_from(data: Any, source: str) -> Sync:
    """Return the strategy that plain data describe. Raises ConfigError listing all problems."""
    problems: list[str] = []
    sync: Any = _read(Sync, _whole(data), "sync", problems)
    if problems:
        raise ConfigError("\n".join(f"{source}: {problem}" for problem in problems))
    found: Sync = sync
    return found


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


# -- reading -------------------------------------------------------------------------
# These functions append errors to `problems` and return _UNREADABLE for unreadable data, or a _Part
# of a dataclass that is `checked_in_part`: the checks of what contains it still run on the rest.

_UNREADABLE: Final = object()


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """An instance of a dataclass whose checks have not passed, or a tuple with some of these."""

    value: Any


_WORDS: Final = {
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "tuple_type": "must be a list",
    "dict_type": "must be a mapping",
}


def _read(
    expected: Any, data: Any, path: str, problems: list[str], usual: type | None = None
) -> Any:
    """Return the data as a value of type `expected`; `usual`: the dataclass if no kind is given."""
    arguments = typing.get_args(expected)
    options = _options(expected)
    several = [member for member in arguments if typing.get_origin(member) is tuple]
    if options and several and isinstance(data, list):  # a list where one entry would do
        return _read(several[0], data, path, problems)
    if options:
        if data is None and types.NoneType in arguments:
            return None
        if not isinstance(data, dict):
            problems.append(f"{path or 'the configuration'} must be a mapping, not {short(data)}")
            return _UNREADABLE
        option = usual if usual in options and "kind" not in data else None
        option = option or _chosen(options, data, path, problems)
        return _UNREADABLE if option is None else _made(option, data, path, problems, options)
    if isinstance(data, list) and arguments and _options(arguments[0]):
        entries = [
            _read(arguments[0], entry, f"{path}[{place}]", problems)
            for place, entry in enumerate(data)
        ]
        if _UNREADABLE in entries:
            return _UNREADABLE
        values = tuple(each.value if isinstance(each, _Part) else each for each in entries)
        return _Part(values) if any(isinstance(each, _Part) for each in entries) else values
    if isinstance(data, dict) and arguments and _options(arguments[-1]):
        named = {
            key: _read(arguments[-1], entry, f"{path}.{key}", problems)
            for key, entry in data.items()
        }
        return _UNREADABLE if _UNREADABLE in named.values() else named
    try:
        return _adapter(_narrowed(expected, data)).validate_json(json.dumps(data), strict=True)
    except pydantic.ValidationError as error:
        gone = instead_of(path, data) if isinstance(data, str) else ""
        problems += [gone] if gone else _in_words(error.errors(), path)
        return _UNREADABLE


def _narrowed(expected: Any, data: Any) -> Any:
    """Return the list or the non-list types of a union, whichever can match the data.

    Errors then do not mention types that could not match.
    """
    if typing.get_origin(expected) not in (typing.Union, types.UnionType):
        return expected
    members = typing.get_args(expected)
    fit = [m for m in members if (typing.get_origin(m) is tuple) == isinstance(data, list)]
    return reduce(or_, fit) if fit else expected


def _options(expected: Any) -> list[type]:
    """Return the dataclasses in `expected`, which may be a union."""
    union = typing.get_origin(expected) in (typing.Union, types.UnionType)
    members = typing.get_args(expected) if union else (expected,)
    return [m for m in members if isinstance(m, type) and dataclasses.is_dataclass(m)]


def _chosen(options: list[type], data: Any, path: str, problems: list[str]) -> type | None:
    """Return the dataclass selected by the key `kind`; None if there is none."""
    if len(options) == 1:
        return options[0]
    kinds = {_kind(option): option for option in options}
    if "kind" not in data:
        problems.append(f"{path}.kind is missing. Known: {', '.join(sorted(kinds))}.")
        return None
    kind = data["kind"]
    if isinstance(kind, str) and kind in kinds:
        return kinds[kind]
    unknown = f"{path}.kind: unknown kind {short(kind)}.{did_you_mean(kind, kinds)}"
    problems.append(instead_of(f"{path}.kind", kind) or unknown)
    return None


def _kinds(option: type) -> tuple[str, ...]:
    """Return the kind of the dataclass; nothing if it has none."""
    return tuple(str(f.default) for f in dataclasses.fields(option) if f.name == "kind")


def _kind(option: type) -> str:
    (kind,) = _kinds(option)
    return kind


def _made(
    option: type, data: dict[str, Any], path: str, problems: list[str], options: Sequence[type] = ()
) -> Any:
    """Return an instance of the dataclass `option`, one of `options`, made from `data`.

    If some keys cannot be read, the checks of the dataclass still run on the others.
    """
    hints = typing.get_type_hints(option)
    prefix = f"{path}." if path else ""
    values = {}
    usual = {entry.name: type(_default(entry)) for entry in dataclasses.fields(option)}
    for key, entry in data.items():
        if key in usual:  # `hints` also contains class variables, which are not keys
            values[key] = _read(hints[key], entry, prefix + key, problems, usual[key])
        elif not is_former_default(prefix + key, entry):
            advice = _in_a_section(key, hints, data) or _of_another_kind(key, options)
            advice = advice or did_you_mean(key, usual)
            problems.append(instead_of(prefix + key) or f"{prefix}{key}: unknown key.{advice}")
    suggested = {nearest(key, usual) for key in data if key not in usual}
    for entry in dataclasses.fields(option):
        if entry.name not in data and _default(entry) is _UNREADABLE:
            if entry.name not in suggested:  # else the error of the mistyped key names it
                problems.append(f"{prefix}{entry.name} is missing")
            values[entry.name] = _UNREADABLE
    known = _UNREADABLE not in values.values()
    whole = known and not any(isinstance(value, _Part) for value in values.values())
    made: Any = _UNREADABLE
    part: Any = object.__new__(option)
    with noted() as complaints:
        try:
            if whole:
                made = option(**values)
            else:
                _check_what_there_is(part, values)
        except ValueError as error:  # for a partial value, a missing key may be the cause
            complaints += str(error).split("\n") if known else ()
        except Exception:
            if whole and not complaints:  # otherwise a reported problem may be the cause
                raise
    if any(values.get(key) is _UNREADABLE for key in data):  # perhaps these are what is needed
        complaints = [each for each in complaints if not each.startswith("needs")]
    for complaint in complaints:
        separator = "" if not path else ": " if complaint.startswith("needs") else "."
        problems.append(f"{path}{separator}{complaint}")
    is_part = not whole and getattr(option, "checked_in_part", False)
    return _Part(part) if is_part else made


def _in_a_section(key: str, hints: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """Return advice if a section, such as `sync`, has this key; otherwise an empty text.

    Args:
        hints: the types of the known keys.
        data: what was written; its kinds decide which keys a section has.
    """
    found = []
    for section, hint in hints.items():
        written = data.get(section)
        kind = written.get("kind") if isinstance(written, dict) else None
        options = _options(hint)
        options = [each for each in options if kind in _kinds(each)] or options
        if any(key == entry.name for each in options for entry in dataclasses.fields(each)):
            found.append(section)
    found = [section for section in found if section in data] or found
    names = " or ".join(f"'{section}.{key}'" for section in found)
    return f" Did you mean {names}?" if 0 < len(found) <= 3 else ""


def _of_another_kind(key: str, options: Sequence[type]) -> str:
    """Return advice if options of another kind have this key; otherwise an empty text."""
    having = [each for each in options if any(key == f.name for f in dataclasses.fields(each))]
    kinds = sorted(kind for each in having for kind in _kinds(each))
    return f" Only kind: {' or '.join(kinds)} has it." if 0 < len(kinds) <= 3 else ""


def _check_what_there_is(partial: Any, values: dict[str, Any]) -> None:
    """Run `__post_init__` on the readable values, with defaults for unreadable ones.

    Args:
        partial: an instance of the dataclass, which gets the values.
    """
    for entry in dataclasses.fields(partial):
        value = values.get(entry.name, _UNREADABLE)
        value = value.value if isinstance(value, _Part) else value
        value = _default(entry) if value is _UNREADABLE else value
        if value is not _UNREADABLE:
            object.__setattr__(partial, entry.name, value)
    partial.__post_init__()


def _default(entry: dataclasses.Field[Any]) -> Any:
    if entry.default_factory is not dataclasses.MISSING:
        return entry.default_factory()
    return _UNREADABLE if entry.default is dataclasses.MISSING else entry.default


@cache
def _adapter(expected: Any) -> pydantic.TypeAdapter[Any]:
    return pydantic.TypeAdapter(expected)


def _in_words(found: Sequence[Any], path: str) -> list[str]:
    """Return pydantic's errors as text: one line per location, one for a whole union."""
    if len(found) > 1 and all(problem["input"] == found[0]["input"] for problem in found):
        either = " or ".join(_must(problem).removeprefix("must be ") for problem in found)
        return [f"{path} must be {either}, not {short(found[0]['input'])}"]
    lines = []
    for problem in found:
        place = "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in problem["loc"])
        lines.append(f"{path}{place} {_must(problem)}, not {short(problem['input'])}")
    return lines


def _must(problem: Any) -> str:
    if problem["type"] in ("enum", "literal_error"):
        return f"must be {problem['ctx']['expected']}"
    return _WORDS.get(problem["type"], str(problem["msg"]))
