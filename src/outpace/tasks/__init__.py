"""Models, data, losses and evaluation."""

from outpace.support.place import ELSEWHERE
from outpace.tasks.data.digits import DigitsCnn, DigitsMlp, load_digits
from outpace.tasks.data.fashion import FashionMnistCnn
from outpace.tasks.given import GivenTask, MakeTask
from outpace.tasks.guarded import evaluation_of, gradient_of, require_accuracy
from outpace.tasks.kinds import PythonTask, Script, TaskKind
from outpace.tasks.models.char_gpt import CharGpt
from outpace.tasks.quadratic import Quadratic
from outpace.tasks.task import Evaluation, HasData, Task, Workload
from outpace.tasks.timing import Timing

__all__ = [
    "ELSEWHERE",
    "CharGpt",
    "DigitsCnn",
    "DigitsMlp",
    "Evaluation",
    "FashionMnistCnn",
    "GivenTask",
    "HasData",
    "MakeTask",
    "PythonTask",
    "Quadratic",
    "Script",
    "Task",
    "TaskKind",
    "Timing",
    "Workload",
    "evaluation_of",
    "gradient_of",
    "load_digits",
    "require_accuracy",
]
