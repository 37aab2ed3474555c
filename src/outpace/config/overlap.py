"""What cannot be combined with `overlap: backward`.

The push to a server leaves while backward still makes the parts of other servers. So nothing may
need the whole gradient before it is pushed. What only the script knows, such as clipping, is found
while it runs (`engine.scripts.watched`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outpace.config.experiment import Experiment


def why_not_in_parts(experiment: Experiment, load: bool) -> Iterator[str]:
    """Yield why the workers of an experiment with servers cannot push during backward.

    Args:
        load: look into the user's files that it names, too.
    """
    if experiment.non_finite != "stop":
        yield (
            "overlap: non_finite: refuse pushes a gradient only if all of it is finite, and parts "
            "leave before that is known: set non_finite: stop"
        )
    if experiment.skip is not None:
        yield "overlap: with skip a worker chooses whether to push when it has the whole gradient"
    yield from dict.fromkeys(_of_policies(experiment, load))


def _of_policies(experiment: Experiment, load: bool) -> Iterator[str]:
    for policy in experiment.policies.traits(load):
        if policy.cut_off is not None:
            yield (
                f"overlap: with {policy.kind} a worker that is cut off pushes nothing, and parts "
                "of its gradient could have left"
            )
        elif policy.worker_program(experiment.workers, None) is not None:
            yield f"overlap: {policy.kind} has workers of its own, which push whole gradients"
