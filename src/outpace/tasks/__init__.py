"""Models, data, losses and their evaluation."""

from outpace.support.user_code import brief
from outpace.tasks.data.cifar import Cifar10, Cifar10Resnet
from outpace.tasks.data.digits import DigitsCnn, DigitsMlp, load_digits
from outpace.tasks.data.fashion import FashionMnist, FashionMnistCnn
from outpace.tasks.guarded import evaluation_of, gradient_of, require_accuracy
from outpace.tasks.kinds import PythonTask, Quadratic, Script, TaskKind, Timing
from outpace.tasks.models.char_gpt import CharGpt
from outpace.tasks.task import Evaluation, Task, Workload

__all__ = [
    "CharGpt",
    "Cifar10",
    "Cifar10Resnet",
    "DigitsCnn",
    "DigitsMlp",
    "Evaluation",
    "FashionMnist",
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
    "load_digits",
    "require_accuracy",
]
