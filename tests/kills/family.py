"""The strategies under which processes are killed, and the promises of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

WORKERS: Final = 3
TASK: Final = Path(__file__).with_name("ledger_task.py")
SCRIPT: Final = Path(__file__).parents[1] / "support" / "scripts" / "ledger_of_pushes.py"


@dataclass(frozen=True)
class Family:
    """One strategy.

    Attributes:
        sync: its configuration, and further keys that it needs.
        servers: 0 for strategies without servers.
        in_flight: gradients that the death of one worker may lose.
        averages: True if an iteration without a lost gradient uses the mean of the others.
        drops: True if the strategy itself leaves gradients out.
        script: True if a user's script trains, which has the same parameters as the task.
    """

    sync: Mapping[str, Any]
    servers: int = 2
    in_flight: int = 0
    averages: bool = False
    drops: bool = False
    script: bool = False
    beside: Mapping[str, Any] = field(default_factory=dict)

    def config(self, iterations: int, copies: int = 1) -> dict[str, Any]:
        """Return the configuration of a run.

        Args:
            iterations: number of iterations of each worker.
            copies: how often a task has each parameter; with n each server has
                4 · n · workers · iterations bytes of parameters.
        """
        made = {
            "task": {
                "kind": "python",
                "target": f"{TASK}:make_task",
                "arguments": {"samples": WORKERS * iterations, "copies": copies},
            },
            "workers": WORKERS,
            "batch_size": 1,
            "sync": dict(self.sync),
            "deterministic": not self.drops,
            "optimizer": {"kind": "sgd", "lr": 1.0},
            "probe": False,
            "compute": {"kind": "constant", "mean_s": 0.02},
            "stop": {"iterations": iterations},
            "evaluate": {"every_updates": 1_000_000},
            "checkpoint": {"every_s": 0.5},
            **self.beside,
        }
        if self.script:
            arguments = [str(WORKERS * iterations)]
            made["task"] = {"kind": "script", "path": str(SCRIPT), "arguments": arguments}
            for key in ("batch_size", "optimizer", "stop", "evaluate"):
                del made[key]  # the script decides
        return {**made, "servers": self.servers} if self.servers else made

    @property
    def processes(self) -> tuple[str, ...]:
        """The names of the processes of a run, without its coordinator."""
        servers = (f"server-{number}" for number in range(self.servers))
        return (*servers, *(f"worker-{number}" for number in range(WORKERS)))


FAMILIES: Final = {
    "bsp": Family({"kind": "bsp"}, in_flight=1, averages=True),
    "ssp": Family({"kind": "ssp", "staleness": 2}, in_flight=1),
    "asp": Family({"kind": "asp"}, in_flight=1),
    "cutoff": Family({"kind": "cutoff", "model": "mean-5"}, in_flight=1, drops=True),
    "ssgd": Family({"kind": "ssgd"}, servers=0),
    "local-sgd": Family({"kind": "local-sgd", "every": 4}, servers=0),
    "hpsgd": Family({"kind": "hpsgd"}, servers=0),
    "gossip": Family({"kind": "gossip"}, servers=0),
    "script-bsp": Family({"kind": "bsp"}, in_flight=1, averages=True, script=True),
    "script-asp": Family({"kind": "asp"}, in_flight=1, script=True),
    "script-hpsgd": Family({"kind": "hpsgd"}, servers=0, script=True),
}
