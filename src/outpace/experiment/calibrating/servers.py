"""Laws of the times that servers need, from the requests of runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from outpace.cluster.calibration.independent import service_law
from outpace.cluster.calibration.requests import Requests
from outpace.cluster.calibration.service import ServiceTimes, service_times
from outpace.cluster.laws import Constant, ServiceLaw
from outpace.cluster.service_size import ServiceSize
from outpace.config.keys import SERVICE_TIMES
from outpace.experiment.calibrating.runs import RunData
from outpace.sync import POLICIES, Apply


def fit_service(
    runs: Sequence[RunData], warm_up: int, notes: list[str]
) -> tuple[dict[str, ServiceLaw], ServiceTimes | None]:
    """Return the laws of the service times by their keys, and the times that they were fitted to.

    Args:
        runs: With servers.
        warm_up: Number of first iterations that are left out.
        notes: Gets a sentence if pushes and updates cannot be told apart.
    """
    told_apart = [run for run in runs if _is_on_advance(run)]  # pushes and updates
    runs = told_apart or runs
    requests = [_later(run, warm_up) for run in runs]
    parts = [part for part in requests if part is not None]
    if not parts:
        return _copied(runs[0]), None
    each = [
        service_times(part, is_push, on_advance=_is_on_advance(run))
        for run, (part, is_push) in zip(runs, parts, strict=True)
    ]
    weights = [len(times.push) for times in each]
    found = ServiceTimes(
        np.concatenate([times.push for times in each]),
        float(np.average([times.update_s for times in each], weights=weights)),
        float(np.average([times.judge_s for times in each], weights=weights)),
        np.concatenate([times.answer for times in each]),
    )
    laws: dict[str, ServiceLaw] = {}
    if len(found.push):
        laws["push_time"] = service_law(found.push)
    if len(found.answer):
        laws["pull_time"] = service_law(found.answer)
        laws["judge_time"] = Constant(mean_s=found.judge_s)
    if found.update_s:
        laws["update_time"] = Constant(mean_s=found.update_s)
    elif not told_apart:
        notes.append(
            "the servers made an update of every push, so push_time includes it: for strategies "
            "that make one update per iteration calibrate on such a run, for instance of bsp"
        )
    return laws, found


def service_size_of(run: RunData) -> ServiceSize | None:
    """Return the size of the run's servers, and their speeds by the answers to the probe.

    To give an answer to the socket, the process only hands it on, as with pushes and pulls. To make
    an answer, it writes every byte once, as an update does.
    """
    measured = run.measured
    if not run.push_bytes or measured is None:
        return None
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


def _is_on_advance(run: RunData) -> bool:
    """True if the run's servers made one update of an iteration, when all had pushed it."""
    sync = run.config.get("sync")
    if not isinstance(sync, dict) or sync.get("kind") not in POLICIES:
        return False
    return sync.get("apply") == Apply.ON_ADVANCE.value and sync.get("quorum") is None
