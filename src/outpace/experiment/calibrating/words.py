"""Laws in words, for the terminal and the page."""

from __future__ import annotations

from outpace.cluster.calibration.all_reduces import AllReduceFit
from outpace.cluster.calibration.network import NetworkFit
from outpace.cluster.calibration.run_times import RunTimeFit
from outpace.cluster.laws import ServiceLaw, ServiceSize, ShiftedExponential
from outpace.cluster.network import AllReduceLaw, LinkLaw, NetworkLaw
from outpace.report.words import SPACE, duration, number, plural


def compute_words(fit: RunTimeFit, overhead_s: float = 0.0) -> str:
    """Return the law of the run times in words.

    Args:
        overhead_s: The part of a mean run time that is sending and reading.
    """
    own = f"; of which sending and reading {_time(overhead_s)}" if overhead_s > 0 else ""
    if fit.law is None:
        return (
            f"trace: the recorded run times are replayed, since the best law ({fit.tried.kind}) "
            f"does not describe them: {'; '.join(fit.reasons)}{own}"
        )
    if fit.errors is None:
        return law_words(fit.law) + own
    factors = f", of factors {100 * max(fit.errors.factors):.2g} %" if fit.errors.factors else ""
    error = f"; standard error of mean_s {100 * fit.errors.mean_s:.2g} %{factors}"
    return f"{law_words(fit.law)}{error}{own}"


def law_words(law: ServiceLaw, nodes: str = "workers") -> str:
    """Return a law and its parameters in words; nodes: whose factors it has."""
    parts = [str(law.kind), f"mean {_time(law.mean_s)}"]
    if isinstance(law, ShiftedExponential):
        parts[1] = f"{_time(law.shift_s)} plus {_time(law.mean_s)} on average"
    elif cv := getattr(law, "cv", 0.0):
        parts.append(f"cv {cv:.3g}")
    if law.factors:
        parts.append(f"factors of the {nodes} {min(law.factors):.3g} to {max(law.factors):.3g}")
    return ", ".join(parts)


def network_words(law: NetworkLaw, fit: NetworkFit | None) -> str:
    """Return the links in words; fit: None if they are taken to be those of all-reduces."""
    parts = [_link_words(law)]
    if law.nodes:
        parts.append(f"{', '.join(law.nodes)} slower")
    if law.machines:
        parts.append(f"{plural(len(law.machines), 'machine')} with several processes")
    if fit is None:
        return f"{', '.join(parts)}: those of the all-reduces"
    return ", ".join([*parts, f"{law.contention}; {_error_words(fit)}"])


def all_reduce_words(law: AllReduceLaw, fit: AllReduceFit | None) -> str:
    """Return the cost of a round of an all-reduce in words; fit: None if it was not measured."""
    words = f"a round: {_link_words(law)}"
    if fit is None:
        return f"{words}; not measured, by the protocol of Gloo"
    return f"{words}, {fit.slower:.3g} times what it takes alone; {_error_words(fit)}"


def size_words(size: ServiceSize) -> str:
    """Return the size of a server in words, and how service times change with it."""
    message, update = (
        _time(1e6 * each) for each in (size.message_s_per_byte, size.update_s_per_byte)
    )
    more = f"for each MB more {message} per message and {update} per update"
    return f"{size.size_bytes / 1e6:.4g} MB a server; {more}"


def _link_words(law: NetworkLaw | LinkLaw) -> str:
    rate = law.bandwidth_bytes_per_s
    words = "infinite" if rate is None else f"{number(rate / 1e6, 4)} MB/s"
    return f"latency {_time(law.latency_s or 0.0)}, bandwidth {words}"


def _error_words(fit: NetworkFit | AllReduceFit) -> str:
    """Return the median error of a line, or that it has as many parameters as there are times."""
    if fit.testable:
        return f"median error of the line {100 * fit.error:.1f} %"
    return "fit not testable: it has as many parameters as times (record messages of more sizes)"


def _time(seconds: float) -> str:
    return duration(seconds).replace(SPACE, " ")
