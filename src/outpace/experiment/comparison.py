"""Runs the variants of one experiment on the same seeds and data, and compares them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from outpace.config.keys import faults_of_workers
from outpace.config.reading import experiment_from
from outpace.errors import ConfigError, RunError
from outpace.experiment.compared import Comparison, Row, Variant
from outpace.experiment.complete_runs import complete_runs
from outpace.experiment.end_warnings import overwritten
from outpace.experiment.simulating import check
from outpace.experiment.sources import TaskLike, as_experiment, source_of
from outpace.experiment.trials import Ended, Order
from outpace.experiment.trials.pool import KILLED, stays_here
from outpace.experiment.trials.where import On, on_of, pool_on
from outpace.record import folder as files
from outpace.simulation.virtual import Progress
from outpace.support.notices import once, warn
from outpace.support.yaml_files import merged
from outpace.sync.assignment import has_servers

_MOST_SEEDS: Final = 1000
# Names that other code expects to be files in a folder.
_TAKEN: Final = (files.REPORT, files.COMPARISON, files.CONFIG, files.SUMMARY)


def compare(
    experiment: Sequence[Variant] | Mapping[str, Any] | str | Path,
    /,
    out: str | Path | None = None,
    *,
    seeds: int | None = None,
    resume: bool = False,
    processes: int | None = None,
    on: On = None,
    progress: Progress = lambda _: None,
    say: Callable[[str], None] = lambda _: None,
    task: TaskLike | None = None,
    **changes: Any,
) -> Comparison:
    """Run each variant on each seed and report on all runs.

    A variant whose configuration has the seed s is run with the seeds s, s+1, ... A run that fails
    gives a row with its error, and the other runs continue. With `out`, several runs are carried
    out at a time, each in a separate process, and `out/comparison.json` has the results of the
    variants.

    Args:
        experiment: the path of a YAML file with `variants`, plain data, or a list of `Variant`.
        out: a new or empty folder. Each run gets a folder in it: the variant's name or, with
            several seeds, NAME/seed-K.
        seeds: number of runs of each variant; None: the number in the file, or 1.
        resume: True: keep the complete runs in `out`, and run the others.
        processes: largest number of runs at a time; None: one for each core, or one if a variant
            measures the run times of this computer, has the executor `processes` or a given task.
        on: "ray", or a mapping such as {"kind": "ray", "address": "10.0.0.5:6379"}: the runs are
            carried out on a Ray cluster, see `outpace.experiment.trials.where.OnRay`; `out` is
            needed. None: on this machine.
        progress: called with the completed share of all runs.
        say: called with a line about each run that has ended, if `out` is given.
        task, changes: see `simulate`; for all variants that do not set the key themselves; in a
            list of `Variant`, for all.

    Returns:
        One row for each variant and seed, in this order.

    Raises:
        ConfigError: before anything is run or written, if a variant cannot be run, `out` is not
            empty, the folders in `out` do not belong to the runs that should be resumed, or the
            cluster cannot carry the runs out.
        RunError: if the files about all runs cannot be written, or the cluster has no room left.
    """
    out = None if out is None else Path(out)
    variants, seeds = _variants(experiment, seeds, task, changes)
    away = on_of(on, variants[0].experiment.launcher)
    if away is not None and out is None:
        raise ConfigError("out is missing: what runs on a cluster give is kept in folders")
    plan = {order.key: order for variant in variants for order in _orders(variant, seeds, out)}
    named = {variant.name: variant for variant in variants}
    if out is not None and not resume:
        files.require_new(out)
    shares: dict[Hashable, float] = dict.fromkeys(plan, 0.0)
    rows: dict[Hashable, Row] = {}
    said = once(warn)

    def show(key: Hashable, share: float) -> None:
        shares[key] = share
        progress(sum(shares.values()) / len(shares))

    with pool_on(
        away,
        [each.experiment for each in variants],
        processes=processes,
        progress=show,
        warning=lambda key, text: said(f"{key[0]}: {text}"),
    ) as pool:
        if out is not None:
            if resume:
                for key in complete_runs(plan, out):
                    rows[key] = _row(named, plan[key], None)
                    show(key, 1.0)
            else:
                files.new_folder(out)
            from outpace.report.frame import write_library  # imports plotly: a second

            write_library(out)  # for the pages of all runs
        todo = [order for key, order in plan.items() if key not in rows]
        for order in todo:
            pool.start(order)
        try:
            while events := pool.wait():
                for event in events:
                    if isinstance(event, Ended):
                        row = rows[event.key] = _row(named, plan[event.key], event)
                        show(event.key, 1.0)
                        if out is not None:
                            done = f"{len(rows)} of {len(plan)}"
                            say(f"{plan[event.key].name}: {row.summary['status']} ({done})")
        finally:  # after Ctrl-C the report has the runs that have ended
            found = Comparison(rows[key] for key in plan if key in rows)
            if found and out is not None:
                _write(found, out)
    names = {found.name_of(row): row.summary.get("files_written", ()) for row in found}
    for group, paths in overwritten(names):
        warn(
            f"the scripts of {group} wrote the same files, so only the files of the last run are "
            f"left: {paths}; let the script write to outpace.output_dir()"
        )
    return found


def _variants(
    experiment: Sequence[Variant] | Mapping[str, Any] | str | Path,
    seeds: int | None,
    task: TaskLike | None,
    changes: Mapping[str, Any],
) -> tuple[list[Variant], int]:
    """Return the variants, which can be run, and the number of seeds. Raises ConfigError."""
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
    seeds = seeds_from({} if seeds is None else {"seeds": seeds}, "the comparison")
    for place, variant in enumerate(variants):
        if variant.experiment.seed + seeds > 2**63:
            raise ConfigError(
                f"variant {variant.name}: seed {variant.experiment.seed} leaves no room for "
                f"{seeds} seeds below 2^63: choose a smaller seed"
            )
        try:
            check(variant.experiment)
        except ConfigError as error:
            raise ConfigError(f"variant {variant.name}: {error}") from error
        for before in variants[:place]:
            if before.experiment == variant.experiment:
                warn(f"the variants {before.name} and {variant.name} are the same: leave one out")
    return variants, seeds


def variants_from(data: Mapping[str, Any], source: str, folder: Path) -> list[Variant]:
    """Return the variants of a configuration.

    Args:
        data: the keys of an Experiment, and `variants`: a list of mappings with a name and the keys
            in which that variant differs; and optionally `seeds`.
        source: name of the data in errors.
        folder: the folder that paths in the data are relative to.

    Raises:
        ConfigError: with all errors of all variants.
    """
    base = {key: value for key, value in data.items() if key not in ("variants", "seeds")}
    entries = data.get("variants")
    if not isinstance(entries, list) or not entries:
        raise ConfigError(
            f"{source} has no variants: run it with outpace simulate {source}, or add a list such "
            "as variants=[{name: BSP, sync: {kind: bsp}}, {name: ASP, sync: {kind: asp}}]"
        )
    variants, problems, names = [], [], set()
    spared: list[str] = []  # variants without servers
    for place, entry in enumerate(entries):
        where = f"{source}: variants[{place}]"
        if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
            problems.append(f"{where} must be a mapping with a name, not {entry!r}")
            continue
        name = entry["name"]
        if not re.fullmatch(r"[^\s/\\.][^/\\\x00-\x1f]{0,99}", name) or name in _TAKEN:
            problems.append(f"{where}.name: {name!r} cannot be the name of the run's folder")
        if name.casefold() in names:
            problems.append(f"{where}.name: another variant is called {name!r} already")
        names.add(name.casefold())
        problems += [
            f"{where}.{key}: it is the same for all variants: give it once, above"
            for key in ("seeds", "target")
            if key in entry
        ]
        over = {key: value for key, value in entry.items() if key != "name"}
        try:
            whole = merged(base, over)
            left = whole
            if "faults" not in over and not has_servers(whole.get("sync"), folder):
                left = faults_of_workers(whole)
            variants.append(Variant(name, experiment_from(left, f"{where} ({name})", folder)))
        except ConfigError as error:
            problems.append(str(error))
        else:
            spared += [name] if left != whole else []
    if problems:
        raise ConfigError("\n".join(problems))
    if spared and len(spared) == len(variants):
        raise ConfigError(
            f"{source}: faults has failures of servers, and no variant has servers: leave them out"
        )
    if spared:
        warn(
            "faults: failures of servers are passed over for the variants without servers "
            f"({', '.join(spared)})"
        )
    return variants


def seeds_from(data: Mapping[str, Any], source: str) -> int:
    """Return the number of seeds of a comparison, 1 by default. Raises ConfigError."""
    seeds = data.get("seeds", 1)
    if type(seeds) is not int or not 1 <= seeds <= _MOST_SEEDS:
        raise ConfigError(f"{source}: seeds must be from 1 to {_MOST_SEEDS}, not {seeds!r}")
    return seeds


def _orders(variant: Variant, seeds: int, out: Path | None) -> Iterator[Order]:
    """Yield the runs of a variant. out: None if the results stay in memory."""
    for later in range(seeds):
        seed = variant.experiment.seed + later
        name = f"{variant.name}/seed-{seed}" if seeds > 1 else variant.name
        yield Order(
            (variant.name, seed),
            dataclasses.replace(variant.experiment, seed=seed),
            None if out is None else out / name,
            name,
            # Measured run times come from this process, even if the comparison is resumed.
            here=out is None or stays_here(variant.experiment),
        )


def _row(named: Mapping[str, Variant], order: Order, ended: Ended | None) -> Row:
    """Return the row of a run.

    Args:
        named: the variants by their names.
        ended: None if the run was complete before.
    """
    assert isinstance(order.key, tuple)  # see `_orders`
    name, seed = order.key
    error = None if ended is None else ended.error
    if error is not None and error.startswith(KILLED):
        error += "; compare again with --resume"
    if order.folder is not None and (order.folder / files.SUMMARY).is_file():
        summary = files.read_summary(order.folder)
    else:
        assert ended is not None
        summary = ended.summary
    result = None if ended is None else ended.result
    return Row(named[name], seed, summary, error, order.folder, result)


def _write(rows: Comparison, out: Path) -> None:
    """Write the files about all runs. Raises RunError."""
    from outpace.report.page import write_report

    folders = [row.folder for row in rows if row.folder is not None]
    try:
        files.write_json(out / files.COMPARISON, rows.variants)
        begun = [folder for folder in folders if (folder / files.SUMMARY).is_file()]
        if begun:  # otherwise no run could write its folder, and the rows have the reason
            write_report(begun, out / files.REPORT, rows.results)
    except (OSError, ConfigError) as fault:
        failed = [row.error for row in rows if row.error is not None]
        more = f"; {len(failed)} runs failed, the first: {failed[0]}" if failed else ""
        raise RunError(f"cannot write about the runs in {out}: {fault}{more}") from fault
