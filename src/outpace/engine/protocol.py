"""The interface of engines, which drive a run: in simulation or with real processes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import torch

from outpace.blocks.block import Block
from outpace.predict.interface import Model
from outpace.record.metrics import Metrics
from outpace.record.totals import Totals


class Engine(Protocol):
    """A run that can be driven once."""

    @property
    def totals(self) -> Totals: ...

    @property
    def places(self) -> int:
        """The number of workers that exist or have existed in this run."""

    @property
    def metrics(self) -> Metrics: ...

    def run(self) -> None:
        """Drive the run to its end. Raises RunError if it fails.

        `close` must be called afterwards, even after an error.
        """

    def close(self) -> None:
        """Stop the run and write the rest of the trace. Idempotent."""

    def times(self, host_s: float) -> dict[str, Any]:
        """Return the times for the summary; host_s: duration of `run` on the host."""

    def nodes(self) -> Mapping[str, str]:
        """Return the node of each server and worker; empty if all of them ran on this machine."""

    def parameters(self) -> Sequence[Block]:
        """Return the current blocks of the shards."""

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the parameters under the model's own names; empty for `timing`."""

    def used_by_script(self) -> Mapping[str, Any] | None:
        """Return the settings of worker 0's script, see `ScriptModel.used`; None if unknown."""

    def files_written(self) -> Mapping[int, Collection[str]]:
        """Return the files that each worker's script has overwritten, if they are known."""

    def run_time_model(self) -> Model | None:
        """Return the run-time model that was fitted in this run, if any."""
