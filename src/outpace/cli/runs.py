"""outpace simulate | run | serve: runs in virtual time and on real processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from outpace.cli.base import app, echo, folder_for, print_table
from outpace.cli.options import (
    Address,
    Cluster,
    Json,
    Launcher,
    Out,
    Overrides,
    Quiet,
    Seed,
    Servers,
    Workers,
    launcher_overrides,
    with_options,
)
from outpace.cli.output import Output
from outpace.cli.processes import fork_server_of_run, fork_server_of_simulation
from outpace.cli.sources import script_data, source_for
from outpace.errors import ConfigError, RunError

if TYPE_CHECKING:
    from outpace.config.experiment import Experiment

_Config: TypeAlias = Annotated[
    Path | None,
    typer.Argument(metavar="CONFIG|SCRIPT", help="A YAML file, or a training script."),
]
_Resume: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--resume",
        metavar="DIR",
        help="Resume the interrupted run in this folder, from its last checkpoint. CONFIG and "
        "--out are left out. Workers that were started elsewhere are started again.",
    ),
]


@app.command()
def simulate(
    context: typer.Context,
    config: _Config = None,
    overrides: Overrides = None,
    workers: Workers = None,
    servers: Servers = None,
    seed: Seed = None,
    cluster: Cluster = None,
    out: Out = None,
    resume: _Resume = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run one experiment in virtual time, with real gradients.

    A script (.py) uses DDP or calls outpace.attach; its own arguments come after --, as in
    outpace simulate train.py --workers 16 compute.kind=exponential compute.mean_s=0.2 -- --epochs 2
    """
    given = with_options(overrides, workers, servers, seed)
    experiment: Experiment | None = None
    changes: dict[str, Any] = {}
    if resume is not None:
        changes = _changes(config, given, context.obj, cluster=cluster, out=out)
    else:
        config = _required(config, "simulate")
        experiment = source_for("simulate", config, context.obj, given, cluster).experiment()
    # after everything that can be refused
    from outpace.experiment.running import simulate as simulate_one

    output = Output(quiet, as_json)
    with _folder(resume, out, config or "") as folder:
        with (
            _said_on_failure(output, folder, "simulate"),
            output.with_bars(lambda: fork_server_of_simulation(experiment)) as bar,
        ):
            new, progress = folder if resume is None else None, bar(folder.name)
            result = simulate_one(experiment, new, resume=resume, progress=progress, **changes)
        output.result(result.summary, lambda: print_table([folder.name], [result.summary]))
        output.where(folder)


