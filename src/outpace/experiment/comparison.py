"""Runs the variants of one experiment on the same seeds and data, and compares them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from outpace.errors import ConfigError, RunError
from outpace.experiment.compared import Comparison, Row, Variant, compared
from outpace.experiment.comparison_runs import MakeTracker, Run, failed, prepared, runs_of
from outpace.experiment.overwriting import overwritten
from outpace.experiment.running import simulate
from outpace.experiment.simulating import check
from outpace.experiment.sources import TaskLike, as_experiment, folder_of, source_of
from outpace.experiment.tracking import prepare
from outpace.experiment.trials.carrier import KILLED, Carrier
from outpace.experiment.trials.one import carry_out
from outpace.experiment.trials.orders import Ended, Order
from outpace.experiment.trials.pool import Pool, needs_all_cores
from outpace.experiment.trials.where import On, on_of, runs_on
from outpace.experiment.variants import alike, check_seeds, seeds_from, variants_from
from outpace.record import folder as files
from outpace.report import write_report
from outpace.simulation.executors.processes import cores
from outpace.simulation.virtual import Progress
from outpace.support.notices import warn
from outpace.tasks import GivenTask

__all__ = ["compare", "seeds_from", "variants_from"]


def compare(
    experiment: Sequence[Variant] | Mapping[str, Any] | str | Path,
    /,
    out: str | Path | None = None,
    *,
    seeds: int | None = None,
    resume: bool = False,
    processes: int | None = None,
    on: On = None,
    progress: Callable[[Variant], Progress | None] = lambda _: None,
    say: Callable[[str], None] = lambda _: None,
    task: TaskLike | None = None,
    tracker: MakeTracker | None = None,
    **changes: Any,
) -> Comparison:
    """Run each variant on each seed and report on all runs.

    A variant whose configuration has the seed s is run with the seeds s, s+1, ... A run that fails
    gives a row with its error, and the other runs continue. With `out`, several runs run at a time,
    each in a process of its own, and `out/comparison.json` says how the variants compare.

    Args:
        experiment: the path of a YAML file with `variants`, plain data, or a list of `Variant`.
        out: a new or empty folder. Each run gets a folder in it: the variant's name or, with
            several seeds, NAME/seed-K.
        seeds: number of runs of each variant; None: what the file says, or 1.
        resume: keep the runs in `out` that are complete, and run the others.
        processes: most runs at a time; None: one for each core, or one if a variant measures
            the run times of this computer, has the executor `processes` or a given task.
        on: "ray", or a mapping such as {"kind": "ray", "address": "10.0.0.5:6379"}: the runs are
            carried out on a Ray cluster, see `outpace.experiment.trials.where.OnRay`; `out` is
            needed. None: on this machine.
        progress: called with each variant; returns a function that takes the share of its runs
            that is done.
        say: called with a line about each run that has ended, if there is `out`.
        tracker: a function that is called with a variant's name and a seed before each run, and
            returns the tracker of this run, see `simulate`. The runs run one after the other.
        task, changes: as for `simulate`, in all variants that do not set the key themselves; in a
            list of `Variant`, in all.

    Returns:
        One row for each variant and seed, in this order.

    Raises:
        ConfigError: before anything is run or written, if a variant cannot be run, `out` is not
            empty, the folders in `out` do not belong to the runs that should be resumed, or the
            cluster cannot carry the runs out.
        RunError: if the files about all runs cannot be written, or the cluster has no room left.
    """
    if tracker is not None and (isinstance(tracker, list | tuple) or not callable(tracker)):
        raise ConfigError(
            "tracker: each run of a comparison needs its own: give a function of a variant's name "
            f"and a seed that returns a tracker, not a {type(tracker).__name__}"
        )
    out = folder_of(out)
    if on_of(on) is not None and out is None:
        raise ConfigError("out is missing: what runs on a cluster give is kept in folders")
    if on_of(on) is not None and tracker is not None:
        raise ConfigError(
            "tracker: the objects cannot go to a cluster: name trackers in the configuration, or "
            "leave `on` out"
        )
    if not isinstance(experiment, Sequence) or isinstance(experiment, str):
        source = source_of(experiment, task, changes)
        seeds = seeds_from(source.data, source.name) if seeds is None else seeds
        read = variants_from(source.data, source.name, source.folder or Path.cwd())
        variants = [Variant(v.name, source.with_given(v.experiment)) for v in read]
    else:
        for given in experiment:
            if not isinstance(given, Variant):
                raise ConfigError(f"experiment: a list is one of outpace.Variant, not {given!r}")
        variants = [Variant(v.name, as_experiment(v.experiment, task, changes)) for v in experiment]
    seeds = 1 if seeds is None else seeds
    check_seeds(variants, seeds)
    for variant in variants:
        try:
            check(variant.experiment)
        except ConfigError as error:
            raise ConfigError(f"variant {variant.name}: {error}") from error
    for one, same in alike(variants):
        warn(f"the variants {one} and {same} are the same, and so are their results: leave one out")
    runs = list(runs_of(variants, seeds, out))
    bars = _Bars(runs, progress)
    if out is None:
        return Comparison(_in_memory(run, bars, tracker) for run in runs)
    if not resume:
        files.require_new(out)
    with runs_on(on, variants[0].experiment.launcher) as cluster:
        elsewhere = None
        if cluster is not None:
            each = [variant.experiment for variant in variants]
            elsewhere = cluster.carrier(each, processes=processes, have_folders=True)
        ended = prepared(runs, out) if resume else {}
        if not resume:
            files.new_folder(out)
        for run in ended:
            bars.set(run, 1.0)
        # Runs that fit a model as they go take longest, so they begin first.
        todo = sorted(
            (run for run in runs if run not in ended), key=lambda run: not run.fits_a_model
        )
        prepare(run.experiment for run in todo)
        try:
            for run, failure in _carried_out(todo, processes, bars, tracker, elsewhere):
                ended[run] = failure
                say(f"{run.in_words(failure)} ({len(ended)} of {len(runs)})")
        finally:  # after Ctrl-C the report is about the runs that ended
            rows = Comparison(run.row(ended[run]) for run in runs if run in ended)
            if rows:
                _write(rows, out)
    for warning in overwritten(rows):
        warn(warning)
    return rows


def _write(rows: Sequence[Row], out: Path) -> None:
    """Write the files about all runs. Raises RunError."""
    folders = [row.folder for row in rows if row.folder is not None]
    try:
        files.write_json(out / files.COMPARISON, compared(rows))
        begun = [folder for folder in folders if (folder / files.SUMMARY).is_file()]
        if begun:  # otherwise no run could write its folder, and the rows say why
            write_report(begun, out / files.REPORT)
    except (OSError, ConfigError) as fault:
        failed = [row.error for row in rows if row.error is not None]
        more = f"; {len(failed)} runs failed, the first: {failed[0]}" if failed else ""
        raise RunError(f"cannot write about the runs in {out}: {fault}{more}") from fault


class _Bars:
    """The share of each variant's runs that is done."""

    def __init__(self, runs: Sequence[Run], progress: Callable[[Variant], Progress | None]) -> None:
        self._done: dict[str, dict[Path, float]] = {}
        self._bars: dict[str, Progress | None] = {}
        for run in runs:
            if run.variant.name not in self._bars:
                self._bars[run.variant.name] = progress(run.variant)
            self._done.setdefault(run.variant.name, {})[run.folder] = 0.0

    def set(self, run: Run, share: float) -> None:
        done = self._done[run.variant.name]
        done[run.folder] = share
        if (bar := self._bars[run.variant.name]) is not None:
            bar(sum(done.values()) / len(done))


