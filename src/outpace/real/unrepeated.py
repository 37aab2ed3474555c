"""Counts the iterations that are lost for good when a real run goes back to a checkpoint."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from outpace.engine.resuming import ResumePoint
from outpace.real.net.sparse_log import Log
from outpace.sync.messages import worker_name


class Unrepeated:
    """The iterations after a checkpoint that scripts did not repeat as they were."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lost_since = 0, 0  # a checkpoint, and the iterations after it

    def since(
        self, point: ResumePoint, done: Mapping[int, int], unrepeatable: Collection[int]
    ) -> int:
        """Return the iterations since a checkpoint that scripts will not repeat as they were.

        A script that gives `outpace.attach` nothing to keep begins anew.

        Args:
            done: by worker, the iterations that it has completed.
            unrepeatable: workers whose scripts begin anew.
        """
        scripts = set(unrepeatable).difference(point.checkpoint.index.ended)
        if not scripts:
            return 0
        names = ", ".join(map(worker_name, sorted(scripts)))
        self._log(
            f"the scripts of {names} begin anew, with the parameters of the checkpoint: they give "
            "outpace.attach no objects to keep, and do not use outpace.sampler"
        )
        before = point.totals.iterations
        since = sum(max(0, done.get(each, 0) - before.get(each, 0)) for each in scripts)
        number, earlier = self._lost_since
        self._lost_since = point.number, since + (earlier if number == point.number else 0)
        return self._lost_since[1]
