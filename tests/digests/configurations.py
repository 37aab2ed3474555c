"""The configurations, as data: strategies x networks x laws x tasks, and some others.

A name has the parts of a configuration, for instance `ssp-lazy/fair/slow-worker/timing`. The kinds
of a part take turns: each strategy is combined with each network, each time with a different law,
so all pairs of parts occur, but not all combinations of them. A new entry at the end of a mapping
does not change the combinations of the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from tests.support.fluentps import behind_barrier, ssptable

Config: TypeAlias = dict[str, Any]
INPUTS: Final = Path(__file__).with_name("inputs")
PARTS: Final = INPUTS / "parts.py"
ITERATIONS: Final = 16
HALF_S: Final = 0.8  # of virtual time; 16 iterations take about 1.6 s

TIMING: Final = "timing"  # the task without torch kernels


@dataclass(frozen=True)
class Configuration:
    """One run.

    Attributes:
        config: what is simulated, or run for real.
        how: `simulate`; `resume`: simulate, fail at HALF_S and resume with `changes`; `real`: run
            processes. For these runs only the parameters are compared.
        everywhere: True if its trace is the same on every processor.
    """

    config: Mapping[str, Any]
    how: Literal["simulate", "resume", "real"] = "simulate"
    changes: Mapping[str, Any] | None = None

    @property
    def everywhere(self) -> bool:
        model = self.config["sync"].get("model") if "sync" in self.config else None
        learned = model in ("pooled", "deep-markov")
        return self.config["task"]["kind"] == TIMING and self.how != "real" and not learned


def _sync(kind: str, **more: Any) -> Config:
    return {"sync": {"kind": kind, **more}}


def _cutoff(model: str, **more: Any) -> Config:
    return _sync("cutoff", model=model, **more)


def _python(name: str, **arguments: Any) -> Config:
    return _sync("python", target=f"{PARTS}:{name}", arguments=arguments)


SERVERS: Final[Mapping[str, Config]] = {
    "bsp": _sync("bsp"),
    "bsp-on-arrival": _sync("bsp", apply="on-arrival"),
    "asp": _sync("asp"),
    "asp-staleness": _sync("asp", scale="staleness"),
    "ssp-lazy": _sync("ssp", staleness=2),
    "ssp-soft": _sync("ssp", staleness=1, buffer="soft"),
    "ssp-on-advance": _sync("ssp", staleness=2, apply="on-advance", scale="linear"),
    "pssp": _sync("pssp", staleness=1, block_probability=0.4),
    "pssp-lead": _sync("pssp", staleness=1, block_probability=0.4, draw="lead", coin="server"),
    "dynamic-pssp": _sync("dynamic-pssp", staleness=1, alpha=0.8, buffer="soft"),
    "dsps": _sync("dsps", staleness=1, extra=4),
    "psp-sampling": _sync("psp-sampling", sample=2, staleness=1),
    "drop-stragglers": _sync("drop-stragglers", quorum=3),
    "partial-push": _sync("partial-push", quorum=2, timeout_s=0.02),
    "partial-pull": {**_sync("ssp", staleness=2), "pull": {"quorum_percent": 50}},
    "partial-pull-drop": {
        **_sync("bsp"),
        "pull": {"quorum_percent": 50, "timeout_s": 0.01, "late": "drop", "ahead": 2},
    },
    "skip-push": {**_sync("ssp", staleness=2), "skip": {"push": {"probability": 0.3}}},
    "skip-accumulate": {
        **_sync("bsp"),
        "skip": {"push": {"every": 3, "gradient": "accumulate"}, "pull": {"every": 4}},
    },
    "skip-pull": {**_sync("asp"), "skip": {"pull": {"condition": f"{PARTS}:often"}}},
    "cutoff-fixed": _cutoff("fixed", share=0.7),
    "cutoff-elfving": _cutoff("elfving", warmup=4),
    "cutoff-mean-5": _cutoff("mean-5", warmup=3),
    "cutoff-last-5": _cutoff("last-5", decision="deadline", warmup=4),
    "cutoff-early-20": _cutoff("early-20", warmup=2),
    "cutoff-oracle": _cutoff("oracle"),
    "python": _python("Quorum", quorum=3),
    "conditions": {
        **_sync("ssp", staleness=3),
        "conditions": [{"pull": f"{PARTS}:not_too_far"}, {"push": f"{PARTS}:quarter_missing"}],
    },
    "changes": {
        **_sync("bsp"),
        "sync_changes": [
            {"at_s": 0.5, "sync": {"kind": "asp"}},
            {"at_s": 1.0, "sync": {"kind": "ssp", "staleness": 1}, "keys": "server-0"},
        ],
    },
    "wire-bf16": _sync("ssp", staleness=1, wire="bf16"),
    "overlap": {**_sync("bsp"), "overlap": "backward", "non_finite": "stop"},
    "service-times": {
        **_sync("ssp", staleness=1),
        "push_time": {"kind": "exponential", "mean_s": 0.004},
        "pull_time": {"kind": "constant", "mean_s": 0.002},
        "update_time": {"kind": "constant", "mean_s": 0.003},
    },
    "ssptable": {"sync": ssptable(staleness=2)},
    "global-barrier": {"sync": behind_barrier("ssp", staleness=1)},
}
PEERS: Final[Mapping[str, Config]] = {
    "ssgd": _sync("ssgd"),
    "ssgd-tree": _sync("ssgd", all_reduce="tree"),
    "local-sgd": _sync("local-sgd", every=5, after=3),
    "hpsgd": _sync("hpsgd"),
    "hpsgd-delayed": _sync("hpsgd", commit="delayed", window=3),
    "hpsgd-together": _sync("hpsgd", start_together=True, all_reduce="tree"),
    "diloco": _sync("diloco", every=5),
    "diloco-overlap": _sync("diloco", every=4, overlap=True),
    "gossip": _sync("gossip"),
    "psgd": _sync("psgd"),
    "python-peers": _python("EveryNth", every=2),
    "ssgd-bf16": _sync("ssgd", wire="bf16"),
}
SERVERS_BY_DEFAULT: Final = {"servers": 2}
# Slow enough that transfers of all four workers meet at a server.
_LINK: Final = {"latency_s": 0.002, "bandwidth_bytes_per_s": 4e6}
# The second place has the keys that only strategies with servers have.
NETWORKS: Final[Mapping[str, tuple[Config, Config]]] = {
    "none": ({}, {}),
    "ideal": ({"network": {"latency_s": 0.004}}, {"servers": 1}),
    "serialised": (
        {"network": {**_LINK, "pairs": [{"between": ["worker-0", "worker-1"], "latency_s": 0.01}]}},
        {
            "network": {
                **_LINK,
                "delays": [{"message": "reply", "probability": 0.1, "seconds": 0.1}],
            }
        },
    ),
    "fair": (
        {"network": {**_LINK, "contention": "fair", "nodes": {"worker-3": {"latency_s": 0.01}}}},
        {"servers": 3, "slicing": "layers"},
    ),
    "machines": (
        {
            "network": {
                **_LINK,
                "contention": "fair",
                "machines": {"a": ["worker-0", "worker-1", "server-0"], "b": ["worker-2"]},
                "loopback": {"latency_s": 0.0001, "bandwidth_bytes_per_s": 1e8},
            }
        },
        {},
    ),
}
LAWS: Final[Mapping[str, Config]] = {
    "constant": {"kind": "constant", "mean_s": 0.1, "factors": [1.0, 1.05, 0.9, 1.3]},
    "lognormal": {"kind": "lognormal", "mean_s": 0.1, "cv": 0.4, "worker_cv": 0.2},
    "slow-worker": {
        "kind": "shifted-exponential",
        "shift_s": 0.08,
        "mean_s": 0.02,
        "slow": [{"workers": [1], "factor": 3.0, "from_s": 0.3, "until_s": 1.0}],
    },
    "recorded": {"kind": "trace", "path": str(INPUTS / "recorded.csv"), "wrap": True},
    "regimes": {
        "kind": "regimes",
        "mean_s": 0.08,
        "cv": 0.1,
        "workers_per_node": 2,
        "regimes": [{"factor": 1.0, "dwell_s": 0.6}, {"factor": 2.5, "dwell_s": 0.2}],
    },
}
_MOMENTUM: Final = {"kind": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 1e-3}
TASKS: Final[Mapping[str, Config]] = {
    "quadratic": {
        "task": {"kind": "quadratic", "eigenvalues": [0.1, 0.4, 0.8, 1.5], "noise": 0.1},
        "optimizer": _MOMENTUM,
    },
    "digits-mlp": {"task": {"kind": "digits-mlp"}, "batch_size": 8},
    "python": {
        "task": {"kind": "python", "target": f"{PARTS}:make_task"},
        "optimizer": {"kind": "adam", "lr": 0.02},
        "batch_size": 4,
    },
}
_LARGE: Final[Config] = {"task": {"kind": "python", "target": f"{PARTS}:make_large_task"}}
OPTIMIZERS: Final[Mapping[str, Config]] = {
    "sgd-schedule": {
        **_MOMENTUM,
        "nesterov": True,
        "schedule": {"kind": "step", "at_iterations": [6, 12], "warmup_iterations": 3},
    },
    "adam": {"kind": "adam", "lr": 0.01, "schedule": {"kind": "cosine", "iterations": 16}},
    "adamw": {"kind": "adamw", "lr": 0.01, "fused": True},
    "adagrad": {"kind": "adagrad"},
    "rmsprop": {"kind": "rmsprop", "lr": 0.005, "momentum": 0.5},
    "lars": {"kind": "lars", "lr": 1.0, "reference_batch": 64},
}
_TIMING: Final[Config] = {"task": {"kind": TIMING, "layers": [20_000, 5_000, 30_000]}}


def _made(strategy: Config, network: str, law: str, task: Config, **more: Any) -> Config:
    """Return the whole configuration of four workers; later parts replace keys of earlier ones."""
    common, for_servers = NETWORKS[network]
    made: Config = {
        "seed": 3,
        "workers": 4,
        "compute": LAWS[law],
        "stop": {"iterations": ITERATIONS},
        **common,
        **task,
    }
    if strategy not in PEERS.values():
        made |= SERVERS_BY_DEFAULT | for_servers
        if task is TASKS["quadratic"]:  # which has one tensor
            made.pop("slicing", None)
    return {**made, **strategy, **more}


def _turn(names: Mapping[str, Any], number: int) -> str:
    return list(names)[number % len(names)]


def _timing() -> Iterator[tuple[str, Configuration]]:
    """Each strategy on three networks, with a different law on each network."""
    for number, (name, strategy) in enumerate([*SERVERS.items(), *PEERS.items()]):
        for turn in range(3):
            network = _turn(NETWORKS, number + turn * 2)
            law = _turn(LAWS, number // len(NETWORKS) + number + turn)
            made = _made(strategy, network, law, _TIMING)
            yield f"{name}/{network}/{law}/timing", Configuration(made)


def _trained() -> Iterator[tuple[str, Configuration]]:
    """Each strategy on one small task, evaluated on the way."""
    for number, (name, strategy) in enumerate([*SERVERS.items(), *PEERS.items()]):
        network, law = _turn(NETWORKS, 2 * number + 1), _turn(LAWS, number + 3)
        task = _turn(TASKS, number)
        if name == "overlap":
            task = "digits-mlp"
        every = {"every_updates": 5} if number % 2 else {"every_s": 0.4}
        made = _made(strategy, network, law, TASKS[task], evaluate=every)
        yield f"{name}/{network}/{law}/{task}", Configuration(made)
    for name, optimizer in OPTIMIZERS.items():
        made = _made(SERVERS["bsp"], "none", "lognormal", TASKS["digits-mlp"], optimizer=optimizer)
        yield f"bsp/none/lognormal/digits-mlp/{name}", Configuration(made)
    for kind in ("sgd", "adam"):
        optimizer = _MOMENTUM if kind == "sgd" else OPTIMIZERS["adam"]
        made = _made(SERVERS["bsp"], "none", "lognormal", _LARGE, optimizer=optimizer)
        yield f"bsp/none/lognormal/large/{kind}", Configuration(made)
    for model in ("pooled", "deep-markov"):
        made = _made(_cutoff(model), "ideal", "regimes", _TIMING, stop={"iterations": 30})
        yield f"cutoff-{model}/ideal/regimes/timing", Configuration(made)
    for name in ("processes", "batched"):
        executor = {"kind": name, **({"processes": 2} if name == "processes" else {"width": 4})}
        made = _made(SERVERS["asp"], "fair", "lognormal", TASKS["digits-mlp"], executor=executor)
        yield f"asp/fair/lognormal/digits-mlp/{name}", Configuration(made)


RESUMED: Final = ("bsp", "bsp-on-arrival", "ssp-lazy", "asp", "partial-push", "cutoff-mean-5")
RESUMED_PEERS: Final = ("ssgd", "local-sgd", "hpsgd", "diloco", "gossip")


def _saved() -> Iterator[tuple[str, Configuration]]:
    """Runs that save checkpoints, fail and are resumed; some with other numbers."""
    every = {"checkpoint": {"every_s": 0.3}}
    strategies = SERVERS | PEERS
    for name in (*RESUMED, *RESUMED_PEERS):
        for task in ("timing", "quadratic"):
            parts = _TIMING if task == "timing" else TASKS[task]
            made = _made(strategies[name], "serialised", "lognormal", parts, **every)
            yield f"{name}/serialised/lognormal/{task}/resumed", Configuration(made, "resume")
    made = _made(strategies["ssp-lazy"], "serialised", "lognormal", TASKS["quadratic"], **every)
    other = {"workers": 3, "servers": 3}
    name = "ssp-lazy/serialised/lognormal/quadratic/resumed-3-3"
    yield name, Configuration(made, "resume", other)
    made = _made(strategies["ssgd"], "fair", "lognormal", TASKS["digits-mlp"], **every)
    yield "ssgd/fair/lognormal/digits-mlp/resumed-5", Configuration(made, "resume", {"workers": 5})


FAILURES: Final[Mapping[str, list[Config]]] = {
    "worker-killed": [{"at_s": 0.7, "worker": 1}],
    "server-killed": [{"at_s": 0.7, "server": 0}],
}


def _failing() -> Iterator[tuple[str, Configuration]]:
    """Failures with two recoveries: a worker of a run with servers alone, all after any other."""
    for strategy, failure in (
        ("bsp", "worker-killed"),
        ("ssp-lazy", "worker-killed"),
        ("bsp", "server-killed"),
        ("ssgd", "worker-killed"),
    ):
        more = {
            "faults": {
                "schedule": FAILURES[failure],
                "recovery": {"worker_s": 0.2, "servers_s": 0.3, "detected_s": 0.05},
            },
            "checkpoint": {"every_s": 0.3},
        }
        task = "quadratic" if strategy in ("bsp", "ssgd") else "timing"
        parts = _TIMING if task == "timing" else TASKS[task]
        made = _made((SERVERS | PEERS)[strategy], "serialised", "lognormal", parts, **more)
        yield f"{strategy}/serialised/lognormal/{task}/{failure}", Configuration(made)


def _script(name: str, strategy: str, network: str, law: str, *arguments: str) -> Config:
    task = {"kind": "script", "path": str(INPUTS / name), "arguments": list(arguments)}
    made = _made((SERVERS | PEERS)[strategy], network, law, {"task": task})
    del made["stop"]  # the script decides
    return made


def _scripts() -> Iterator[tuple[str, Configuration]]:
    """Scripts that attach, and scripts with DistributedDataParallel."""
    for strategy, network, law, optimizer in (
        ("bsp", "none", "constant", "sgd"),
        ("bsp", "fair", "lognormal", "adamw"),
        ("ssp-lazy", "serialised", "slow-worker", "sgd"),
        ("asp", "ideal", "lognormal", "adamw"),
        ("drop-stragglers", "fair", "lognormal", "sgd"),
        ("changes", "machines", "lognormal", "sgd"),
        ("ssgd", "serialised", "lognormal", "adamw"),
        ("local-sgd", "fair", "lognormal", "sgd"),
        ("hpsgd", "serialised", "slow-worker", "sgd"),
        ("gossip", "fair", "lognormal", "sgd"),
    ):
        made = _script("attached.py", strategy, network, law, optimizer)
        yield f"{strategy}/{network}/{law}/script-{optimizer}", Configuration(made)
    for strategy, network, law in (
        ("ssgd", "none", "constant"),
        ("ssgd", "serialised", "lognormal"),
        ("ssgd-tree", "fair", "slow-worker"),
        ("local-sgd", "machines", "lognormal"),
        ("hpsgd", "fair", "lognormal"),
    ):
        made = _script("ddp.py", strategy, network, law)
        yield f"{strategy}/{network}/{law}/ddp", Configuration(made)


def _real() -> Iterator[tuple[str, Configuration]]:
    """Deterministic runs of processes."""
    for name, task, optimizer in (
        ("bsp", "digits-mlp", _MOMENTUM),
        ("bsp", "digits-mlp", OPTIMIZERS["adam"]),
        ("bsp", "large", _MOMENTUM),  # servers take steps in chunks
        ("bsp", "large", OPTIMIZERS["adam"]),
        ("ssgd", "digits-mlp", _MOMENTUM),
    ):
        parts = _LARGE if task == "large" else TASKS[task]
        made = _made((SERVERS | PEERS)[name], "none", "constant", parts)
        made |= {
            "deterministic": True,
            "probe": False,
            "compute": {"kind": "constant", "mean_s": 0.01},
            "optimizer": optimizer,
        }
        yield f"{name}/real/{task}/{optimizer['kind']}", Configuration(made, "real")


def _all() -> Iterator[tuple[str, Configuration]]:
    for part in (_timing, _trained, _saved, _failing, _scripts, _real):
        yield from part()


def configurations() -> dict[str, Configuration]:
    """Return all configurations by name. Raises ValueError for a name that occurs twice."""
    found: dict[str, Configuration] = {}
    for name, configuration in _all():
        if name in found:
            raise ValueError(f"two configurations are called {name}")
        found[name] = configuration
    return found
