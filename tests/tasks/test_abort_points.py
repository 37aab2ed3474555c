"""Exceptions at the abort points of a model reach the caller that asked for them, not the model."""

from __future__ import annotations

import pytest
import torch

from outpace.errors import RunError
from outpace.tasks import gradient_of
from outpace.tasks.abort_points import AbortPoints


class Careful(torch.nn.Module):
    """A model that continues when one of its parts raises."""

    def __init__(self) -> None:
        super().__init__()
        self.part, self.norm = torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            return self.norm(self.part(x))
        except Exception:
            return x


def test_a_lost_connection_that_is_found_inside_the_model_is_no_error_of_the_task():
    """This once ended a run with cut-offs whose server was killed, with an error about the task."""
    model, asked = Careful(), []

    class Workload:
        def gradient(self, *_):
            return None, [model(torch.ones(4, 2))]

    def must_stop() -> bool:
        asked.append(True)
        if len(asked) == 2:
            raise RunError("worker-0 lost the connection to server-1")
        return False

    points = AbortPoints(model)
    with (
        pytest.raises(RunError, match=r"^worker-0 lost the connection to server-1$"),
        points.stopping_at(must_stop),
    ):
        gradient_of(Workload(), [], 0, 7)
    assert model.norm.num_batches_tracked == 0
    model(torch.ones(4, 2))
    assert len(asked) == 2  # no caller asks outside


class Counting(torch.nn.Module):
    """A model that assigns new tensors to its buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.part = torch.nn.Linear(2, 2)
        self.register_buffer("mean", torch.zeros(2))
        self.register_buffer("seen", torch.zeros(0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean, self.seen = self.mean + x.mean(0), torch.cat([self.seen, x[:, 0]])
        return self.part(x)


def test_buffers_that_a_stopped_computation_has_replaced_are_as_before():
    model = Counting()
    points, before = AbortPoints(model), model.state_dict()
    with points.stopping_at(lambda: True) as computation:
        model(torch.ones(4, 2))
    assert computation.stopped
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
