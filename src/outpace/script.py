"""The functions for a user's training script: two lines make it a worker of a run.

    model, optimizer = outpace.attach(model, optimizer)
    loader = DataLoader(data, batch_size, sampler=outpace.sampler(data))

Without Outpace's launcher or `outpace serve`, the script trains alone, as if it did not have these
lines.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sized
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar, cast

import torch

from outpace.errors import ConfigError, OutpaceError
from outpace.support.place import CONNECT, HERE, look_at_parent, place_of_process
from outpace.tasks.abort_points import Computation

ModelT = TypeVar("ModelT", bound=torch.nn.Module)
OptimizerT = TypeVar("OptimizerT", bound=torch.optim.Optimizer)


def attach(model: ModelT, optimizer: OptimizerT, **kept: Any) -> tuple[ModelT, OptimizerT]:
    """Make this script a worker of the run; without a launcher nothing changes.

        model, optimizer = outpace.attach(model, optimizer)

    With servers, `optimizer.step()` pushes gradients and pulls parameters. The servers do the
    optimizer's steps, with the current settings of its groups. They hold its state, which
    `optimizer.state_dict()` fetches and `optimizer.load_state_dict()` replaces. Without servers,
    the step exchanges gradients or parameters with the other workers.

    Args:
        model: the model; its parameters that are in the optimizer's groups are shared.
        optimizer: the optimizer, with all its parameter groups.
        kept: further objects that a checkpoint saves, such as `scheduler=scheduler`: objects with
            the methods `state_dict` and `load_state_dict`.

    A script with `DistributedDataParallel` needs this call for checkpoints only. It passes the
    wrapped model, and the run begins here.

    Returns:
        The given model and optimizer, to be used as before.

    Raises:
        ConfigError: if this model cannot be shared, this process's place in the run is unclear, or
            an object cannot be saved.
    """
    _require_kinds(model, optimizer)
    if kept:
        from outpace.engine.scripts.saved_script import require_stateful

        require_stateful(kept)
    if _is_distributed_alone() or not _in_a_run():
        return model, optimizer
    if HERE.worker is not None:
        raise ConfigError("outpace.attach was called already: one model per script")
    HERE.kept, HERE.has_attached = kept, True
    if HERE.begin is not None:
        HERE.begin(model, optimizer)
        return model, optimizer
    assert HERE.attach is not None
    HERE.worker = HERE.attach(model, optimizer)
    HERE.worker.start()
    return model, optimizer


@contextmanager
def abortable() -> Iterator[Computation]:
    """Allow the computation in this context to be stopped if the strategy cuts the worker off.

        with outpace.abortable() as work:
            loss = criterion(model(inputs), targets)
            loss.backward()
        optimizer.step()  # pushes nothing if the computation was stopped

    The computation stops when the next of the model's innermost modules is entered, forward or
    backward, and the block ends there. Then `work.stopped` is True, variables that the block
    assigns may be missing, and the model's buffers are restored. With `gossip` nothing is stopped,
    but other workers need not wait for the end of the block. The context has no effect with other
    strategies, or when the script runs alone.

    Returns:
        A context manager; its value has the attribute `stopped`.
    """
    if HERE.worker is None:
        yield Computation()
    else:
        with HERE.worker.abortable() as computation:
            yield computation


def log(loss: Any = None, accuracy: Any = None, **scalars: Any) -> None:
    """Log numbers at this point of the run; without a launcher nothing happens.

        outpace.log(loss=loss.item(), accuracy=correct / count, lr=scheduler.get_last_lr()[0])

    Each call is a row of `metrics.parquet` with the time, this worker and the number of its steps
    so far. The report shows the curves of `loss`, `test_loss` and `accuracy`; trackers get
    everything. If several workers log, the curve of the run is the curve of the worker with the
    lowest rank.

    Args:
        loss: a training loss, in the column `train_loss`.
        accuracy: a test accuracy in [0, 1]; `stop.target_accuracy` ends the run when it is reached.
        scalars: `test_loss`, and any other values, each in a separate column. A value is a number,
            or a tensor or array with one element. NaN and infinity are recorded, but count for no
            curve.

    Raises:
        ConfigError: if a value is not a number, a name cannot be a column, an accuracy is not in
            [0, 1], or `attach` has not been called.
        RunError: in a process that the script has forked.
    """
    if _is_distributed_alone() or not _in_a_run():
        return
    if HERE.worker is None:
        first = "train a step" if HERE.is_distributed else "call outpace.attach"
        raise ConfigError(f"outpace.log: {first} first; the run starts there")
    from outpace.record.logged import checked

    values = checked({"loss": loss, "accuracy": accuracy, **scalars}, f"worker-{HERE.number}")
    if values:
        HERE.worker.log(values)


@contextmanager
def untimed() -> Iterator[None]:
    """Mark computation that is not part of an iteration, such as an evaluation.

        with outpace.untimed():
            accuracy = evaluate(model)
        outpace.log(accuracy=accuracy)

    In a real run this computation takes time, but does not count as time to compute a gradient. In
    virtual time it takes no time. The context has no effect when the script runs alone.

    Returns:
        A context manager.

    Raises:
        ConfigError: if the script calls `optimizer.step()` in this context.
    """
    if HERE.worker is None:
        yield
    else:
        with HERE.worker.untimed():
            yield


def output_dir() -> Path:
    """Return an existing folder for files of this script.

    In a run it is `files/worker-N` in the run's folder, so that workers and variants of a
    comparison write different files. If a run has no folder, it is `files/worker-N` in the current
    folder. When the script runs alone it is the current folder.

    Raises:
        ConfigError: if the folder cannot be made.
    """
    if _is_distributed_alone() or not (_in_a_run() or HERE.files):
        return Path.cwd()
    folder = HERE.folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"outpace.output_dir: cannot make the folder {folder}: {error.strerror}"
        ) from error
    return folder


def rank() -> int:
    """Return this worker's number, from 0; 0 when the script runs alone."""
    _in_a_run()
    return HERE.number


