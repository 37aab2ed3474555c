"""Asks a running run to change its number of servers or workers."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Final

from outpace.errors import ConfigError, RunError
from outpace.record.checkpoints.lock import holder
from outpace.record.folder import LOG
from outpace.record.requests import ScaleRequest, ask
from outpace.record.status import read_status
from outpace.support.regular_files import inside

_LOOK_EVERY_S: Final = 0.1


def scaled(
    run: Path, *, servers: int | None = None, workers: int | None = None, limit_s: float
) -> str:
    """Change the number of servers or workers of a run; return a text about the result.

    Args:
        run: folder of the run.
        limit_s: seconds to wait until it is done.

    Raises:
        ConfigError: if no real run is running in the folder, or it refuses, or no number is given.
        RunError: if the run has ended, or if the change was not done in time.
    """
    if servers is None and workers is None:
        raise ConfigError("outpace scale: give --workers N, --servers N, or both")
    try:
        is_held = holder(run) is not None
        status = read_status(run)
        if not is_held or (status is not None and status.command == "simulate"):
            raise ConfigError(
                f"{run}: no real run is running there, and only such a run can be scaled; outpace "
                f"status {run} says how it is"
            )
        with open(run / LOG, encoding="utf-8", opener=inside) as log:
            log.seek(0, 2)
            request = ask(run, ScaleRequest(servers, workers))
            try:
                answer = _answer(run, request, log, limit_s)
            finally:
                request.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot read {error.filename}: {error.strerror}") from error
    if not answer["is_done"]:
        raise ConfigError(f"{run}: {answer['text']}")
    return f"{run}: {answer['text']}"


def _answer(run: Path, request: Path, log: Any, limit_s: float) -> dict[str, Any]:
    """Wait for the answer in the log of the run. Raises RunError."""
    end = time.monotonic() + limit_s
    while True:
        for line in log:
            fields: dict[str, Any] = json.loads(line)["fields"]
            if fields.get("asker") == request.name:
                return fields
        if holder(run) is None:
            raise RunError(f"{run}: the run ended before its numbers had changed")
        if time.monotonic() >= end:
            what = "the run still does it, and log.jsonl says when it is done, or why not"
            if request.exists():
                what = "the run did not take it up, and it is withdrawn"
            raise RunError(f"{run}: the request was not done within {limit_s:g} s: {what}")
        time.sleep(_LOOK_EVERY_S)
