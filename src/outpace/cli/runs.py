"""outpace simulate | compare | run | serve: runs in virtual time and on real processes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outpace.cli.base import app, folder_for, print_comparison, print_table, progress_bars, say
from outpace.errors import ConfigError, RunError

if TYPE_CHECKING:
    from outpace.config.experiment import Experiment
    from outpace.real.run import Outside

_Config = Annotated[Path, typer.Argument(metavar="CONFIG", help="A YAML file.")]
_Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...",
        help="Overrides, as in workers=8 sync.kind=ssp sync.staleness=3.",
    ),
]
_Out = Annotated[
    Path | None,
    typer.Option(
        "--out", help="The folder to write, new or empty. Default: a new folder runs/NAME."
    ),
]

_Insecure = Annotated[
    bool, typer.Option("--insecure", help="Without keys: any process that can connect may join.")
]
_Workers = Annotated[
    int | None, typer.Option("--workers", help="Number of workers, like workers=N.")
]
_Servers = Annotated[
    int | None, typer.Option("--servers", help="Number of servers, like servers=M.")
]


@app.command()
def simulate(config: _Config, overrides: _Overrides = None, out: _Out = None) -> None:
    """Run one experiment in virtual time, with real gradients."""
    from outpace.experiment.running import simulate as simulate_one
    from outpace.support.yaml_files import read_yaml

    if config.suffix == ".py":
        raise ConfigError(
            f"{config}: a script cannot be simulated; run it for real: outpace run {config}"
        )
    experiment = _experiment(read_yaml(config), overrides, str(config), config.parent)
    with folder_for(out, config) as folder:
        with progress_bars() as bar:
            result = simulate_one(experiment, folder, progress=bar(folder.name))
        print_table([folder.name], [result.summary])
        _say_where(folder)


@app.command()
def compare(
    config: _Config,
    overrides: _Overrides = None,
    out: _Out = None,
    seeds: Annotated[
        int | None,
        typer.Option("--seeds", help="Runs of each variant, with different seeds. Default: 1."),
    ] = None,
    target_accuracy: Annotated[
        float | None,
        typer.Option("--target-accuracy", help="Compare the times to this test accuracy."),
    ] = None,
    target_loss: Annotated[
        float | None,
        typer.Option("--target-loss", help="Compare the times to this training loss."),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Keep the complete runs in --out and run the others."),
    ] = False,
) -> None:
    """Run the variants of an experiment on the same seeds and data, and compare them."""
    from outpace.experiment.compared import compared
    from outpace.experiment.comparison import compare as compare_all
    from outpace.experiment.comparison import seeds_from, variants_from
    from outpace.support.yaml_files import read_yaml, with_overrides

    data = with_overrides(read_yaml(config), overrides or [])
    given = {"accuracy": target_accuracy, "loss": target_loss}
    target = {key: value for key, value in given.items() if value is not None}
    if target:
        data = {**data, "target": target}
    if seeds is not None:
        data = {**data, "seeds": seeds}
    if resume and out is None:
        raise ConfigError("--resume needs --out, the folder of the comparison to go on with")
    count = seeds_from(data, str(config))
    variants = variants_from(data, str(config), config.parent)
    with folder_for(out, config) as folder:
        try:
            with progress_bars() as bar:
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
        if count == 1:
            print_table([row.variant.name for row in rows], [row.summary for row in rows])
        else:
            print_comparison(compared(rows))
        for row in rows:
            if row.error:
                name = row.variant.name + (f", seed {row.seed}," if count > 1 else "")
                typer.echo(f"{name} failed: {row.error}", err=True)
        _say_where(folder)
    if any(row.error for row in rows):
        raise typer.Exit(1)


@app.command()
def run(
    context: typer.Context,
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG|SCRIPT", help="A YAML file, or a training script.")
    ],
    overrides: _Overrides = None,
    workers: _Workers = None,
    servers: _Servers = None,
    out: _Out = None,
    insecure: _Insecure = False,
) -> None:
    """Run one experiment for real: a process for each server and worker.

    A script (.py) calls outpace.attach; its own arguments come after --, as in
    outpace run train.py --workers 4 sync.kind=ssp sync.staleness=3 -- --epochs 2
    """
    from outpace.support.yaml_files import read_yaml

    arguments: Sequence[str] = context.obj or ()
    if config.suffix == ".py":
        if not config.is_file():
            raise ConfigError(f"{config}: there is no such script")
        if workers is None and not any(o.startswith("workers=") for o in overrides or ()):
            raise ConfigError(
                f"{config}: the number of workers is missing: outpace run {config} --workers N"
            )
        data, folder = _script(str(config), arguments), Path.cwd()
    elif arguments:
        raise ConfigError(
            f"arguments after -- are for a script, and {config} is not a script (.py); remove them"
        )
    else:
        data, folder = read_yaml(config), config.parent
    _run(data, _counts(workers, servers, overrides), str(config), folder, out, insecure)


@app.command()
def serve(
    workers: Annotated[int, typer.Option("--workers", help="Number of workers that will join.")],
    connect: Annotated[
        Path,
        typer.Option("--connect", help="The file to write for the workers. It holds their keys."),
    ],
    overrides: _Overrides = None,
    servers: _Servers = None,
    host: Annotated[
        str, typer.Option("--host", help="The address of this machine that the workers can reach.")
    ] = "127.0.0.1",
    out: _Out = None,
    insecure: _Insecure = False,
) -> None:
    """Start coordinator and servers for workers that torchrun, SLURM or Kubernetes start.

    The workers run a script that calls outpace.attach, with OUTPACE_CONNECT set to the file.
    """
    from outpace.real.run import Outside

    counts = _counts(workers, servers, overrides)
    _run(_script("-", ()), counts, "serve", Path.cwd(), out, insecure, Outside(host, connect))


def _script(path: str, arguments: Sequence[str]) -> dict[str, Any]:
    task = {"kind": "script", "path": path, "arguments": list(arguments)}
    return {"task": task, "sync": {"kind": "bsp"}}


def _counts(workers: int | None, servers: int | None, overrides: Sequence[str] | None) -> list[str]:
    """Return the options as overrides, followed by the given overrides."""
    given = (("workers", workers), ("servers", servers))
    return [f"{key}={count}" for key, count in given if count is not None] + list(overrides or ())


def _run(
    data: dict[str, Any],
    overrides: list[str],
    source: str,
    folder: Path,
    out: Path | None,
    insecure: bool,
    outside: Outside | None = None,
) -> None:
    from outpace.experiment.running import run as run_for_real
    from outpace.real.live import watch
    from outpace.record.folder import SUMMARY

    def log(text: str) -> None:
        typer.echo(text, err=True)

    experiment = _experiment(data, overrides, source, folder)
    with folder_for(out, source) as place:
        try:
            result = run_for_real(
                experiment, place, insecure=insecure, log=log, watch=watch, outside=outside
            )
        except (RunError, KeyboardInterrupt):
            if (place / SUMMARY).exists():
                _say_where(place)
            raise
        print_table([place.name], [result.summary])
        abstained = result.summary["pushes_abstained"]
        if abstained and "cut_offs" not in result.summary:
            say("note", [f"{abstained} pushes had no gradient: not finite, or a skipped step"])
        _say_where(place)


def _experiment(
    data: dict[str, Any], overrides: list[str] | None, source: str, folder: Path
) -> Experiment:
    from outpace.config.reading import experiment_from
    from outpace.support.yaml_files import with_overrides

    data = with_overrides(data, overrides or [])
    if "variants" in data:
        raise ConfigError(f"{source} has variants: use outpace compare {source}")
    if "seeds" in data:
        raise ConfigError(f"{source}: seeds: only outpace compare runs several seeds; leave it out")
    return experiment_from(data, source, folder)


def _say_where(out: Path) -> None:
    from outpace.record.folder import REPORT

    typer.echo(f"report: {out / REPORT}")
