"""A task that was given from Python as an object, for instance in a notebook."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Final, Literal, TypeAlias

import torch

from outpace.errors import ConfigError
from outpace.support.repeatable import left_as_they_were
from outpace.support.user_code import brief
from outpace.tasks.supervised import SupervisedWorkload, supervised
from outpace.tasks.task import Task, Workload

MakeTask: TypeAlias = Callable[[], Task]
_NUMBERS: Final = count()


@dataclass(frozen=True)
class GivenTask:
    """A task that exists in this process only; a configuration holds only its name.

    It is made by `of`. If it has no function that makes the task, it was read from the folder of a
    run.

    Attributes:
        name: name of the function, or of the class of the model.
    """

    name: str
    kind: Literal["given"] = "given"

    @staticmethod
    def of(given: object) -> GivenTask:
        """Return the task for a `Task`, or for a function that returns one.

        Raises ConfigError if it is neither.
        """
        if isinstance(given, Task):
            name, make = type(given.model).__name__, _copies_of(given)
        elif callable(given) and not isinstance(given, torch.nn.Module):
            inner = getattr(given, "func", given)  # for functools.partial
            name, make = str(getattr(inner, "__name__", type(inner).__name__)), given
        else:
            raise ConfigError(
                "task must be an outpace.Task, a function that returns one, or a mapping such as "
                f"{{'kind': 'python', 'target': 'my_task.py:make_task'}}, "
                f"not a {type(given).__name__}"
            )
        task = GivenTask(name)
        # No fields, because a configuration cannot hold them. Other tasks may have the same name.
        task.__dict__.update(_make=make, _number=next(_NUMBERS))
        return task

    def __repr__(self) -> str:
        return f"GivenTask({self.name!r}, number {self.__dict__.get('_number')})"

    def __getstate__(self) -> dict[str, Any]:
        raise pickle.PicklingError(f"the task {self.name} exists in one process only")

    def workload(self, workers: int, batch_size: int, seed: int) -> Workload:
        """Return the task for a run. Raises ConfigError if it cannot train for one batch."""
        with left_as_they_were():  # a second task is tried, because use may change its state
            self._supervised(workers, batch_size, seed).probe(f"task: {self.name}")
        return self._supervised(workers, batch_size, seed)

    def _supervised(self, workers: int, batch_size: int, seed: int) -> SupervisedWorkload:
        make: MakeTask | None = self.__dict__.get("_make")
        if make is None:
            raise ConfigError(
                f"task: {self.name} was given from Python and is not in the configuration: give it "
                "again, as in outpace.simulate(..., task=...), or name its file: "
                "task={kind: python, target: 'file.py:function'}"
            )

        return of_user(make, f"task: {self.name}", workers, batch_size, seed)


def of_user(
    make: Callable[[], object], where: str, workers: int, batch_size: int, seed: int
) -> SupervisedWorkload:
    """Return the workload of a task that a user's function makes. where: names it in errors.

    Raises ConfigError if it cannot be made or trained.
    """

    def made() -> Task:
        try:
            task = make()
        except (Exception, SystemExit) as error:
            raise ConfigError(f"{where} raised {brief(error)}") from error
        if not isinstance(task, Task):
            raise ConfigError(f"{where} must return an outpace.Task, not {type(task).__name__}")
        return task

    return supervised(made, workers, batch_size, seed, ours=False)


def _copies_of(task: Task) -> MakeTask:
    """Return a function that copies the task but not its data.

    Training changes the model, and may change the state of a loss.
    """

    def make() -> Task:
        model, loss, accuracy = copy.deepcopy((task.model, task.loss, task.accuracy))
        return replace(task, model=model, loss=loss, accuracy=accuracy)

    return make
