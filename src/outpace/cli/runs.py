"""outpace simulate | compare | run | serve: runs in virtual time and on real processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outpace.cli.base import app, echo, folder_for, print_comparison, print_table, say
from outpace.cli.options import (
    Cluster,
    Json,
    Out,
    Overrides,
    Quiet,
    Resume,
    Seed,
    Servers,
    TargetAccuracy,
    TargetLoss,
    Workers,
    goal_data,
    require_out,
    with_options,
)
from outpace.cli.output import Output
from outpace.cli.sources import ConfigOrScript, script_data, source_data, with_cluster_file
from outpace.errors import ConfigError, RunError

if TYPE_CHECKING:
    from outpace.config.experiment import Experiment
    from outpace.real.run import Outside

_Config = Annotated[Path, typer.Argument(metavar="CONFIG", help="A YAML file.")]
_Insecure = Annotated[
    bool, typer.Option("--insecure", help="Without encryption; on the loopback interface only.")
]


@app.command()
def simulate(
    context: typer.Context,
    config: ConfigOrScript,
    overrides: Overrides = None,
    workers: Workers = None,
    servers: Servers = None,
    seed: Seed = None,
    cluster: Cluster = None,
    out: Out = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run one experiment in virtual time, with real gradients.

    A script (.py) uses DDP or calls outpace.attach; its own arguments come after --, as in
    outpace simulate train.py --workers 16 compute.kind=exponential compute.mean_s=0.2 -- --epochs 2
    """
    from outpace.experiment.running import simulate as simulate_one

    given = with_options(overrides, workers, servers, seed)
    data, base = source_data("simulate", config, context.obj, given)
    experiment = _experiment(with_cluster_file(data, cluster), given, str(config), base)
    output = Output(quiet, as_json)
    with folder_for(out, config) as folder:
        with _said_on_failure(output, folder), output.of_run(), output.progress_bars() as bar:
            result = simulate_one(experiment, folder, progress=bar(folder.name))
        output.result(result.summary, lambda: print_table([folder.name], [result.summary]))
        output.where(folder)


