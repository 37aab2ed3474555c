"""Asks a running run for another number of servers, of workers, or of both."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from outpace.errors import ConfigError, RunError
from outpace.record.checkpoints.lock import holder
from outpace.record.requests import Answer, Asked, ScaleRequest
from outpace.record.status import read_status

_LOOK_EVERY_S: Final = 0.1


def scaled(
    run: Path, *, servers: int | None = None, workers: int | None = None, limit_s: float
) -> str:
    """Give a run another number of servers or workers; return what was done, in words.

    Args:
        run: its folder.
        limit_s: seconds to wait until it is done.

    Raises:
        ConfigError: if no real run is running in the folder, or it refuses, or no number is given.
        RunError: if it ended meanwhile, or it was not done in time.
    """
    if servers is None and workers is None:
        raise ConfigError("outpace scale: give --workers N, --servers N, or both")
    _require_real_run(run)
    given = {"servers": servers, "workers": workers}
    what = " and of ".join(name for name, number in given.items() if number is not None)
    asked, end = Asked(run, ScaleRequest(servers, workers)), time.monotonic() + limit_s
    try:
        while (answer := asked.answer()) is None:
            if holder(run) is None:
                raise RunError(f"{run}: the run ended before the number of {what} had changed")
            if time.monotonic() >= end:
                raise RunError(_not_yet(run, limit_s, is_taken=asked.is_taken))
            time.sleep(_LOOK_EVERY_S)
    finally:
        asked.close()
    return _done(run, answer)


def _not_yet(run: Path, limit_s: float, *, is_taken: bool) -> str:
    if not is_taken:
        return (
            f"{run}: the command of the run did not take up the request within {limit_s:g} s, and "
            f"the request is withdrawn; outpace status {run} says whether the run is running"
        )
    return (
        f"{run}: it was not done within {limit_s:g} s. The run still does it: it takes a "
        "checkpoint, and all processes begin again from it. "
        f"outpace status {run} shows the processes, and log.jsonl says when it is done, or why not"
    )


def _done(run: Path, answer: Answer) -> str:
    if not answer.is_done:
        raise ConfigError(f"{run}: {answer.text}")
    return f"{run}: {answer.text}"


def _require_real_run(run: Path) -> None:
    if not run.is_dir():
        raise ConfigError(f"{run} is not the folder of a run: there is no such folder")
    try:
        is_held = holder(run) is not None
    except OSError as error:
        raise ConfigError(f"cannot read {error.filename}: {error.strerror}") from error
    if not is_held:
        raise ConfigError(f"{run}: no run is running there; outpace status {run} says how it ended")
    status = read_status(run)
    if status is not None and status.command == "simulate":
        raise ConfigError(f"{run}: it is a simulation, and only real runs can be scaled")
