"""Experiment trackers: trackers=[trackers.py:TensorBoard], or Mlflow, or Wandb.

Each class makes the tracker of one run: an object with the methods config, log and finish.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any


class TensorBoard:
    """A point has the time of the run, also in virtual time, on the horizontal axis *Relative*."""

    def __init__(self, name: str, folder: Path | None) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str((folder or Path("runs") / name) / "tensorboard"))
        self.began_s = time.time()

    def config(self, values: dict[str, Any]) -> None:
        self.writer.add_text("config", f"```\n{json.dumps(values, indent=2)}\n```")

    def log(self, values: dict[str, float], step: int) -> None:
        for key, value in values.items():
            self.writer.add_scalar(key, value, step, self.began_s + values.get("time_s", 0.0))

    def finish(self, status: str) -> None:
        self.writer.close()


class Mlflow:
    """The server or database is that of the variable MLFLOW_TRACKING_URI."""

    def __init__(self, name: str, folder: Path | None) -> None:
        import mlflow

        self.mlflow = mlflow
        mlflow.start_run(run_name=name)

    def config(self, values: dict[str, Any]) -> None:
        self.mlflow.log_params({key: str(value)[:500] for key, value in values.items()})

    def log(self, values: dict[str, float], step: int) -> None:
        self.mlflow.log_metrics(values, step, synchronous=False)

    def finish(self, status: str) -> None:
        self.mlflow.end_run("FINISHED" if status == "complete" else "FAILED")


class Wandb:
    """The key of the account comes from its login or the variable WANDB_API_KEY."""

    def __init__(self, name: str, folder: Path | None) -> None:
        import wandb

        self.run = wandb.init(project="outpace", name=name, dir=folder, reinit="create_new")

    def config(self, values: dict[str, Any]) -> None:
        self.run.config.update(values)

    def log(self, values: dict[str, float], step: int) -> None:
        self.run.log(values, step)

    def finish(self, status: str) -> None:
        self.run.finish(exit_code=0 if status == "complete" else 1)
