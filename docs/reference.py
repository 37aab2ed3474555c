"""Write the tables of docs/configuration.md from the dataclasses of a configuration.

The table `commands` is made from the help of the commands.

    python -m docs.reference [--check]

A table stands between `<!-- reference: NAME -->` and `<!-- end -->`; NAME is a key of `TABLES`.
Keys, types and defaults come from the fields, meanings from the docstrings. With --check
nothing is written, and the exit code is 1 if the page is not up to date.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Final

import typer

from outpace.cli.base import app
from outpace.cluster import faults, laws, matrix, network, observed, regimes
from outpace.cluster.delays import Delay
from outpace.config import executors, goals, launchers
from outpace.config.experiment import Experiment
from outpace.config.goals import Checkpoint
from outpace.optim import UpdaterKind
from outpace.optim.schedules import Schedule
from outpace.predict.rules.settings import CutOffSettings
from outpace.support.targets import Target
from outpace.sync.assignment import SyncChange
from outpace.sync.conditions import Conditions
from outpace.sync.programs.partial_pull import PartialPull
from outpace.sync.programs.skipping import SkippedPull, SkippedPush
from outpace.sync.python import PythonStrategy
from outpace.sync.strategies import Peers, ServerPolicy
from outpace.tasks import TaskKind

PAGE: Final = Path(__file__).with_name("configuration.md")
_TABLE: Final = re.compile(r"(<!-- reference: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)
_ENTRY: Final = re.compile(r" {4}(\w+(?:, \w+)*): (.*)")
_WORDS: Final = {int: "integer", float: "number", bool: "boolean", str: "text", dict: "mapping"}

# The dataclasses of each table, by the path of their keys; for a union, all its kinds.
TABLES: Final[Mapping[str, Mapping[str, Any]]] = {
    "experiment": {"": Experiment},
    "goals": {"stop.": goals.Stop, "evaluate.": goals.Evaluate, "target.": Target},
    "strategies with servers": {"": ServerPolicy | PythonStrategy},
    "cut-offs": {"": CutOffSettings},
    "changes": {
        "sync_changes[].": SyncChange,
        "conditions[].": Conditions,
        "pull.": PartialPull,
        "skip.push.": SkippedPush,
        "skip.pull.": SkippedPull,
    },
    "strategies without servers": {"": Peers},
    "task": {"": TaskKind},
    "optimizer": {"": UpdaterKind},
    "schedule": {"": Schedule},
    "compute": {"": observed.ComputeLaw},
    "parts of laws": {
        "slow[].": laws.Slow,
        "errors.": laws.Errors,
        "regimes[].": regimes.Regime,
        "service_size.": laws.ServiceSize,
    },
    "network": {
        "": network.NetworkLaw,
        "pairs[].": network.PairLaw,
        "matrix.": matrix.Matrix,
        "delays[].": Delay,
        "all_reduce.": network.AllReduceLaw,
    },
    "faults": {
        "": faults.Faults,
        "workers., servers.": faults.RandomFaults,
        "schedule[].": faults.Fault,
        "recovery.": faults.Recovery,
    },
    "executor": {"": executors.Executor},
    "launcher": {
        "": launchers.LauncherKind,
        "resources.worker., resources.server.": launchers.RoleResources,
        "elastic.": launchers.Elastic,
    },
    "checkpoint": {"": Checkpoint},
}
# Pages and sections about keys of the whole configuration.
LINKS: Final[Mapping[str, str]] = {
    "task": "#task",
    "sync": "#strategies-with-servers",
    **dict.fromkeys(("stop", "evaluate", "target"), "#stop-evaluate-target"),
    **dict.fromkeys(
        ("sync_changes", "conditions", "pull", "skip"), "#changes-conditions-partial-pull-skipping"
    ),
    **{key: f"#{key}" for key in ("compute", "network", "optimizer", "faults", "executor")},
    "trackers": "#trackers",
    "overlap": "#pushes-during-backward",
    "launcher": "#launcher",
    "checkpoint": "failures.md#checkpoints",
    "on_server_loss": "failures.md#a-server-of-a-real-run-dies",
    "on_worker_loss": "failures.md#two-recoveries",
    "probe": "real.md#times-of-messages",
    "shared_memory": "real.md#shared-memory",
}
# Pages about commands.
PAGES: Final[Mapping[str, str]] = {
    **{name: f"{name}.md" for name in ("advise", "calibrate", "explain", "runtimes", "sweep")},
    "run": "real.md",
    "export": "real.md#watching-a-run",
    "scale": "real.md#another-number-of-workers-and-servers",
    **dict.fromkeys(("serve", "worker"), "real.md#started-by-torchrun-slurm-or-kubernetes"),
    "status": "failures.md#watching-a-run",
}


@dataclasses.dataclass(frozen=True)
class Key:
    """A key of one dataclass: its type and default in words, and what it means."""

    name: str
    type: str
    default: str
    meaning: str


def main() -> None:
    """Write the page, or check it."""
    before = PAGE.read_text(encoding="utf-8")
    after = with_tables(before)
    if "--check" in sys.argv:
        sys.exit(after != before and "docs/configuration.md is stale: run python -m docs.reference")
    PAGE.write_text(after, encoding="utf-8")


def with_tables(page: str) -> str:
    """Return the page with the present tables."""

    def replaced(found: re.Match[str]) -> str:
        rows = commands() if found[2] == "commands" else table(TABLES[found[2]])
        return f"{found[1]}{rows}{found[3]}"

    return _TABLE.sub(replaced, page)


def table(parts: Mapping[str, Any]) -> str:
    """Return the tables of some dataclasses: of kinds, if there are several, and of keys."""
    kinds = [each for union in parts.values() for each in members(union) if kind_of(each)]
    lines: list[str] = []
    if len(kinds) > 1:
        lines += ["| kind | keys and defaults | |", "|---|---|---|"]
        lines += [f"| `{kind_of(each)}` | {_listed(each)} | {about(each)} |" for each in kinds]
        lines.append("")
    lines += ["| key | type and default | meaning |", "|---|---|---|"]
    for path, union in parts.items():
        lines += _rows(path, members(union))
    return "\n".join(lines) + "\n"


def commands() -> str:
    """Return the table of the commands, by the first line of their help."""
    group = typer.main.get_command(app)
    lines = ["| `outpace` | what it does |", "|---|---|"]
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        linked = f"[`{name}`]({PAGES[name]})" if name in PAGES else f"`{name}`"
        lines.append(f"| {linked} | {command.get_short_help_str(limit=200).rstrip('.:')} |")
    return "\n".join(lines) + "\n"


def _listed(option: type) -> str:
    """Return the keys of a kind with their defaults."""
    keys = keys_of(option)
    return ", ".join(f"`{key.name}` {key.default.removeprefix('none')}".strip() for key in keys)


def _rows(path: str, options: Sequence[type]) -> Iterator[str]:
    """Yield the rows of the keys; keys of several kinds that mean the same have one."""
    kinds: dict[tuple[str, str, str], list[str]] = {}
    defaults: dict[tuple[str, str, str], set[str]] = {}
    for option in options:
        for key in keys_of(option):
            row = key.name, key.type, key.meaning
            kinds.setdefault(row, []).append(f"`{kind_of(option)}`")
            defaults.setdefault(row, set()).add(key.default or "required")
    alike: dict[tuple[str, str], list[str]] = {}  # names by what the other columns say
    for name, words, meaning in kinds:
        usual = defaults[name, words, meaning]
        said = words
        if len(usual) == 1:
            (default,) = usual
            said = f"{words}, {default if default == 'required' else f'default {default}'}"
        several = sum(other == name for other, *_ in kinds) > 1
        of = f"{', '.join(kinds[name, words, meaning])}: " if several else ""
        alike.setdefault((said, of + meaning), []).append(name)
    for (words, meaning), names in alike.items():
        links = LINKS if Experiment in options else {}
        linked = ", ".join(
            f"[`{name}`]({links[name]})" if name in links else f"`{each}{name}`"
            for name in names
            for each in path.split(", ")
        )
        yield f"| {linked} | {words} | {meaning} |"


def keys_of(option: type) -> list[Key]:
    """Return the keys of a dataclass, but for its kind."""
    hints, meanings = typing.get_type_hints(option), meanings_of(option)
    own = {entry.name for entry in dataclasses.fields(option)}
    if "cut_off" in vars(option):  # they have a table of their own
        own -= {entry.name for entry in dataclasses.fields(CutOffSettings)}
    return [
        Key(entry.name, in_words(hints[entry.name]), default_of(entry), meanings[entry.name])
        for entry in dataclasses.fields(option)
        if entry.name in own and not (entry.name == "kind" and kind_of(option))
    ]


def meanings_of(option: type) -> dict[str, str]:
    """Return what each field means, by the docstrings of the class and its bases."""
    found: dict[str, str] = {}
    hints = typing.get_type_hints(option)
    for name, hint in hints.items():
        if isinstance(hint, type) and issubclass(hint, Enum):
            found[name] = _about_values(hint)
    for each in reversed(option.__mro__):
        names: list[str] = []
        for line in (inspect.cleandoc(vars(each).get("__doc__") or "")).split("\n"):
            if entry := _ENTRY.fullmatch(line):
                names = entry[1].split(", ")
                found |= dict.fromkeys(names, escaped(entry[2]))
            elif names and line.startswith(" " * 8):
                found |= {name: f"{found[name]} {escaped(line.strip())}" for name in names}
            elif not line.startswith(" "):
                names = []
    return {
        name: re.sub(r"(^|[.;] )None:", lambda at: f"{at[1] and '; '}none:", text.rstrip("."))
        for name, text in found.items()
    }


def about(option: type) -> str:
    """Return the first paragraph of a docstring."""
    first = inspect.cleandoc(option.__doc__ or "").split("\n\n")[0]
    text = re.sub(r"\s*Raises ValueError.*", "", " ".join(first.split()))
    return escaped(text).rstrip(".")


def _about_values(enum: type[Enum]) -> str:
    """Return the docstring of an enumeration, with its values in place of their names."""
    text = escaped(" ".join(inspect.cleandoc(enum.__doc__ or "").split()))
    for each in enum:
        text = re.sub(rf"\b{each.name}\b", f"`{each.value}`", text)
    return text


def escaped(text: str) -> str:
    """Return a text without the characters that end the cell of a table."""
    return text.replace("|", "\\|")


def members(union: Any) -> list[type]:
    """Return the dataclasses in a union."""
    if typing.get_origin(union) in (typing.Annotated, typing.Union, types.UnionType):
        return [each for part in typing.get_args(union) for each in members(part)]
    return [union] if isinstance(union, type) and dataclasses.is_dataclass(union) else []


def kind_of(option: type) -> str:
    """Return the kind of a dataclass, by which a union is told apart; empty if it has none."""
    hint = typing.get_type_hints(option).get("kind")
    values = typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else ()
    return str(values[0]) if len(values) == 1 else ""


def in_words(hint: Any) -> str:
    """Return a type in words."""
    if members(hint) in (members(observed.ComputeLaw), members(laws.ServiceLaw)):
        return "run-time law"
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return either(f"`{each}`" for each in arguments)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return either(f"`{each.value}`" for each in hint)
    if origin in (typing.Union, types.UnionType):
        return either(in_words(each) for each in arguments if each is not types.NoneType)
    if origin is tuple:
        return "list"
    if origin is dict or dataclasses.is_dataclass(hint):
        return "mapping"
    return _WORDS[hint]


def either(parts: Iterator[str]) -> str:
    """Return alternatives, each once."""
    *before, last = dict.fromkeys(parts)
    return f"{', '.join(before)} or {last}" if before else last


def default_of(entry: dataclasses.Field[Any]) -> str:
    """Return the default of a field; empty if it is required."""
    if entry.default is dataclasses.MISSING and entry.default_factory is dataclasses.MISSING:
        return ""
    value = entry.default
    if entry.default_factory is not dataclasses.MISSING:
        value = entry.default_factory()
    if dataclasses.is_dataclass(value):
        kind = getattr(value, "kind", "")
        return f"`{{kind: {kind}}}`" if kind else "none"
    if value is None or value in ((), {}):
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    if isinstance(value, Enum | str):
        return f"`{value.value if isinstance(value, Enum) else value}`"
    return "1/3" if value == 1 / 3 else f"{value:g}" if isinstance(value, float) else f"{value:,}"


if __name__ == "__main__":
    main()