@app.command()
def run(
    context: typer.Context,
    config: _Config = None,
    overrides: Overrides = None,
    workers: Workers = None,
    servers: Servers = None,
    seed: Seed = None,
    out: Out = None,
    resume: _Resume = None,
    launcher: Launcher = None,
    address: Address = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run one experiment for real: a process for each server and worker.

    A script (.py) uses DDP or calls outpace.attach; its own arguments come after --, as in
    outpace run train.py --workers 4 sync.kind=ssp sync.staleness=3 -- --epochs 2
    """
    output = Output(quiet, as_json)
    given = launcher_overrides(launcher, address)
    given += with_options(overrides, workers, servers, seed)
    experiment: Experiment | None = None
    changes: dict[str, Any] = {}
    if resume is not None:
        changes = _changes(config, given, context.obj, out=out)
    else:
        config = _required(config, "run")
        source = source_for("run", config, context.obj, given)
        # here, so that errors of YAML come at once
        from outpace.experiment.sources import without_include

        experiment = source._replace(data=without_include(source.data, output.log)).experiment()
    with _folder(resume, out, config or "") as folder:
        _run(experiment, folder, output, resume=resume, **changes)


@app.command()
def serve(
    connect: Annotated[
        Path,
        typer.Option("--connect", help="The file to write for the workers. It holds their keys."),
    ],
    overrides: Overrides = None,
    workers: Annotated[
        int | None, typer.Option("--workers", help="Number of workers that will join.")
    ] = None,
    servers: Servers = None,
    seed: Seed = None,
    host: Annotated[
        str, typer.Option("--host", help="The address of this machine that the workers can reach.")
    ] = "127.0.0.1",
    out: Out = None,
    resume: _Resume = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Start coordinator and servers for workers that torchrun, SLURM or Kubernetes start.

    They have OUTPACE_CONNECT set to the file. A script that calls outpace.attach is started as it
    is, one with DistributedDataParallel by outpace worker.
    """
    from outpace.config.reading import experiment_from
    from outpace.real.process.rendezvous import Outside
    from outpace.support.yaml_files import with_overrides
    from outpace.tasks import ELSEWHERE

    output, given = Output(quiet, as_json), with_options(overrides, workers, servers, seed)
    experiment: Experiment | None = None
    changes: dict[str, Any] = {}
    if resume is not None:
        changes = _changes(None, given, None, out=out)
    elif workers is None:
        raise ConfigError("outpace serve: --workers is missing: the number of workers that join")
    else:
        experiment = experiment_from(with_overrides(script_data(ELSEWHERE, ()), given), "serve")
    options = {"resume": resume, "outside": Outside(host, connect)}
    with _folder(resume, out, "serve") as folder:
        _run(experiment, folder, output, **options, **changes)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def worker(
    context: typer.Context,
    script: Annotated[Path, typer.Argument(help="The script; its arguments follow.")],
) -> None:
    """Run a script as a worker of outpace serve, in a process that torchrun or SLURM has started:

    OUTPACE_CONNECT=run.json torchrun --nproc-per-node 8 -m outpace worker train.py --epochs 2
    """
    from outpace.real.process.rendezvous import run_worker
    from outpace.support.place import place_of_process

    problem = run_worker(script, context.args, place_of_process())
    if problem is not None:
        echo(f"error: {problem}", err=True)
    sys.stdout.flush()
    sys.stderr.flush()
    # The exit handlers of the script have run; the remaining ones belong to this command's modules.
    os._exit(0 if problem is None else getattr(problem, "exit_code", 1))


def _run(experiment: Experiment | None, folder: Path, output: Output, **options: Any) -> None:
    """Run an experiment, or resume the run in the folder. options: options of `outpace.run`."""
    from outpace.experiment.running import run as run_for_real
    from outpace.real.live import watch

    new = None if experiment is None else folder
    seen = None if output.quiet else watch
    with _said_on_failure(output, folder, "run"), output.of_run():
        fork_server_of_run(experiment)
        result = run_for_real(experiment, new, log=output.log, watch=seen, **options)
    output.result(result.summary, lambda: print_table([folder.name], [result.summary]))
    abstained = result.summary["pushes_abstained"]
    if abstained > 0 and "cut_offs" not in result.summary:
        output.note(f"{abstained} pushes had no gradient: not finite, or a skipped step")
    output.where(folder)


@contextmanager
def _said_on_failure(
    output: Output, folder: Path, command: Literal["run", "simulate"]
) -> Iterator[None]:
    """Say where the run is and how to resume it if this block fails or is interrupted."""
    from outpace.experiment.status import resume_command
    from outpace.record.checkpoints import Checkpoints
    from outpace.record.folder import SUMMARY, read_summary

    try:
        yield
    except (RunError, KeyboardInterrupt):
        if (folder / SUMMARY).exists():
            output.result(read_summary(folder))
            output.where(folder)
            if numbers := Checkpoints(folder).numbers():
                last = f"checkpoint {numbers[-1]}"
                output.note(f"to resume from {last}: {resume_command(command, folder)}")
        raise


def _required(config: Path | None, command: str) -> Path:
    """Return the argument CONFIG. Raises ConfigError if it is missing."""
    if config is None:
        raise ConfigError(
            f"outpace {command}: CONFIG is missing: name a YAML file or a script, or with --resume "
            "the folder of a run that was interrupted"
        )
    return config


def _changes(
    config: Path | None, overrides: Sequence[str], arguments: Sequence[str] | None, **others: object
) -> dict[str, Any]:
    """Return the overrides for a run that is resumed, as keyword arguments of `simulate`.

    Args:
        config: the first argument, which is an override if it has a "=".
        arguments: the arguments after --.
        others: options that only a new run can have, with their values, by name.

    Raises:
        ConfigError: if an option is given that only a new run can have.
    """
    from outpace.support.yaml_files import with_overrides

    is_override = config is not None and "=" in str(config)
    given: dict[str, object] = {"arguments after --": arguments or None}
    given["CONFIG"] = None if is_override else config
    given |= {f"--{name}": value for name, value in others.items()}
    if known := [name for name, value in given.items() if value is not None]:
        raise ConfigError(f"--resume continues the run as it is in DIR: leave out {known[0]}")
    return with_overrides({}, [*([str(config)] if is_override else []), *overrides])


@contextmanager
def _folder(resume: Path | None, out: Path | None, source: str | Path) -> Iterator[Path]:
    """Yield the folder of the run that is resumed, or the folder for a new run of `source`."""
    if resume is not None:
        yield resume
    else:
        with folder_for(out, source) as folder:
            yield folder