def _in_memory(run: Run, bars: _Bars, tracker: MakeTracker | None) -> Row:
    seed = run.experiment.seed
    try:
        tracking = run.tracking(tracker)
        result = simulate(run.experiment, progress=partial(bars.set, run), tracker=tracking)
    except RunError as error:
        return Row(run.variant, seed, failed(str(error)), str(error))
    return Row(run.variant, seed, result.summary, None, kept=result)


def _carried_out(
    runs: Sequence[Run],
    processes: int | None,
    bars: _Bars,
    tracker: MakeTracker | None,
    elsewhere: Carrier | None,
) -> Iterator[tuple[Run, str | None]]:
    """Run and yield the runs as they end, each with its error or None."""
    given = (run.experiment for run in runs)
    if any(each.has_script or isinstance(each.task, GivenTask) for each in given):
        processes = 1  # a task cannot go to another process; those of a script use all cores
    if tracker is not None:
        processes = 1  # its objects cannot go to another process
    alone = any(needs_all_cores(run.experiment) for run in runs)
    most = min(len(runs), processes or (1 if alone else cores()))
    warned: set[str] = set()

    def warning(run: Run, text: str) -> None:
        text = f"{run.variant.name}: {text}"
        if text not in warned:  # by a run of this variant with another seed
            warned.add(text)
            warn(text)

    if most > 1 or elsewhere is not None:
        yield from _side_by_side(runs, most, bars, warning, elsewhere)
        return
    for run in runs:
        texts: list[str] = []
        end = carry_out(
            run.experiment,
            run.folder,
            run.tracking(tracker),
            progress=partial(bars.set, run),
            warning=texts.append,
        )
        for text in texts:
            warning(run, text)
        bars.set(run, 1.0)
        yield run, end.error


def _side_by_side(
    runs: Sequence[Run],
    most: int,
    bars: _Bars,
    warning: Callable[[Run, str], None],
    elsewhere: Carrier | None,
) -> Iterator[tuple[Run, str | None]]:
    with Pool(most, progress=bars.set, warning=warning, elsewhere=elsewhere) as pool:
        for each in runs:
            pool.start(Order(each, each.experiment, each.folder, each.name))
        while events := pool.wait():
            for event in events:
                if isinstance(event, Ended):
                    run = event.key
                    assert isinstance(run, Run)
                    error = event.error
                    if error is not None and error.startswith(KILLED):
                        error += "; compare again with --resume"
                    bars.set(run, 1.0)
                    yield run, error
