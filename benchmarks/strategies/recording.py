"""Measures cells one after the other, and keeps each strategy's result as soon as it is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.strategies.measuring import longest_s, measure, runs_of
from benchmarks.strategies.outcome import Outcome, read, save
from benchmarks.strategies.suite import Cell, Tuning, with_data
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from outpace.experiment.trials import Pool

_QUICK: Final = ("BSP", "SSP 4", "HPSGD")


def record(
    cells: Sequence[Cell],
    origin: Mapping[str, str],
    folder: Path,
    processes: int,
    *,
    missing: bool = False,
) -> None:
    """Measure the cells and write a file for each into `folder`, anew after each strategy.

    Args:
        origin: date and commit, see `benchmarks.recorded.origin`.
        processes: runs at a time.
        missing: keep the strategies that have a result with the present settings, whatever code it
            was made with.

    Raises:
        ConfigError: if a cell's data are not there, before anything is run; or if a strategy cannot
            be run.
        RunError: if a run fails in another way than by divergence.
    """
    known = {cell.name: read(cell, folder) if missing else None for cell in cells}
    outcomes = [_begun(known[cell.name], cell, origin) for cell in cells]
    outcomes = [each for each in outcomes if not each.complete]
    ready = {each.cell.name: with_data(each.cell) for each in outcomes}
    total = sum(len(each.missing) * runs_of(each.cell) for each in outcomes)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with (
        Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as bars,
        Pool(processes) as pool,
    ):
        whole = bars.add_task("all runs", total=total)
        for outcome in outcomes:
            cell = ready[outcome.cell.name]

            def done(strategy: str, runs: int, of: Cell = cell) -> None:
                text = f"{of.name}: {strategy}, run {runs} of {runs_of(of)}"
                bars.update(whole, advance=1, description=text)

            # BSP first: the other strategies may take a multiple of its time.
            for some in (outcome.missing[:1], outcome.missing[1:]):
                bsp = outcome.bsp
                limit_s = cell.limit_s if bsp is None else longest_s(cell, bsp)
                for measured in measure(cell, some, limit_s, pool, processes, done):
                    outcome = outcome.having(measured)
                    save(outcome, folder)


def _begun(known: Outcome | None, cell: Cell, origin: Mapping[str, str]) -> Outcome:
    """Return what is known of a cell, to continue with; its commits are all that made it."""
    if known is None:
        return Outcome(cell, origin)
    commits = known.origin["commit"].split(", ")
    if known.complete or origin["commit"] in commits:
        return known
    return replace(known, origin={**origin, "commit": ", ".join([*commits, origin["commit"]])})


def quick(cell: Cell) -> Cell:
    """Return the cell with few strategies, workers, rates and seeds, and a target soon reached."""
    data = {**cell.data, "workers": 4, "servers": 2, "target": {"accuracy": 0.3}}
    return replace(
        cell,
        data=data,
        only=_QUICK,
        seeds=(0, 1),
        tuning=Tuning(runs=2, finalists=1, seeds=(1000,)),
        limit_s=4,
    )
