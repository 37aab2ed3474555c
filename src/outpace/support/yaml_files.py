"""Reads and writes YAML 1.2, and merges overrides and variants into it.

Under YAML 1.1, `1e7` and `1.25e8` would be strings, `4_000` a number and `no` false.
In a merge, a mapping with a `kind` replaces another mapping as a whole; mappings without a kind are
merged key by key.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode
from ruamel.yaml.resolver import VersionedResolver

from outpace.errors import ConfigError
from outpace.support.regular_files import Opener, named, read_text

# can be written without quotes
_WORD: Final = re.compile(r"(?!(?:true|false|null|yes|no)$)[A-Za-z_/.][\w.:/+-]*")
_EXPANSION: Final = 1_000_000  # characters that aliases may add to a text
_NODE: Final = 10  # characters that a value counts for in addition to its own


class _Resolver(VersionedResolver):
    """Reads `4_000` as text, as YAML 1.2 does and ruamel.yaml does not."""

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        if kind is ScalarNode and implicit[0] and "_" in value:
            return self.DEFAULT_SCALAR_TAG
        return super().resolve(kind, value, implicit)


def read_yaml(path: Path, opener: Opener = named) -> dict[str, Any]:
    """Return the mapping in a file. Raises ConfigError with the line if it cannot be read."""
    try:
        text = read_text(path, opener)
    except FileNotFoundError:
        raise ConfigError(f"there is no file {path}") from None
    except IsADirectoryError:
        raise ConfigError(f"{path} is a folder, not a YAML file") from None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    data = parse_yaml(text, str(path))
    if not isinstance(data, dict):
        raise ConfigError(f"{path} must hold a mapping of keys, not {_describe(data)}")
    return data


def parse_yaml(text: str, source: str) -> Any:
    """Return plain data from YAML text. Raises ConfigError with the line."""
    try:
        yaml = YAML(typ="safe", pure=True)
        yaml.Resolver = _Resolver
        root = yaml.compose(text)
        if root is None:
            return None
        _require_bounded(root, len(text), source)
        return yaml.constructor.construct_document(root)
    except RecursionError:
        raise ConfigError(f"{source}: the YAML is nested too deeply") from None
    except (YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        reason = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise ConfigError(f"{source}{place}: not readable as YAML: {reason}") from error


def _require_bounded(root: Node, written: int, source: str) -> None:
    """Raise ConfigError if aliases make the data endless, or far larger than the text.

    In copies of the data each alias becomes a copy of its anchor. So a few lines in which each list
    repeats the previous list ten times would fill the memory.
    """
    sizes: dict[int, float] = {}  # by id; infinite while the node is being measured

    def size_of(node: Node) -> float:
        if id(node) not in sizes:
            sizes[id(node)] = math.inf
            is_mapping = isinstance(node, MappingNode)
            inner = [part for pair in node.value for part in pair] if is_mapping else node.value
            own = len(inner) if isinstance(node, ScalarNode) else sum(map(size_of, inner))
            sizes[id(node)] = _NODE + own
        return sizes[id(node)]

    if size_of(root) > _NODE * written + _EXPANSION:
        raise ConfigError(
            f"{source}: with every alias (*name) replaced by its value, {written:,} characters "
            "would become endless, or far too many: write out what is needed"
        )


def write_yaml(data: Any) -> str:
    """Return plain data as YAML text."""
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = None
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.width = 100
    text = io.StringIO()
    yaml.dump(data, text)
    return text.getvalue()


def in_one_line(value: Any) -> str:
    """Return plain data as YAML in one line."""
    match value:
        case Mapping():
            return f"{{{', '.join(f'{key}: {in_one_line(each)}' for key, each in value.items())}}}"
        case list() | tuple():
            return f"[{', '.join(map(in_one_line, value))}]"
        case str() if _WORD.fullmatch(value):
            return value
        case float() if math.isfinite(value):
            return f"{value:.15g}"
    return json.dumps(value, ensure_ascii=False)


def merged(base: Any, over: Any) -> Any:
    """Return `base` merged with `over` by the rule of this module. Neither is changed."""
    if not isinstance(base, Mapping) or not isinstance(over, Mapping) or "kind" in over:
        return over
    result = dict(base)
    for key, value in over.items():
        result[key] = merged(base[key], value) if key in base else value
    return result


def with_overrides(data: dict[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """Return the data with `key=value` overrides. Keys are dotted paths, values are YAML.

    An override of `x.kind` first removes all other keys of the mapping x; then the other overrides
    of x are set, in any order of the overrides.

    Raises:
        ConfigError: if an override does not have this form, or if its path leads through a value
            that is not a mapping.
    """
    return with_values(data, [_pair(override) for override in overrides])


def with_values(
    data: Mapping[str, Any], values: Iterable[tuple[Sequence[str], Any]]
) -> dict[str, Any]:
    """Return the data with each value at its path, as `with_overrides` does. Raises ConfigError."""
    pairs = list(values)
    pairs.sort(key=lambda pair: pair[0][-1] != "kind")  # a stable sort that puts kinds first
    result: dict[str, Any] = _copied(data)
    for path, value in pairs:
        mapping: Any = result
        *parents, last = path
        for place, step in enumerate(parents):
            inner = mapping.get(step)
            if inner is None:
                inner = mapping[step] = {}
            if not isinstance(inner, dict):
                raise ConfigError(
                    f"override {'.'.join(path)}: {'.'.join(path[: place + 1])} is "
                    f"{_describe(inner)}, not a mapping"
                )
            mapping = inner
        if last == "kind":
            mapping.clear()
        mapping[last] = value
    return result


def _pair(override: str) -> tuple[list[str], Any]:
    key, separator, value = override.partition("=")
    path = key.strip().split(".")
    if not separator or not all(path):
        raise ConfigError(f"override {override!r} must have the form key=value, as in workers=8")
    return path, parse_yaml(value, f"override {key}")


def _copied(value: Any) -> Any:
    """Copy plain data; unlike `copy.deepcopy`, give each YAML alias a separate copy."""
    if isinstance(value, dict):
        return {key: _copied(entry) for key, entry in value.items()}
    return [_copied(entry) for entry in value] if isinstance(value, list) else value


def _describe(value: Any) -> str:
    return "empty" if value is None else f"{value!r}"