def world_size() -> int:
    """Return the number of workers; 1 when the script runs alone.

    After `outpace scale` the script begins again with the new number.
    """
    _in_a_run()
    return HERE.workers


def sampler(
    dataset: Sized, *, shuffle: bool = True, seed: int = 0, drop_last: bool = False
) -> torch.utils.data.DistributedSampler[Any]:
    """Return a sampler of this worker's share of the dataset, for a DataLoader.

        sampler = outpace.sampler(dataset, seed=1)
        loader = DataLoader(dataset, batch_size=32, sampler=sampler)

    Call its `set_epoch` in each epoch. The batch size of a DataLoader that uses the sampler is part
    of the records of the run. Without Outpace, under torchrun, the sampler divides the data among
    the processes of torch.distributed.

    Args:
        dataset: the whole dataset.
        shuffle: True: in each epoch the samples have another order.
        seed: seed of the order; the same in all workers.
        drop_last: True: leave out the last samples if the workers' shares would be unequal. False:
            repeat some samples.

    Raises:
        ConfigError: if the dataset has no length.
    """
    from outpace.engine.scripts.sampler import WorkerSampler

    if not hasattr(dataset, "__len__"):
        raise ConfigError(
            f"outpace.sampler(dataset): dataset has no length, it is of type "
            f"{type(dataset).__name__}: give one with __len__, or divide the data by "
            "outpace.rank() and outpace.world_size()"
        )
    if _is_distributed_alone():
        place = torch.distributed.get_world_size(), torch.distributed.get_rank()
    else:
        place = world_size(), rank()
    return WorkerSampler(
        cast("torch.utils.data.Dataset[Any]", dataset),
        num_replicas=place[0],
        rank=place[1],
        shuffle=shuffle,
        seed=seed,
        drop_last=drop_last,
    )


def finish() -> None:
    """Leave the run, wait until all workers have left, and load the final parameters.

    A script that ends without this call also leaves, with the parameters of its last pull. The call
    has no effect when the script runs alone.
    """
    if HERE.worker is not None:
        from outpace.engine.scripts.ending import letting_it_end

        with letting_it_end():
            HERE.worker.leave(fetch=True)


def _require_kinds(model: object, optimizer: object) -> None:
    kinds = (("model", model, torch.nn.Module), ("optimizer", optimizer, torch.optim.Optimizer))
    for name, given, kind in kinds:
        if not isinstance(given, kind):
            raise ConfigError(
                f"outpace.attach(model, optimizer): {name} must be a {kind.__module__}."
                f"{kind.__name__}, not {'None' if given is None else type(given).__name__}"
            )


def _in_a_run() -> bool:
    """True if this process is part of a run. Raises ConfigError if this cannot be decided."""
    if HERE.attach is None and not HERE.looked:
        HERE.looked = True
        if look_at_parent():
            return False
        place = place_of_process()
        if CONNECT in os.environ:
            from outpace.real.process.rendezvous import join_from_file

            _say_errors_in_words()
            join_from_file(os.environ[CONNECT], place)
        elif place is not None and place[1] > 1:
            raise ConfigError(
                f"this is process {place[0]} of {place[1]}, but {CONNECT} is not set: start "
                "`outpace serve` and set it to the file that it writes"
            )
    return HERE.attach is not None


def _is_distributed_alone() -> bool:
    """True if the script uses torch.distributed and was not started by a launcher of Outpace."""
    if HERE.attach is not None or CONNECT in os.environ:
        return False
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _say_errors_in_words() -> None:
    """Print errors of the run in one line, without a traceback: the script is not at fault."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, OutpaceError):
            print(f"error: {error}", file=sys.stderr)  # noqa: T201
        else:
            before(kind, error, trace)

    sys.excepthook = hook
