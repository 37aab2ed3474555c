"""The differences between the digests of two sources, as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tests.digests.running import ERROR, Digests


@dataclass(frozen=True)
class Compared:
    """Lines to print, and whether a configuration differs or cannot be run any more."""

    lines: list[str]
    differ: bool


def differences(before: Mapping[str, Digests], now: Mapping[str, Digests], called: str) -> Compared:
    """Return the differences, configuration by configuration.

    Args:
        before, now: the digests of the same configurations.
        called: the name of the source before.
    """
    lines: list[str] = []
    same = differing = failing = unknown = 0
    for name, digests in now.items():
        old = before[name]
        if ERROR in digests:
            failing += 1
            as_before = f"; nor on {called}: {old[ERROR]}" if ERROR in old else ""
            lines.append(f"CANNOT BE RUN  {name}: {digests[ERROR]}{as_before}")
        elif ERROR in old:
            unknown += 1
            lines.append(f"not compared   {name}: cannot be run on {called}: {old[ERROR]}")
        elif changed := _changed(old, digests):
            differing += 1
            lines.append(f"DIFFERS        {name}: {changed}")
        else:
            same += 1
    gone = sorted({part for name in now for part in before[name].keys() - now[name].keys()})
    gone = [part for part in gone if part != ERROR and not any(part in now[name] for name in now)]
    lines += [f"GONE           {part}" for part in gone]
    lines.append(
        f"{same} the same, {differing} differ, {failing} cannot be run, "
        f"{unknown} cannot be run on {called}"
        + (f"; {len(gone)} parts are in no configuration any more" if gone else "")
    )
    return Compared(lines, bool(differing or failing))


def _changed(before: Digests, now: Digests) -> str:
    """Return the parts whose digests differ; empty if all common parts have the same digests."""
    both = [part for part in before if part in now]
    changed = [part for part in both if before[part] != now[part]]
    words = [part for part in changed if not part.startswith("trace.")]
    columns = [part.removeprefix("trace.") for part in changed if part.startswith("trace.")]
    if columns:
        whole = len(columns) == sum(part.startswith("trace.") for part in both)
        words.append("all columns of the trace" if whole else f"trace ({', '.join(columns)})")
    return ", ".join(words)