@app.command()
def compare(
    context: typer.Context,
    config: ConfigOrScript,
    overrides: Overrides = None,
    workers: Workers = None,
    servers: Servers = None,
    seed: Seed = None,
    cluster: Cluster = None,
    variants_of: Annotated[
        Path | None,
        typer.Option("--variants", help="A YAML file; only its list `variants` is read."),
    ] = None,
    out: Out = None,
    seeds: Annotated[
        int | None,
        typer.Option("--seeds", help="Runs of each variant, with different seeds. Default: 1."),
    ] = None,
    target_accuracy: TargetAccuracy = None,
    target_loss: TargetLoss = None,
    resume: Resume = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run the variants of an experiment on the same seeds and data, and compare them.

    A script (.py) needs --variants; its own arguments come after --, as in
    outpace compare train.py --workers 16 --variants strategies.yaml -- --epochs 2
    """
    from outpace.experiment.compared import compared
    from outpace.experiment.comparison import compare as compare_all
    from outpace.experiment.comparison import seeds_from, variants_from
    from outpace.support.yaml_files import with_overrides

    given = with_options(overrides, workers, servers, seed)
    data, base = source_data("compare", config, context.obj, given)
    data = with_overrides(with_cluster_file(data, cluster), given)
    if variants_of is not None:
        data, base = {**data, "variants": _variants(variants_of)}, variants_of.parent
    elif config.suffix == ".py":
        raise ConfigError(
            f"{config}: the variants to compare are missing: outpace compare {config} --variants "
            "FILE, a YAML file with a list `variants`"
        )
    if target := goal_data(target_accuracy, target_loss):
        data = {**data, "target": target}
    if seeds is not None:
        data = {**data, "seeds": seeds}
    require_out(resume, out, "comparison")
    count = seeds_from(data, str(config))
    variants = variants_from(data, str(variants_of or config), base)
    output = Output(quiet, as_json)
    with folder_for(out, config) as folder:
        try:
            with output.of_run(), output.progress_bars() as bar:
                rows = compare_all(
                    variants,
                    folder,
                    seeds=count,
                    resume=resume,
                    progress=lambda variant: bar(variant.name),
                )
        except KeyboardInterrupt:
            if any(folder.glob("*")):
                say("note", [f"to go on, repeat the command with --out {folder} --resume"])
            raise
        found = compared(rows)
        if count == 1:
            names, summaries = [row.variant.name for row in rows], [row.summary for row in rows]
            output.result(found, lambda: print_table(names, summaries))
        else:
            laws = [each.experiment.compute for each in variants]
            drawn = any(getattr(law, key, None) for law in laws for key in ("errors", "block"))
            output.result(found, lambda: print_comparison(found, of_runs=drawn))
        for row in rows:
            if row.error:
                name = row.variant.name + (f", seed {row.seed}," if count > 1 else "")
                echo(f"{name} failed: {row.error}", err=True)
        output.where(folder)
    if any(row.error for row in rows):
        raise typer.Exit(1)


@app.command()
def run(
    context: typer.Context,
    config: ConfigOrScript,
    overrides: Overrides = None,
    workers: Workers = None,
    servers: Servers = None,
    seed: Seed = None,
    out: Out = None,
    insecure: _Insecure = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run one experiment for real: a process for each server and worker.

    A script (.py) uses DDP or calls outpace.attach; its own arguments come after --, as in
    outpace run train.py --workers 4 sync.kind=ssp sync.staleness=3 -- --epochs 2
    """
    from outpace.experiment.sources import without_include

    output = Output(quiet, as_json)
    given = with_options(overrides, workers, servers, seed)
    data, base = source_data("run", config, context.obj, given)
    experiment = _experiment(without_include(data, output.log), given, str(config), base)
    _run(experiment, str(config), out, insecure, output)


@app.command()
def serve(
    workers: Annotated[int, typer.Option("--workers", help="Number of workers that will join.")],
    connect: Annotated[
        Path,
        typer.Option("--connect", help="The file to write for the workers. It holds their keys."),
    ],
    overrides: Overrides = None,
    servers: Servers = None,
    seed: Seed = None,
    host: Annotated[
        str, typer.Option("--host", help="The address of this machine that the workers can reach.")
    ] = "127.0.0.1",
    out: Out = None,
    insecure: _Insecure = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Start coordinator and servers for workers that torchrun, SLURM or Kubernetes start.

    They have OUTPACE_CONNECT set to the file. A script that calls outpace.attach is started as it
    is, one with DistributedDataParallel by outpace worker.
    """
    from outpace.real.run import Outside

    experiment = _experiment(
        script_data("-", ()), with_options(overrides, workers, servers, seed), "serve", Path.cwd()
    )
    _run(experiment, "serve", out, insecure, Output(quiet, as_json), Outside(host, connect))


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def worker(
    context: typer.Context,
    script: Annotated[Path, typer.Argument(help="The script; its arguments follow.")],
) -> None:
    """Run a script as a worker of outpace serve, in a process that torchrun or SLURM has started:

    OUTPACE_CONNECT=run.json torchrun --nproc-per-node 8 -m outpace worker train.py --epochs 2
    """
    from outpace.real.process.rendezvous import run_worker
    from outpace.script import place_of_process

    problem = run_worker(script, context.args, place_of_process())
    if problem is not None:
        echo(f"error: {problem}", err=True)
    sys.stdout.flush()
    sys.stderr.flush()
    # What the script has registered for its end is done; the rest is of this command's modules.
    os._exit(0 if problem is None else getattr(problem, "exit_code", 1))


def _variants(path: Path) -> Any:
    """Return the variants in a YAML file. Raises ConfigError if it has none."""
    from outpace.support.yaml_files import read_yaml

    data = read_yaml(path)
    if not data.get("variants"):
        raise ConfigError(
            f"{path} has no variants: give it a list such as variants: [{{name: BSP, sync: {{kind: "
            "bsp}}, {name: ASP, sync: {kind: asp}}]"
        )
    return data["variants"]


def _run(
    experiment: Experiment,
    source: str,
    out: Path | None,
    insecure: bool,
    output: Output,
    outside: Outside | None = None,
) -> None:
    from outpace.experiment.running import run as run_for_real
    from outpace.real.live import watch

    with folder_for(out, source) as folder:
        with _said_on_failure(output, folder), output.of_run():
            result = run_for_real(
                experiment,
                folder,
                insecure=insecure,
                log=output.log,
                watch=None if output.quiet else watch,
                outside=outside,
            )
        output.result(result.summary, lambda: print_table([folder.name], [result.summary]))
        abstained = result.summary["pushes_abstained"]
        if abstained and "cut_offs" not in result.summary:
            output.note(f"{abstained} pushes had no gradient: not finite, or a skipped step")
        output.where(folder)


@contextmanager
def _said_on_failure(output: Output, folder: Path) -> Iterator[None]:
    """If the run in this block fails or is interrupted, print its summary and where it is."""
    from outpace.record.folder import SUMMARY, read_summary

    try:
        yield
    except (RunError, KeyboardInterrupt):
        if (folder / SUMMARY).exists():
            output.result(read_summary(folder))
            output.where(folder)
        raise


def _experiment(
    data: dict[str, Any], overrides: list[str], source: str, folder: Path
) -> Experiment:
    from outpace.config.reading import experiment_from
    from outpace.experiment.sources import as_one_run
    from outpace.support.yaml_files import with_overrides

    return experiment_from(as_one_run(with_overrides(data, overrides), source), source, folder)
