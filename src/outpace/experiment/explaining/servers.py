"""Finds the slow servers and links of a simulated run that did not log its messages."""

from __future__ import annotations

from dataclasses import replace

from outpace.errors import OutpaceError
from outpace.experiment.explaining.model import Model, logged
from outpace.report.explaining.explained import NO_REQUESTS, Examined, examined
from outpace.report.explaining.explanation import Kind


def with_servers(found: Examined) -> Examined:
    """Return an explanation with the servers of a simulated run, which has no times of requests.

    The run is simulated again with its run times, and this time its messages are logged. Links are
    then compared by the times of their messages alone.
    """
    explanation = found.explanation
    if found.tables.is_real or NO_REQUESTS not in explanation.notes:
        return found
    try:
        with logged(Model.of(found)) as folder:
            again = examined(folder)
    except OutpaceError as error:
        notes = (*explanation.notes, f"the run cannot be simulated again: {error}")
        return replace(found, explanation=replace(explanation, notes=notes))
    # Of long runs, only the first iterations are simulated again.
    scale = max(1.0, explanation.iterations / again.explanation.iterations)
    others = [
        replace(cause, lost_s=(lost_s := scale * cause.lost_s), share=lost_s / explanation.time_s)
        for cause in again.explanation.causes
        if cause.kind != "worker"
    ]
    causes = [cause for cause in explanation.causes if cause.kind == "worker"] + others
    compared: list[Kind] = [*explanation.compared]
    compared += [kind for kind in again.explanation.compared if kind not in compared]
    whole = replace(
        explanation,
        causes=tuple(sorted(causes, key=lambda cause: -cause.lost_s)),
        compared=tuple(compared),
        notes=tuple(note for note in explanation.notes if note != NO_REQUESTS),
    )
    return replace(found, explanation=whole)
