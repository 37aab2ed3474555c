"""The strategies, and the experiment of each part of the benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from benchmarks.fidelity.hosts.launcher import Link

Plain: TypeAlias = dict[str, Any]

BSP: Final = "BSP"
SSGD: Final = "SSGD"
_WITHOUT_SERVERS: Final = ("ssgd", "hpsgd")
QUICK: Final = ("SSP soft", "last-5", SSGD)
FACTORS: Final = (1.0, 0.9, 1.2, 0.85, 1.1, 0.95, 1.0, 0.8)  # of the workers' run times
LINK: Final = Link(rate=40e6, delay_s=0.0005)
SLOW_LINK: Final = Link(rate=15e6, delay_s=0.003)
TASK: Final = Path(__file__).with_name("task.py")


def strategies(workers: int) -> dict[str, Plain]:
    """Return the keys of each strategy, by name; the first, BSP, is used for calibration."""
    quorum = max(1, round(0.75 * workers))
    ssp = {"kind": "ssp", "staleness": 2}
    return {
        BSP: {"sync": {"kind": "bsp"}},
        "SSP lazy": {"sync": {**ssp, "buffer": "lazy"}},
        "SSP soft": {"sync": {**ssp, "buffer": "soft"}},
        "PSSP": {"sync": {"kind": "pssp", "staleness": 2, "block_probability": 0.3}},
        "ASP": {"sync": {"kind": "asp"}},
        "drop stragglers": {"sync": {"kind": "drop-stragglers", "quorum": quorum}},
        "partial push and pull": {
            "sync": {"kind": "partial-push", "quorum": quorum, "timeout_s": 0.01},
            "pull": {"quorum_percent": 50},
        },
        "cut-off": {"sync": {"kind": "cutoff"}},
        "cut-off last-5": {"sync": {"kind": "cutoff", "model": "last-5"}},
        SSGD: {"sync": {"kind": "ssgd"}, "servers": 1},
        "HPSGD": {"sync": {"kind": "hpsgd"}, "servers": 1},
    }


@dataclass(frozen=True)
class Places:
    """Hosts, and where the roles run.

    Attributes:
        links: the connection of each host.
        of_roles: the number of the host of each role.
    """

    links: Sequence[Link]
    of_roles: Mapping[str, int]


@dataclass(frozen=True)
class Setup:
    """One size of one part.

    Attributes:
        part: `a` to `c`.
        base: keys of the experiment without strategy and seed.
        calibration: keys that differ in the run for calibration.
        loss: the training loss whose time is compared.
        known_law: True if the real run draws its computation times from the law in `base`, so that
            a prediction with the same seed draws the same times.
        hosts: where the roles run, in the part with several hosts.
    """

    part: str
    name: str
    base: Mapping[str, Any]
    calibration: Mapping[str, Any]
    loss: float
    known_law: bool
    hosts: Places | None = None

    def experiment(self, strategy: str, seed: int, **changes: Any) -> Plain:
        """Return the experiment of a strategy as plain data."""
        of_strategy = strategies(self.base["workers"])[strategy]
        return {**self.base, **of_strategy, "seed": seed, **changes}


def has_servers(experiment: Plain) -> bool:
    return experiment["sync"]["kind"] not in _WITHOUT_SERVERS


def sleeping(mb: float, quick: bool) -> Setup:
    """Part (a): computation is a sleep that is drawn from a law; 8 workers, 2 servers."""
    large = mb >= 10
    iterations = 4 if quick else 40 if large else 80
    mean_s = 0.05 if quick else 1.0 if large else 0.15
    base = _sleeps(mb, iterations, mean_s, 3 if quick else 8)
    return Setup("a", f"{mb:g} MB", base, _calibration(quick), 1.5, known_law=True)


def computing(quick: bool) -> Setup:
    """Part (b): the time of gradients is their real computation; 2 workers, 1 server.

    A step takes tens of milliseconds. With steps of 4 ms the result depended on how workers, server
    and coordinator share two cores.
    """
    base = {
        "task": {"kind": "python", "target": f"{TASK}:make_network"},
        "batch_size": 8 if quick else 128,
        "optimizer": {"kind": "adam", "lr": 0.001},
        "workers": 2,
        "servers": 1,
        "evaluate": {"every_s": 1.0, "samples": 100},
        "stop": {"iterations": 4 if quick else 100},
        "shared_memory": False,  # the network is predicted
    }
    return Setup("b", "real compute", base, _calibration(quick), 0.5, known_law=False)


def hosts(quick: bool) -> Setup:
    """Part (c): every role has a network namespace; 4 workers, 2 servers, one of them slow."""
    iterations, mean_s, workers = (4, 0.05, 2) if quick else (80, 0.2, 4)
    base = _sleeps(1.0, iterations, mean_s, workers)
    places = _one_each(base, [LINK, SLOW_LINK])
    return Setup("c", "hosts", base, _calibration(quick), 1.5, known_law=True, hosts=places)


def _one_each(base: Plain, of_servers: Sequence[Link]) -> Places:
    """Return places with a host for each role. Servers' hosts stay empty without servers."""
    servers = [f"server-{number}" for number in range(base["servers"])]
    workers = [f"worker-{number}" for number in range(base["workers"])]
    of_roles = {role: host for host, role in enumerate([*servers, *workers])}
    return Places([*of_servers, *[LINK] * len(workers)], of_roles)


def chosen(named: Sequence[str], setup: Setup, *, quick: bool = False) -> list[str]:
    """Return BSP and the strategies whose names contain one of `named`; all if it is empty,
    and a few with `quick`.

    Raises:
        ValueError: if a name fits none.
    """
    named = named or (QUICK if quick else [""])
    every = list(strategies(setup.base["workers"]))
    unknown = [name for name in named if not any(name.lower() in each.lower() for each in every)]
    if unknown:
        raise ValueError(f"no strategy {', '.join(unknown)}; known: {', '.join(every)}")
    found = [each for each in every if any(name.lower() in each.lower() for name in named)]
    return found if BSP in found else [BSP, *found]


def _calibration(quick: bool) -> Plain:
    """Return the keys that differ in the run for calibration, which needs 20 iterations."""
    return {"stop": {"iterations": 25}} if quick else {}


def _sleeps(mb: float, iterations: int, mean_s: float, workers: int) -> Plain:
    """Return the keys of a training whose loss falls from 2.3 to about 1 in these iterations.

    A law of run times says how long workers sleep; the workers are the same for all seeds.
    """
    law = {"kind": "lognormal", "mean_s": mean_s, "cv": 0.3, "factors": list(FACTORS[:workers])}
    return {
        "task": {"kind": "python", "target": f"{TASK}:make_task", "arguments": {"mb": mb}},
        "batch_size": 16,
        "optimizer": {"lr": 6.0 / iterations},
        "workers": workers,
        "servers": 2,
        "compute": law,
        "evaluate": {"every_s": iterations * mean_s / 15, "samples": 200},
        "stop": {"iterations": iterations},
        "shared_memory": False,  # the network is predicted
    }
