"""Run configurations, and reduce their results to digests."""

from __future__ import annotations

import hashlib
import logging
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import torch
from tests.digests.configurations import HALF_S, Configuration

import outpace

# Digests by part: `parameters`, `summary.KEY`, and `trace.COLUMN` and `metrics.COLUMN`, so that a
# new column changes no digest, and the name of a removed column is reported.
Digests = dict[str, str]
ERROR: Final = "error"  # the only part of a configuration that cannot be run: the reason
# Counters that the trace does not have.
SUMMARY: Final = (
    "bytes_sent",
    "gradients_applied",
    "gradients_dropped",
    "iterations",
    "messages",
    "restarts",
    "resumed_from",
    "updates_lost",
    "virtual_time_s",
)


def digests_of(configuration: Configuration) -> Digests:
    """Return the digests of a run, or the reason why it cannot be run."""
    try:
        with tempfile.TemporaryDirectory(prefix="digests-") as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = _result(configuration, Path(folder) / "run")
            return _digests(result, timeless=configuration.how == "real")
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        return {ERROR: f"{type(error).__name__}: {first}"}


def trace_digest(digests: Mapping[str, str], columns: list[str]) -> str:
    """Return one digest of these columns of a trace; names are part of it."""
    text = "\n".join(f"{name} {digests[f'trace.{name}']}" for name in columns)
    return _short(text.encode())


def _result(configuration: Configuration, folder: Path) -> outpace.Result:
    config = dict(configuration.config)
    if configuration.how == "real":
        return outpace.run(config)
    if configuration.how == "simulate":
        return outpace.simulate(config)

    def control(run: outpace.Control) -> None:
        def fail() -> None:
            raise outpace.RunError("the power is off")

        run.at(HALF_S, fail)

    try:
        outpace.simulate(config, folder, control=control)
    except outpace.RunError as error:
        if "the power is off" not in str(error):
            raise
        return outpace.simulate(resume=folder, **(configuration.changes or {}))
    raise AssertionError(f"the run ended before {HALF_S} s")


def _digests(result: outpace.Result, *, timeless: bool) -> Digests:
    found = {"parameters": _parameters(result.parameters)}
    if timeless:
        return found
    found |= _columns("trace", result.trace) | _columns("metrics", result.metrics)
    summary = result.summary
    return found | {
        f"summary.{key}": _short(repr(summary[key]).encode()) for key in SUMMARY if key in summary
    }


def _parameters(parameters: Mapping[str, torch.Tensor]) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(parameters.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def _columns(of: str, table: pa.Table) -> Digests:
    """Return a digest of the values of each column, whatever types they are stored in."""
    return {
        f"{of}.{name}": _short(repr(table[name].to_pylist()).encode())
        for name in table.column_names
    }


def _short(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def run_all(
    configurations: Mapping[str, Configuration], tell: Callable[[str, Digests], Any]
) -> None:
    """Run the configurations one after the other, on one thread, and tell the digests of each."""
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    for name, configuration in configurations.items():
        tell(name, digests_of(configuration))
