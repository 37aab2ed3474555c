"""Useful gradients while processes are killed, compared with the same run without kills."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.failures.running import run
from benchmarks.rows import Row, row

EVERY_S = 15.0
# strategies that replace a worker alone; with the others all begin again, and there is no goal
GOAL = 0.95
_WORKERS, _SERVERS = 4, 2
_SYNCS: dict[str, dict[str, Any]] = {
    "SSP": {"sync": {"kind": "ssp", "staleness": 3}, "servers": _SERVERS},
    "HPSGD": {"sync": {"kind": "hpsgd"}},
}


def goodput(
    out: Path,
    say: Callable[[str], object],
    pairs: int,
    length_s: float,
    roles: Sequence[str] = ("worker", "server"),
    sync: str = "SSP",
) -> list[Row]:
    """Return the shares of gradients that were applied once while processes were killed.

    sync: the strategy.

    Steps sleep until 50 ms have passed, so that other load of the machine has little effect. The
    two runs of a pair follow each other; the run with kills is alternately the first and the
    second.
    """
    rows = []
    for role in roles:
        count = _WORKERS if role == "worker" else _SERVERS
        every_s = min(EVERY_S, length_s / 2)
        times = [every_s / 2 + n * every_s for n in range(int(length_s / every_s))]
        kills = [(at, f"{role}-{n % count}") for n, at in enumerate(times)]
        shares = []
        for pair in range(pairs):
            found = {}
            for killed in (True, False) if pair % 2 else (False, True):
                folder = out / f"{role}-{pair}-{'killed' if killed else 'undisturbed'}"
                say(f"{folder.name}: {length_s:.0f} s")
                result = run(_config(length_s, sync), folder, kills if killed else ())
                if killed and result.summary["restarts"] != len(kills):
                    raise RuntimeError(f"{folder}: not every kill was a restart")
                summary = result.summary
                found[killed] = summary["gradients_applied"] - summary["updates_lost"]
            shares.append(found[True] / found[False])
        name = f"goodput with one kill of a {role} each {every_s:.0f} s, {sync}, 4 workers"
        goal = GOAL if role == "worker" and "servers" in _SYNCS[sync] else None
        rows.append(row(name, shares, unit="%", goal=goal, at_least=True))
    return rows


def _config(length_s: float, sync: str) -> dict[str, Any]:
    return {
        "task": {"kind": "digits-mlp"},
        "workers": _WORKERS,
        "compute": {"kind": "constant", "mean_s": 0.05},
        "stop": {"virtual_time_s": length_s},
        "checkpoint": {"every_s": 1},
        "probe": False,
        **_SYNCS[sync],
    }
