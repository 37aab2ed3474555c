"""What drives a run: the simulation in virtual time, or real processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from outpace.blocks.block import Block
from outpace.predict.interface import Model
from outpace.record.metrics import Metrics
from outpace.record.totals import Totals


class Engine(Protocol):
    """One run, that can be driven once."""

    @property
    def totals(self) -> Totals: ...

    @property
    def metrics(self) -> Metrics: ...

    def run(self) -> None:
        """Drive it to its end. Raises RunError if it fails.

        `close` must be called afterwards, whatever happened.
        """

    def close(self) -> None:
        """Stop everything and hand the rest of the trace over. Idempotent."""

    def times(self, host_s: float) -> dict[str, Any]:
        """The times in the summary; `host_s`: how long `run` took on the host."""

    def parameters(self) -> Sequence[Block]:
        """The blocks as the shards have them now."""

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The parameters under the model's own names; empty for `timing`."""

    def run_time_model(self) -> Model | None:
        """Of run times, fitted in the course of this run, if there is one."""
