"""The reference executor: every job when its outcome is needed, in this process."""

from __future__ import annotations

from typing import Any

from outpace.simulation.executors.job import Job, Outcome
from outpace.tasks import Workload


class SerialExecutor:
    beside = False

    def __init__(self, workload: Workload) -> None:
        self._workload = workload

    def expect(self, job: Job) -> None:
        pass

    def result(self, job: Job) -> Outcome:
        return job.compute(self._workload)

    def close(self) -> None:
        pass

    def describe(self) -> dict[str, Any]:
        return {"kind": "serial"}
