"""Models, data, losses and their evaluation."""

from outpace.tasks.guarded import evaluation_of, gradient_of, require_accuracy
from outpace.tasks.kinds import (
    CuttableWorkload,
    DigitsCnn,
    DigitsMlp,
    FashionMnistCnn,
    PythonTask,
    Quadratic,
    Script,
    TaskKind,
    Timing,
)
from outpace.tasks.target import brief
from outpace.tasks.task import Evaluation, Task, Workload

__all__ = [
    "CuttableWorkload",
    "DigitsCnn",
    "DigitsMlp",
    "Evaluation",
    "FashionMnistCnn",
    "PythonTask",
    "Quadratic",
    "Script",
    "Task",
    "TaskKind",
    "Timing",
    "Workload",
    "brief",
    "evaluation_of",
    "gradient_of",
    "require_accuracy",
]
