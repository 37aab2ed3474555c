"""The connection of this process to a Ray cluster.

Only this file and `nodes` use more than Ray's public interface. There is no public way to do the
following: to find the address that Ray uses for the loopback address
(`services.get_node_ip_address`), and the cluster that it uses for `auto`
(`services.get_ray_address_from_environment`); to be reached on the loopback address itself
(`ray_constants.ENABLE_RAY_CLUSTER`); and to suppress the reports of the nodes
(`worker.print_to_stdstream`).

Only one thread of this process may call Ray: if a thread calls it after `ray.shutdown`, Ray ends
the whole process by `_exit`, or connects again by itself to any cluster. Slow questions are
answered by a task.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import socket
import threading
import warnings
from collections.abc import Iterator
from typing import Any, Final

import ray
from ray._private import ray_constants, services, worker
from ray.exceptions import RayError

from outpace.errors import ConfigError
from outpace.real.net.addresses import LOOPBACK, is_loopback
from outpace.real.ray.left_behind import PassingFolder
from outpace.real.ray.nodes import last_line

_REACH_S: Final = 5.0
_STORE_BYTES: Final = 100 << 20  # size of Ray's object store in a cluster that is started here
_AUTH_MODE: Final = "RAY_AUTH_MODE"


@contextlib.contextmanager
def connected(address: str | None, needed: float, key: str) -> Iterator[None]:
    """Connect to a cluster for this block.

    Args:
        address: HOST:PORT, auto or local; None: RAY_ADDRESS, else auto, else local.
        needed: number of processors, if a cluster is started.
        key: name of the address in errors.

    Raises:
        ConfigError: if there is no cluster, or if it cannot be used.
    """
    if ray.is_initialized():  # the user's program has made the connection, and ends it
        yield
        return
    address = address or os.environ.get("RAY_ADDRESS") or ""
    if "://" in address:
        raise ConfigError(
            f"{key}: {address} is the address of a Ray client, and a run is started on "
            "a machine of the cluster: give HOST:PORT, or use `ray job submit`"
        )
    with contextlib.ExitStack() as closing:
        closing.callback(_without_mode, os.environ.get(_AUTH_MODE))
        if address in ("", "auto"):
            running = _running()
            if not running and address == "auto":
                raise ConfigError(
                    f"{key}: auto: no Ray cluster runs on this machine: start one "
                    "with `ray start --head`, or give HOST:PORT"
                )
            address = running or "local"
        if address == "local":
            _start(needed, closing, key)
        else:
            _reach(address, key)
        closing.callback(ray.shutdown)
        closing.enter_context(_silent())
        yield


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Keep Ray from printing reports of its nodes, because standard output belongs to the run.

    Reports about the run are in the errors of its actors.
    """
    before = worker.print_to_stdstream
    worker.print_to_stdstream = lambda *_, **__: None
    try:
        yield
    finally:
        worker.print_to_stdstream = before


def _start(cpus: float, closing: contextlib.ExitStack, key: str) -> None:
    """Start a cluster on this machine, for this process alone. Raises ConfigError."""
    own = PassingFolder("outpace-ray-")
    closing.callback(own.close)
    closing.callback(shutil.rmtree, own.path, ignore_errors=True)
    with _on_loopback():
        try:
            _init(
                address="local",
                num_cpus=max(os.cpu_count() or 1, int(cpus + 1)),
                include_dashboard=False,
                object_store_memory=_STORE_BYTES,
                _temp_dir=f"{own.path}/r",  # a folder whose mode Ray sets to 0777
                _node_ip_address=LOOPBACK,
            )
        except Exception as error:  # Ray raises a plain exception if its processes are late
            ray.shutdown()
            raise ConfigError(
                f"{key}: Ray cannot be started on this machine: {last_line(error)}"
            ) from None


def _reach(address: str, key: str) -> None:
    """Connect to the cluster at HOST:PORT. Raises ConfigError."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(f"{key}: {address}: must be HOST:PORT, auto or local")
    # Ray replaces the loopback address by another address of this machine. A cluster may be at that
    # address, or only on the loopback interface.
    is_loop = host == "localhost" or is_loopback(host)
    taken_for = services.get_node_ip_address() if is_loop else host
    connect: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if not _answers(taken_for, int(port)):
        if not (is_loop and _answers(host, int(port))):
            raise ConfigError(
                f"{key}: no Ray cluster answers at {address} within {_REACH_S:g} s: look at it "
                "with `ray status`, and give the address that `ray start --head` has printed"
            )
        connect = _on_loopback()
    try:
        with connect:
            _init(address=address)
    except (ConnectionError, RuntimeError, RayError) as error:
        raise ConfigError(
            f"{key}: the cluster at {address} cannot be used: {last_line(error)}"
        ) from None


def _running() -> str:
    """Return the address of the cluster that Ray uses for `auto`; empty if there is none."""
    with _quiet(), contextlib.suppress(ConnectionError):
        return str(services.get_ray_address_from_environment("auto", None))
    return ""


def _answers(host: str, port: int) -> bool:
    with contextlib.suppress(OSError, OverflowError):
        socket.create_connection((host, port), _REACH_S).close()
        return True
    return False


@contextlib.contextmanager
def _on_loopback() -> Iterator[None]:
    """Make Ray use the loopback address itself, which it does by default except on Linux."""
    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def _init(**options: Any) -> None:
    """Call ray.init without output, and restore the handler of SIGTERM."""
    is_main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM) if is_main else None
    with _quiet():  # otherwise Ray prints that a new cluster has a token
        try:
            ray.init(log_to_driver=False, configure_logging=False, **options)
        finally:
            if handler is not None:
                signal.signal(signal.SIGTERM, handler)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep Ray from printing warnings."""
    logger = logging.getLogger("ray")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _without_mode(before: str | None) -> None:
    """Undo that Ray has set its variable for a cluster with a token."""
    if before is None:
        os.environ.pop(_AUTH_MODE, None)
