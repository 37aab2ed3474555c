"""Laws and fits in words and tables, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from outpace.cluster.calibration import Floats
from outpace.cluster.calibration.all_reduces import AllReduceFit
from outpace.cluster.calibration.network import NetworkFit
from outpace.cluster.calibration.run_times import Law, RunTimeFit
from outpace.cluster.laws import (
    Constant,
    Errors,
    Exponential,
    ServiceLaw,
    ServiceSize,
    ShiftedExponential,
)
from outpace.cluster.network import AllReduceLaw, NetworkLaw
from outpace.cluster.regimes import Regimes
from outpace.report.words import SPACE, duration, plural

_FIRST: Final = ("from", "compute", "network", "all_reduce")


def in_words(words: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return what was found by key of the cluster file, in the order in which it is shown."""
    keys = [*(key for key in _FIRST if key in words), *(key for key in words if key not in _FIRST)]
    return [(key, words[key].replace(SPACE, " ")) for key in keys]


def compute_words(fit: RunTimeFit, overhead_s: float = 0.0) -> str:
    """Return the law of the run times in words.

    Args:
        overhead_s: The part of a mean run time that is sending and reading.
    """
    own = f"; of which sending and reading {duration(overhead_s)}" if overhead_s > 0 else ""
    if fit.law is None:
        return (
            f"trace: the recorded run times are replayed, since the best law ({fit.tried.kind}) "
            f"does not describe them: {'; '.join(fit.reasons)}{own}"
        )
    # the error is that of the key mean_s, which is not the whole mean of a shifted exponential
    of = duration(fit.law.mean_s) if isinstance(fit.law, ShiftedExponential) else "mean"
    return f"{law_words(fit.law)}{_error_words(fit.errors, of)}{own}"


def _error_words(errors: Errors | None, of: str) -> str:
    """Return the standard errors of a law in words; empty if they are not known.

    Args:
        of: What the error of `mean_s` is of.
    """
    if errors is None:
        return ""
    of_factors = f", of the factors {100 * max(errors.factors):.2g} %" if errors.factors else ""
    return f"; standard error of the {of} {100 * errors.mean_s:.2g} %{of_factors}"


def law_words(law: Law | ServiceLaw, nodes: str = "workers") -> str:
    """Return a law and its parameters in words; nodes: whose factors it has."""
    parts = [str(law.kind)]
    if isinstance(law, ShiftedExponential):
        parts.append(f"{duration(law.shift_s)} plus {duration(law.mean_s)} on average")
    elif isinstance(law, Constant | Exponential):
        parts.append(f"mean {duration(law.mean_s)}")
    else:
        parts.append(f"mean {duration(law.mean_s)}, cv {law.cv:.3g}")
    if isinstance(law, Regimes):
        fast, slow = law.regimes
        parts.append(
            f"steps {slow.factor:.3g} times as long in slow periods, which last "
            f"{duration(slow.dwell_s)} on average, with {duration(fast.dwell_s)} between them"
        )
    if law.factors:
        low, high = min(law.factors), max(law.factors)
        parts.append(f"factors of the {nodes} {low:.3g} to {high:.3g}")
    return ", ".join(parts)


def error_words(error: float, of: str, testable: bool, remedy: str) -> str:
    """Return the median error of a fit in words.

    Args:
        of: What the error is of.
        testable: False if the fit has as many parameters as there are times.
        remedy: What makes it testable.
    """
    if testable:
        return f"median error{of} {100 * error:.1f} %"
    return f"fit not testable: it has as many parameters as times ({remedy})"


