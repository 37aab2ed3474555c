"""outpace sweep: values of some keys, tried in virtual time."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outpace.cli.base import app, echo, folder_for
from outpace.cli.options import (
    Address,
    Budget,
    Cluster,
    Json,
    On,
    Out,
    Overrides,
    Quiet,
    Resume,
    Seed,
    Servers,
    TargetAccuracy,
    TargetLoss,
    Workers,
    require_out,
    where,
    with_options,
)
from outpace.cli.output import Output
from outpace.cli.processes import fork_server_of_trials
from outpace.cli.sources import ConfigOrScript, seconds_of, source_for
from outpace.errors import RunError

if TYPE_CHECKING:
    from outpace.experiment.sweeping.sweep import Sweep


@app.command()
def sweep(
    context: typer.Context,
    config: ConfigOrScript,
    overrides: Overrides = None,
    over: Annotated[
        list[str] | None,
        typer.Option(
            "--over",
            metavar="KEY=VALUES",
            help="A key and its values: 1,2,4 or log(a,b), uniform(a,b), int(a,b). Several times. "
            "args.NAME is the argument --NAME of a script.",
        ),
    ] = None,
    workers: Workers = None,
    servers: Servers = None,
    seed: Seed = None,
    cluster: Cluster = None,
    trials: Annotated[
        int | None,
        typer.Option(
            "--trials",
            help="Most candidates. Default: 32, or until the budget is spent; all combinations of "
            "lists if there are at most 64.",
        ),
    ] = None,
    budget: Budget = None,
    seeds: Annotated[
        int, typer.Option("--seeds", help="Runs of each candidate, with different seeds.")
    ] = 1,
    target_accuracy: TargetAccuracy = None,
    target_loss: TargetLoss = None,
    prune: Annotated[
        bool,
        typer.Option(
            "--prune/--no-prune",
            help="End candidates that are behind others at the same virtual time.",
        ),
    ] = True,
    parallel: Annotated[
        int,
        typer.Option(
            "--parallel",
            help="Candidates of a group, which is chosen by the results of the groups before. The "
            "result depends on it, but not on the number of cores.",
        ),
    ] = 8,
    out: Out = None,
    resume: Resume = False,
    on: On = None,
    address: Address = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Try values of some keys in virtual time, and find those that reach the target first.

    outpace sweep experiment.yaml --over sync.staleness=1,2,4,8 --over "optimizer.lr=log(0.01,1)"

    A script (.py) needs --workers and a target; its own arguments come after --.
    """
    budget_s = None if budget is None else seconds_of(budget)  # before the slow imports

    from outpace.experiment.sweeping.sweep import sweep as sweep_over

    given = with_options(overrides, workers, servers, seed)
    source = source_for("sweep", config, context.obj, given, cluster, over or ())
    require_out(resume, out, "study")
    output, away = Output(quiet, as_json), where(on, address)
    if source.data.get("variants"):
        output.note("the variants of the file are ignored: a sweep makes its own")
    with folder_for(out, config) as folder:
        with (
            output.continuable(folder),
            output.with_bars(lambda: fork_server_of_trials(None, away)) as bar,
        ):
            found = sweep_over(
                source,
                over or [],
                folder,
                trials=trials,
                budget_s=budget_s,
                seeds=seeds,
                target_accuracy=target_accuracy,
                target_loss=target_loss,
                prune=prune,
                resume=resume,
                parallel=parallel,
                on=away,
                progress=bar("candidates"),
                say=output.log,
            )
        _show(found, folder, output)


def _show(found: Sweep, folder: Path, output: Output) -> None:
    """Print the result. Raises RunError if there is no best candidate."""
    from outpace.record.folder import BEST, JOURNAL
    from outpace.report.sweeps.page import findings

    sentences = findings(found)
    has_best = found.best is not None
    output.result(found.to_plain(), lambda: echo("\n".join(sentences)) if has_best else None)
    if not has_best:
        output.where(folder)
        raise RunError(sentences[0])
    if found.status == "budget":
        output.log("the budget was spent before all candidates were tried; --resume continues it")
    output.log(f"run the best one: outpace simulate {shlex.quote(str(folder / BEST))}")
    output.log(f"look at the study: optuna-dashboard {shlex.quote(str(folder / JOURNAL))}")
    output.where(folder)
