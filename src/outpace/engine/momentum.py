"""Warns of momentum if gradients of the strategy are computed at older parameters.

Measured with digits-cnn, 8 workers, SGD with learning rate 0.1 and momentum 0.9, 100 iterations:
`bsp` reaches 98 %, `asp` 51 % and `hpsgd` 10 %; docs/when-not.md has more. Adam's betas did no harm
there, since its steps do not grow with the momentum; so there is no warning about them.
"""

from __future__ import annotations

from collections.abc import Collection

from outpace.config.experiment import Experiment


def stale_momentum(experiment: Experiment, momenta: Collection[object]) -> list[str]:
    """Return a warning if stale gradients are used with momentum; else an empty text.

    Args:
        momenta: `momentum` of the optimizer, or of each group of a script's optimizer.
    """
    largest = max((m for m in momenta if isinstance(m, int | float)), default=0.0)
    if largest <= 0 or not experiment.has_stale_gradients:
        return []
    return [
        f"the optimizer has momentum {largest:g}, and the strategy uses gradients of older "
        "parameters, so training may stall or diverge where bsp and ssgd train: set momentum to 0, "
        "or take a smaller learning rate"
    ]
