"""Calls a user's task, and reports its errors with the worker and iteration."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from outpace.blocks.block import Block
from outpace.errors import ConfigError, OutpaceError, RunError
from outpace.support.user_code import brief
from outpace.tasks.task import Evaluation, Workload


def gradient_of(
    workload: Workload, parameters: Sequence[Block], worker: int, iteration: int
) -> tuple[float | None, Sequence[Block]]:
    """Call `Workload.gradient`. Raises RunError with worker and iteration if it raises."""
    try:
        return workload.gradient(parameters, worker, iteration)
    except (Exception, SystemExit) as error:
        raise _named(error, worker, iteration) from error


@contextmanager
def errors_named(worker: int, iteration: int) -> Iterator[None]:
    """Raise RunError with worker and iteration if a task raises in this block.

    Errors that Outpace itself raises, for example in pushing a part of a gradient, are not changed.
    """
    try:
        yield
    except OutpaceError:
        raise
    except (Exception, SystemExit) as error:
        raise _named(error, worker, iteration) from error


def _named(error: BaseException, worker: int, iteration: int) -> RunError:
    return RunError(f"the task raised in worker {worker}, iteration {iteration}: {brief(error)}")


def evaluation_of(
    workload: Workload, parameters: Sequence[Block], samples: int | None = None
) -> Evaluation:
    """Call `Workload.evaluate`. Raises RunError if it raises."""
    try:
        return workload.evaluate(parameters, samples)
    except (Exception, SystemExit) as error:
        raise RunError(f"the task raised in an evaluation: {brief(error)}") from error


def require_accuracy(workload: Workload, keys: Collection[str]) -> None:
    """Raise ConfigError if these keys ask for an accuracy and the task has none."""
    if keys and not workload.has_accuracy:
        raise ConfigError(
            f"{', '.join(keys)}: this task has no accuracy to reach; "
            "give it test data and an accuracy, or leave the key out"
        )
