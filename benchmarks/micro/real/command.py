"""Time and processor time from a command to the training of its run, over `import torch`."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from benchmarks.rows import Row, ratio, times_note

from outpace.record.folder import LOG

# Runs a command; prints when it began, how long it took, and its processor time. On Linux it
# includes processes that end after the command, since they become children of this process.
_MEASURE = """
import ctypes, json, os, resource, subprocess, sys, time

PR_SET_CHILD_SUBREAPER = 36
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
begun, clock = time.time(), time.monotonic()
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
took_s = time.monotonic() - clock
try:
    while True:
        os.wait()
except ChildProcessError:
    pass
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([begun, took_s, used.ru_utime + used.ru_stime]))
"""


class _Measured(NamedTuple):
    begun: float  # seconds since the epoch
    took_s: float
    processor_s: float


def from_command(repetitions: int, workers: int, servers: int) -> list[Row]:
    """Return the ratios of a run with one iteration to `import torch`, both measured in turn."""
    training, whole, imports = [], [], []
    with tempfile.TemporaryDirectory(prefix="outpace-start-") as name:
        folder = Path(name)
        config = folder / "config.json"
        config.write_text(json.dumps(_configuration(workers, servers)), encoding="utf-8")
        for number in range(repetitions):
            imports.append(_measured("-c", "import torch"))
            out = folder / str(number)
            whole.append(_measured("-m", "outpace", "run", str(config), "--out", str(out), "-q"))
            training.append(_training_at(out) - whole[-1].begun)
    what = f"{workers} workers, {servers} server{'s' if servers > 1 else ''}"
    return [
        ratio(
            f"start of {what}: from the command to the training / import torch",
            training,
            [each.took_s for each in imports],
            goal=2.0,
            note=times_note,
        ),
        ratio(
            f"run of one iteration, {what}: processor time of all / import torch",
            [each.processor_s for each in whole],
            [each.processor_s for each in imports],
            goal=2.5,
            note=times_note,
        ),
    ]


def _configuration(workers: int, servers: int) -> dict[str, object]:
    return {
        "task": {"kind": "digits-cnn"},
        "workers": workers,
        "servers": servers,
        "sync": {"kind": "bsp"},
        "stop": {"iterations": 1},
    }


def _measured(*arguments: str) -> _Measured:
    command = [sys.executable, "-c", _MEASURE, sys.executable, *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return _Measured(*json.loads(done.stdout))


def _training_at(folder: Path) -> float:
    """Return when the training began, in seconds since the epoch."""
    lines = map(json.loads, (folder / LOG).read_text(encoding="utf-8").splitlines())
    (time,) = (line["time"] for line in lines if line["event"] == "training")
    return datetime.fromisoformat(time).timestamp()
