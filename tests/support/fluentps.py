"""The strategies of a user's file with which the papers' experiments compare FluentPS."""

from __future__ import annotations

from typing import Any, Final

from tests.support.paths import ROOT

FOLDER: Final = ROOT / "benchmarks" / "papers" / "fluentps"


def ssptable(staleness: int, **options: Any) -> dict[str, Any]:
    """Return the configuration of SSPtable."""
    arguments = {"staleness": staleness, **options}
    target = f"{FOLDER / 'ssptable.py'}:SspTable"
    return {"kind": "python", "target": target, "arguments": arguments}


def behind_barrier(kind: str = "bsp", **options: Any) -> dict[str, Any]:
    """Return the configuration of a strategy behind a global barrier."""
    arguments = {"kind": kind, **options}
    target = f"{FOLDER / 'global_barrier.py'}:behind_barrier"
    return {"kind": "python", "target": target, "arguments": arguments}
