"""The tasks that a configuration can name under `task:`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from outpace.errors import ConfigError
from outpace.support.checks import KINDS
from outpace.support.paths import FILE, TARGET
from outpace.support.place import ELSEWHERE
from outpace.support.repeatable import left_as_they_were
from outpace.support.user_code import load_target, require_target
from outpace.tasks.data.digits import DigitsCnn, DigitsMlp
from outpace.tasks.data.fashion import FashionMnistCnn
from outpace.tasks.given import GivenTask, of_user
from outpace.tasks.models.char_gpt import CharGpt
from outpace.tasks.quadratic import Quadratic
from outpace.tasks.supervised import SupervisedWorkload
from outpace.tasks.task import Workload
from outpace.tasks.timing import Timing


@dataclass(frozen=True, slots=True)
class PythonTask:
    """The `outpace.Task` that a user's function returns.

    Attributes:
        target: `file.py:function` or `module:function`.
        arguments: passed to the function by name.
    """

    target: str = field(metadata=TARGET)
    arguments: dict[str, Any] = field(default_factory=dict)
    kind: Literal["python"] = "python"

    def __post_init__(self) -> None:
        require_target(self.target)

    def workload(self, workers: int, batch_size: int, seed: int) -> Workload:
        """Return the task for a run. Raises ConfigError if it cannot train for one batch."""
        # A second task is tried and thrown away, because the state that a model, a loss or a file
        # keeps from its use cannot be reset.
        probed = self.target, repr(self.arguments), workers, batch_size
        if probed not in _PROBED:
            with left_as_they_were():
                self._supervised(workers, batch_size, seed).probe(f"task.target: {self.target}")
            _PROBED.add(probed)
        return self._supervised(workers, batch_size, seed)

    def _supervised(self, workers: int, batch_size: int, seed: int) -> SupervisedWorkload:
        make = partial(load_target(self.target), **self.arguments)
        return of_user(make, f"task.target: {self.target}", workers, batch_size, seed)


_PROBED: set[tuple[object, ...]] = set()  # tasks tried already: `compare` makes a task many times


@dataclass(frozen=True, slots=True)
class Script:
    """A user's training script that calls `outpace.attach`.

    Attributes:
        path: path of the script; `ELSEWHERE` if its workers are not started by Outpace.
        arguments: arguments of the script.
    """

    path: str = field(metadata=FILE)
    arguments: tuple[str, ...] = ()
    kind: Literal["script"] = "script"

    excludes: ClassVar[Mapping[str, str]] = {
        "batch_size": "a script makes its own batches",
        "optimizer": "a script brings its own",
        "evaluate": "a script evaluates its model itself, and logs it with outpace.log",
        "faults": (
            "failures of scripts are not simulated: calibrate a real run of the script (outpace "
            "calibrate RUN -o cluster.yaml), and simulate task: {kind: timing, parameters: N} with "
            "--cluster cluster.yaml; N is script.parameters in its summary.json"
        ),
        "skip.push.gradient": (
            "accumulate needs a task: the optimizer of a script decides in each step which "
            "parameters have no gradient; use drop"
        ),
    }

    @property
    def is_elsewhere(self) -> bool:
        """True if Outpace does not start its workers, which may be on other machines."""
        return self.path == ELSEWHERE

    def workload(self, workers: int, batch_size: int, seed: int) -> Workload:
        """Raise ConfigError, always."""
        raise ConfigError(f"task: the script {self.path} computes its gradients in its own process")


TaskKind: TypeAlias = Annotated[
    DigitsMlp
    | DigitsCnn
    | FashionMnistCnn
    | CharGpt
    | Quadratic
    | Timing
    | PythonTask
    | GivenTask
    | Script,
    KINDS,
]
