"""Reads a section of a configuration from plain data, and describes its errors.

pydantic reads the data by the types of the dataclasses' fields; if a field has several types,
`kind` chooses one of them (a discriminated union). One error lists the problems of all sections,
with the nearest known name for each mistyped name.
"""

from __future__ import annotations

import dataclasses
import json
import re
import typing
from collections.abc import Hashable, Mapping
from functools import cache
from pathlib import Path
from reprlib import repr as short
from typing import Any, TypeAlias

import pydantic

from outpace.errors import ConfigError, did_you_mean, nearest
from outpace.support.checks import wrong_values


def read_section(
    expected: Any, data: Any, path: str, source: str, origin: Mapping[str, Path]
) -> Any:
    """Return the data as a value of the type `expected`.

    Args:
        path: path of the section in the configuration.
        source: name of the data in errors.
        origin: the cluster file of each key that comes from one.

    Raises:
        ConfigError: listing the problems of all sections.
    """
    text = ""
    try:
        text = json.dumps(_whole(data))
        return _adapter(expected).validate_json(text, strict=True)
    except pydantic.ValidationError as error:
        problems = _problems(error, _sections(expected, path), path, json.loads(text))
    except (RecursionError, ValueError):
        problems = ["it is nested too deeply, or contains itself"]
    except TypeError as error:
        problems = [f"not plain data: {error}"]
    files = [origin.get(re.split(r"\W", problem, maxsplit=1)[0], source) for problem in problems]
    pairs = zip(files, problems, strict=True)
    raise ConfigError("\n".join(f"{file}: {problem}" for file, problem in pairs))


@cache
def _adapter(expected: Any) -> pydantic.TypeAdapter[Any]:
    # which has the settings, including the settings of its sections
    if dataclasses.is_dataclass(expected):
        return pydantic.TypeAdapter(expected)
    return pydantic.TypeAdapter(expected, config=pydantic.ConfigDict(extra="forbid"))


def _whole(value: Any) -> Any:
    """Convert integral floats to ints, because YAML reads the count 1e6 as a float."""
    if isinstance(value, Mapping):
        return {k: v if k == "arguments" else _whole(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_whole(entry) for entry in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value


# -- errors ----------------------------------------------------------------------------

# keys of a section by kind; "" if the section has no kind
_Kinds: TypeAlias = Mapping[str, list[str]]


@cache
def _sections(expected: Any, path: str) -> dict[str, dict[str, list[str]]]:
    """Return the keys of each section in data of the type `expected`, by path and kind."""
    found: dict[str, dict[str, list[str]]] = {}
    if dataclasses.is_dataclass(expected):
        assert isinstance(expected, type)
        fields = {entry.name: entry for entry in dataclasses.fields(expected)}
        kind = str(fields["kind"].default) if "kind" in fields else ""
        found[path] = {kind: list(fields)}
        hints = typing.get_type_hints(expected)
        inner = [(hints[name], f"{path}.{name}" if path else name) for name in fields]
    else:
        inner = [(each, path) for each in typing.get_args(expected) if isinstance(each, Hashable)]
    for hint, place in inner:
        for where, kinds in _sections(hint, place).items():
            found.setdefault(where, {}).update(kinds)
    return found


def _problems(
    found: pydantic.ValidationError, sections: Mapping[str, _Kinds], path: str, data: Any
) -> list[str]:
    """Return a line for each problem of the data.

    path: path of the data in the configuration.
    """
    lines: dict[str, None] = {}
    wrong: list[tuple[str, Any]] = []
    mistyped = set[tuple[str, str | None]]()
    # A required key that is mistyped is not reported as missing as well.
    errors = found.errors(include_url=False)
    for error in sorted(errors, key=lambda each: each["type"] == "missing"):
        key, kind = _place(error, path, data)
        place = re.sub(r"\[\d+\]", "", key)
        section, _, name = key.rpartition(".")
        match error["type"]:
            case "value_error":
                for problem in str(error["ctx"]["error"]).split("\n"):
                    dot = ": " if problem.startswith("needs") else "."
                    lines[f"{key}{dot}{problem}" if key else problem] = None
            case "unexpected_keyword_argument":
                kinds = sections.get(place.rpartition(".")[0], {})
                keys = kinds.get(kind) or next(iter(kinds.values()), [])
                mistyped.add((section, nearest(name, keys)))
                advice = "" if section else _in_a_section(name, sections, data)
                advice = advice or _of_another_kind(name, kinds) or did_you_mean(name, keys)
                lines[f"{key}: unknown key.{advice}"] = None
            case "missing" if (section, name) in mistyped:
                pass
            case "missing":
                lines[f"{key} is missing"] = None
            case "union_tag_not_found":
                known = ", ".join(sorted(sections[place]))
                lines[f"{key}.kind is missing. Known: {known}."] = None
            case "union_tag_invalid":
                tag = error["ctx"]["tag"]
                advice = did_you_mean(tag, sections[place])
                lines[f"{key}.kind: unknown kind {short(tag)}.{advice}"] = None
            case _:
                wrong.append((key or "the configuration", error))
    return [*lines, *wrong_values(wrong)]


def _place(error: Any, path: str, data: Any) -> tuple[str, str]:
    """Return the key that an error of pydantic is about, and the kind of its section.

    pydantic's location contains the keys of the data and the chosen member of each union.
    """
    kind, steps = "", error["loc"]
    for number, step in enumerate(steps, 1):
        if isinstance(step, int):
            path, data, kind = f"{path}[{step}]", data[step], ""
        elif isinstance(data, Mapping) and data.get("kind") == step and not kind:
            kind = step
        elif number == len(steps) and error["type"] in ("missing", "unexpected_keyword_argument"):
            path = f"{path}.{step}" if path else step
        elif isinstance(data, Mapping) and step in data:
            path, data, kind = f"{path}.{step}" if path else step, data[step], ""
    return path, kind


def _in_a_section(name: str, sections: Mapping[str, _Kinds], data: Any) -> str:
    """Return advice if a section of the configuration, such as `sync`, has a key with this name."""
    found = []
    for section, kinds in sections.items():
        written = data.get(section)
        kind = written.get("kind") if isinstance(written, Mapping) else None
        keys = kinds.get(kind or "") or [key for each in kinds.values() for key in each]
        if section and "." not in section and name in keys:
            found.append(section)
    found = [section for section in found if section in data] or found
    names = " or ".join(f"'{section}.{name}'" for section in found)
    return f" Did you mean {names}?" if 0 < len(found) <= 3 else ""


def _of_another_kind(name: str, kinds: _Kinds) -> str:
    """Return advice if a section of another kind has a key of this name."""
    found = sorted(kind for kind, keys in kinds.items() if kind and name in keys)
    return f" Only kind: {' or '.join(found)} has it." if 0 < len(found) <= 3 else ""
