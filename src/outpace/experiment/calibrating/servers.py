"""Estimates laws of the times that servers need from the requests of runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from outpace.cluster.calibration.requests import Requests
from outpace.cluster.calibration.service import ServiceTimes, service_laws, service_times
from outpace.cluster.laws import ServiceLaw, ServiceSize
from outpace.experiment.calibrating.runs import Run
from outpace.sync import POLICIES, Apply

_SAME_SIZE: Final = 1.01  # ratio of the size of the largest server to the smallest


def fit_service(runs: Sequence[Run], warm_up: int, notes: list[str]) -> dict[str, ServiceLaw]:
    """Return the laws of the service times by their keys.

    Args:
        runs: Runs with servers.
        warm_up: Number of first iterations that are left out.
        notes: Receives a sentence if pushes and updates cannot be separated, or if servers differ.
    """
    told_apart = [run for run in runs if _is_on_advance(run)]  # pushes and updates
    parts, alike = [], True
    for run in told_apart or runs:
        assert run.measured is not None
        later = run.measured.requests.iteration >= warm_up
        requests, is_push = run.measured.requests.where(later), run.measured.is_push[later]
        parts.append(service_times(requests, is_push, on_advance=bool(told_apart)))
        alike = _are_alike_in_size(requests)
    laws = service_laws(ServiceTimes.joined(parts), with_factors=alike)
    if not told_apart:
        notes.append(
            "the servers made an update of every push, so push_time includes it: for strategies "
            "that make one update per iteration calibrate on such a run, for instance of bsp"
        )
    if differ := [key for key, law in laws.items() if law.factors]:
        notes.append(
            f"servers differ in {' and '.join(differ)}, where each has a separate factor: the "
            "file describes these servers one by one"
        )
    return laws


def service_size_of(run: Run) -> ServiceSize | None:
    """Return the size of the run's servers, and their speeds from the answers to the probe.

    To give an answer to the socket, the process only passes it on, as with pushes and pulls. To
    make an answer, it writes every byte once, as an update does. Returns None if gradients were
    sent in bfloat16, because then a push has fewer bytes than an update writes.
    """
    sync = run.config.get("sync")
    first = sync[0] if isinstance(sync, list) and sync else sync
    is_narrow = isinstance(first, dict) and first.get("wire") == "bf16"
    if not run.push_bytes or run.measured is None or is_narrow:
        return None
    return ServiceSize(
        size_bytes=run.push_bytes,
        message_s_per_byte=run.measured.give_s_per_byte,
        update_s_per_byte=run.measured.make_s_per_byte,
    )


def _are_alike_in_size(requests: Requests) -> bool:
    """False if servers have different sizes; service times are valid for one `service_size`."""
    of_servers = [requests.sent_bytes[requests.server == m] for m in np.unique(requests.server)]
    sizes = [float(np.median(each)) for each in of_servers]
    return max(sizes, default=0.0) <= _SAME_SIZE * min(sizes, default=0.0)


def _is_on_advance(run: Run) -> bool:
    """True if the run's servers made one update per iteration, after all pushes."""
    sync = run.config.get("sync")
    if not isinstance(sync, dict) or sync.get("kind") not in POLICIES:
        return False
    return sync.get("apply") == Apply.ON_ADVANCE.value and sync.get("quorum") is None