def network_words(law: NetworkLaw, fit: NetworkFit) -> str:
    """Return the links in words."""
    parts = [
        f"latency {duration(law.latency_s)}",
        f"bandwidth {rate_words(law.bandwidth_bytes_per_s)}",
    ]
    if law.nodes:
        parts.append(f"{', '.join(law.nodes)} slower")
    if law.machines:
        parts.append(f"{plural(len(law.machines), 'machine')} with several processes")
    if law.pairs:
        parts.append(f"{len(law.pairs)} pairs of their own")
    if law.delays:
        parts.append("late messages")
    remedy = "record a run on an idle network, whose probe has messages of more sizes"
    error = error_words(fit.error, " of a message by itself", fit.testable, remedy)
    parts.append(f"{law.contention}; {error}")
    return ", ".join(parts)


def all_reduce_words(law: AllReduceLaw, fit: AllReduceFit | None) -> str:
    """Return the cost of a round of an all-reduce in words; fit: None if it was not measured."""
    took = f"a round takes {duration(law.latency_s or 0.0)}"
    if law.bandwidth_bytes_per_s is not None:
        took += f" and its bytes at {rate_words(law.bandwidth_bytes_per_s)}"
    if fit is None:
        return f"{took}; not measured, by the protocol of Gloo"
    parts = [took]
    if fit.slower > 1:
        parts.append(f"{fit.slower:.3g} times as long as in the probe")
    remedy = "record a further run without servers, of a model with another size"
    parts.append(error_words(fit.error, " of the line", fit.testable, remedy))
    return ", ".join(parts)


def size_words(size: ServiceSize) -> str:
    """Return the size of a server in words, and how service times change with it."""
    message, update = (
        duration(1e6 * each) for each in (size.message_s_per_byte, size.update_s_per_byte)
    )
    more = f"for each MB more {message} per message and {update} per update"
    return f"{size.size_bytes / 1e6:.4g} MB a server; {more}"


def rate_words(rate: float | None) -> str:
    """Return a bandwidth in words; None: infinite."""
    return "infinite" if rate is None else f"{rate / 1e6:.4g} MB/s"


def compute_rows(fit: RunTimeFit, recorded: Floats) -> list[list[str]]:
    """Return the table of the goodness of fit: titles, then a row per worker and place.

    If the recorded times are replayed, it is the table of the best law, which was rejected.

    Args:
        recorded: Run times of the iterations that all workers finished, in s, shape (T, N).
    """
    goodness = fit.goodness
    fitted = "rejected law s" if fit.law is None else "fitted s"
    rows = [["run times", "recorded s", fitted, "error %", "Kolmogorov"]]
    means = zip(recorded.mean(axis=0), goodness.drawn.mean(axis=0), strict=True)
    for worker, (one, other) in enumerate(means):
        distance = f"{goodness.of_worker[worker]:.3f}"
        rows.append([f"worker {worker}", *compared(one, other), distance])
    rows.append(
        ["all", *compared(recorded.mean(), goodness.drawn.mean()), f"{goodness.distance:.3f}"]
    )
    orders = zip(goodness.recorded_order, goodness.fitted_order, strict=True)
    for place, (one, other) in enumerate(orders):
        rows.append([f"place {place + 1} of {recorded.shape[1]}", *compared(one, other), ""])
    return rows


def all_reduce_rows(names: Sequence[str], fit: AllReduceFit | None) -> list[list[str]]:
    """Return the table of the all-reduces, a row per run without servers; empty without any."""
    if fit is None:
        return []
    rows = [["all-reduces", "recorded s", "fitted s", "error %", "bytes"]]
    for name, (size, *times, _) in zip(names, fit.training, strict=True):
        times = compared(*times, testable=fit.training_testable)
        rows.append([name, *times, f"{size:.0f}"])
    return rows


def compared(recorded: float, fitted: float, *, testable: bool = True) -> list[str]:
    """Return cells with a recorded value, a fitted one, and the error in percent.

    Args:
        testable: False if the fit meets the recorded value whatever it is.
    """
    error = f"{100 * (fitted / recorded - 1):+.2f}" if testable else "not testable"
    return [f"{recorded:.5g}", f"{fitted:.5g}", error]
