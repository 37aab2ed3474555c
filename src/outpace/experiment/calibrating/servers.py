"""Laws of the times that servers need, from the requests of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from outpace.cluster.calibration import Floats, Ints
from outpace.cluster.calibration.factors import mean_and_error, server_factors
from outpace.cluster.calibration.independent import service_law
from outpace.cluster.calibration.requests import Requests
from outpace.cluster.calibration.service import ServiceTimes, service_times
from outpace.cluster.laws import Constant, ServiceLaw, ServiceSize
from outpace.config.keys import SERVICE_TIMES
from outpace.experiment.calibrating.runs import RunData
from outpace.sync import POLICIES, Apply

_SAME_SIZE: Final = 1.01  # of the largest server, over the smallest


def fit_service(
    runs: Sequence[RunData], warm_up: int, notes: list[str]
) -> tuple[dict[str, ServiceLaw], ServiceTimes | None]:
    """Return the laws of the service times by their keys, and the times that they were fitted to.

    Args:
        runs: With servers.
        warm_up: Number of first iterations that are left out.
        notes: Gets a sentence if pushes and updates cannot be told apart, or if servers differ.
    """
    told_apart = [run for run in runs if _is_on_advance(run)]  # pushes and updates
    runs = told_apart or runs
    requests = [_later(run, warm_up) for run in runs]
    parts = [part for part in requests if part is not None]
    if not parts:
        return _copied(runs[0]), None
    found = ServiceTimes.joined(
        [
            service_times(part, is_push, on_advance=_is_on_advance(run))
            for run, (part, is_push) in zip(runs, parts, strict=True)
        ]
    )
    factors = _factors(found) if _are_alike_in_size(parts[0][0]) else {}
    laws: dict[str, ServiceLaw] = {}
    if len(found.push):
        laws["push_time"] = _law(found.push, found.push_server, factors.get("push_time"))
    if len(found.answer):
        laws["pull_time"] = _law(found.answer, found.answer_server, factors.get("pull_time"))
        laws["judge_time"] = Constant(mean_s=found.judge_s)
    if found.update_s:
        laws["update_time"] = Constant(
            mean_s=found.update_s, factors=factors.get("update_time", ())
        )
    elif not told_apart:
        notes.append(
            "the servers made an update of every push, so push_time includes it: for strategies "
            "that make one update per iteration calibrate on such a run, for instance of bsp"
        )
    if factors:
        notes.append(
            f"servers differ in {' and '.join(factors)}, where each has a factor of its own: the "
            "file describes these servers one by one"
        )
    return laws, found


def _are_alike_in_size(requests: Requests) -> bool:
    """False if servers have different numbers of bytes, which `service_size` is for."""
    of_servers = [requests.sent_bytes[requests.server == m] for m in np.unique(requests.server)]
    sizes = [float(np.median(each)) for each in of_servers]
    return max(sizes, default=0.0) <= _SAME_SIZE * min(sizes, default=0.0)


def _factors(times: ServiceTimes) -> dict[str, tuple[float, ...]]:
    """Return the factors of the servers by the keys in which they clearly differ."""
    levels = {
        "push_time": mean_and_error(times.pushes),
        "pull_time": mean_and_error(times.answers),
        "update_time": (times.updates[:, 0], times.updates[:, 1]),
    }
    found = {key: server_factors(*each) for key, each in levels.items()}
    return {key: factors for key, factors in found.items() if factors}


def _law(seconds: Floats, server: Ints, factors: tuple[float, ...] | None) -> ServiceLaw:
    """Return the law of service times; `server` is the place of the server of each."""
    if not factors:
        return service_law(seconds)
    return replace(service_law(seconds / np.array(factors)[server]), factors=factors)


def service_size_of(run: RunData) -> ServiceSize | None:
    """Return the size of the run's servers, and their speeds by the answers to the probe.

    To give an answer to the socket, the process only hands it on, as with pushes and pulls. To make
    an answer, it writes every byte once, as an update does.
    """
    measured = run.measured
    if not run.push_bytes or measured is None or _is_narrow(run):
        return None  # a push that is narrowed has not the bytes that an update writes
    return ServiceSize(
        size_bytes=run.push_bytes,
        message_s_per_byte=measured.give_s_per_byte,
        update_s_per_byte=measured.make_s_per_byte,
    )


def _later(run: RunData, warm_up: int) -> tuple[Requests, np.ndarray[Any, Any]] | None:
    """Return the requests after the warm-up, and which of them are pushes."""
    if run.measured is None or run.measured.requests is None:
        return None
    later = run.measured.requests.iteration >= warm_up
    return run.measured.requests.where(later), run.measured.is_push[later]


def _copied(run: RunData) -> dict[str, ServiceLaw]:
    """Return the service laws in the configuration of a simulated run."""
    from outpace.config.reading import experiment_from

    experiment = experiment_from(run.config, str(run.folder))
    laws = {key: getattr(experiment, key) for key in SERVICE_TIMES}
    return {key: law for key, law in laws.items() if law is not None}


def _is_narrow(run: RunData) -> bool:
    """True if gradients and parameters travelled in bfloat16."""
    sync = run.config.get("sync")
    first = sync[0] if isinstance(sync, list) and sync else sync
    return isinstance(first, dict) and first.get("wire") == "bf16"


def _is_on_advance(run: RunData) -> bool:
    """True if the run's servers made one update of an iteration, when all had pushed it."""
    sync = run.config.get("sync")
    if not isinstance(sync, dict) or sync.get("kind") not in POLICIES:
        return False
    return sync.get("apply") == Apply.ON_ADVANCE.value and sync.get("quorum") is None
