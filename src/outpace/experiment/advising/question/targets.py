"""The target of advice: given, or that of the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outpace.errors import ConfigError
from outpace.experiment.advising.question.curves import Goal
from outpace.support.checks import positive


def goal_of(accuracy: float | None, loss: float | None, configured: Any = None) -> Goal:
    """Return the target: the given one, else the configured one.

    Raises ConfigError.
    """
    if accuracy is None and loss is None and configured is not None:
        found = _plain_target(configured)
        accuracy, loss = found.get("accuracy"), found.get("loss")
    if (accuracy is None) == (loss is None):
        raise ConfigError(
            "give exactly one target, an accuracy or a loss: --target-accuracy or --target-loss "
            "(in Python target_accuracy or target_loss), or target in the configuration"
        )
    if accuracy is not None and not 0 < accuracy <= 1:
        raise ConfigError(f"the target accuracy must be above 0 and at most 1, not {accuracy!r}")
    if loss is not None and not positive(loss):
        raise ConfigError(f"the target loss must be a positive number, not {loss!r}")
    return Goal(accuracy, loss)


def _plain_target(configured: Any) -> Mapping[str, Any]:
    """Return a configured target as plain data. Raises ConfigError."""
    if not isinstance(configured, Mapping):
        raise ConfigError(f"target: {configured!r} is not a mapping with accuracy or loss")
    for key in ("accuracy", "loss"):
        value = configured.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float | None):
            raise ConfigError(f"target.{key} must be a number, not {value!r}")
    return configured
