"""The objective of a sweep: the time to the target, or without one the result at the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from outpace.config.experiment import Experiment
from outpace.errors import ConfigError
from outpace.experiment.trials import Point
from outpace.support.targets import Target
from outpace.tasks import Timing

Quantity: TypeAlias = Literal["accuracy", "train_loss"]


@dataclass(frozen=True, slots=True)
class Objective:
    """The value by which candidates are compared.

    Attributes:
        kind: `time-to-target`: virtual time until an evaluation reaches the target, in s;
            `accuracy` or `train_loss`: at the end of the run; `time`: virtual time of the run, in
            s, for the task `timing`.
        target: of `time-to-target`, the accuracy or the training loss.
        quantity: what the target is about, or what is compared; None for `time`.
    """

    kind: Literal["time-to-target", "accuracy", "train_loss", "time"]
    quantity: Quantity | None
    target: float | None = None

    @property
    def maximized(self) -> bool:
        return self.kind == "accuracy"

    @property
    def words(self) -> str:
        """The objective in words, such as `virtual time to 95 % accuracy`."""
        if self.kind == "time-to-target":
            assert self.target is not None
            if self.quantity == "accuracy":
                return f"virtual time to {100 * self.target:.4g} % accuracy (s)"
            return f"virtual time to a training loss of {self.target:.4g} (s)"
        words = {"accuracy": "accuracy at the end", "train_loss": "training loss at the end"}
        return words.get(self.kind, "virtual time of the run (s)")

    def value_of(self, point: Point) -> float | None:
        """Return the accuracy or the loss of an evaluation."""
        return None if self.quantity is None else getattr(point, self.quantity)

    def reached(self, point: Point) -> bool:
        """True if the evaluation has reached the target."""
        if self.target is None:
            return False
        return self._goal.is_reached(point.accuracy, point.train_loss)

    @property
    def _goal(self) -> Target:
        if self.quantity == "accuracy":
            return Target(accuracy=self.target)
        return Target(loss=self.target)

    def reported(self, value: float) -> float:
        """Return what a study is told of an evaluation: smaller is better, unless `maximized`.

        It is the loss, the accuracy, or for a time to an accuracy the share of wrong answers.
        """
        wrong = self.quantity == "accuracy" and not self.maximized
        return 1 - value if wrong else value

    def better(self, one: float, other: float) -> bool:
        """True if the first of two values is better."""
        return one > other if self.maximized else one < other

    def plain(self) -> dict[str, Any]:
        return {"kind": self.kind, "quantity": self.quantity, "target": self.target}


def objective_of(experiment: Experiment, has_accuracy: bool | None) -> Objective:
    """Return the objective that the configuration of a sweep asks for.

    Args:
        has_accuracy: of the task; None: not known, for a script.

    Raises:
        ConfigError: if a script has no target, or the task `timing` has one or no iterations.
    """
    goal = experiment.goal
    accuracy, loss = (None, None) if goal is None else (goal.accuracy, goal.loss)
    if isinstance(experiment.task, Timing):
        if loss is not None:
            raise ConfigError("target.loss: the task timing has no loss; leave the target out")
        if experiment.stop.iterations is None:
            raise ConfigError(
                "stop.iterations is missing: with the task timing the virtual time of the run is "
                "compared, and a run that ends at a given time always takes as long"
            )
        return Objective("time", None)
    if loss is not None:
        return Objective("time-to-target", "train_loss", loss)
    if accuracy is not None:
        return Objective("time-to-target", "accuracy", accuracy)
    if experiment.has_script:
        raise ConfigError(
            "what the script logs is not known before it runs: say what to look for with "
            "--target-accuracy or --target-loss"
        )
    return (
        Objective("accuracy", "accuracy") if has_accuracy else Objective("train_loss", "train_loss")
    )
