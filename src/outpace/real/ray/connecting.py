"""The connection of this process to a Ray cluster.

All that depends on more than Ray's public interface is in this file and in `nodes`. Ray has no
public way to do what these of its private names are used for: to know which address it takes for
the loopback address (`services.get_node_ip_address`) and which cluster for `auto`
(`services.get_ray_address_from_environment`), to be reached on the loopback address as it is
(`ray_constants.ENABLE_RAY_CLUSTER`), and not to print what the nodes report
(`worker.print_to_stdstream`).

Only one thread of this process may call Ray: Ray ends the whole process, by `_exit`, if a
thread calls it after `ray.shutdown`, or connects again by itself, to any cluster. What takes long
is asked of a task.
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
_STORE_BYTES: Final = 100 << 20  # Ray's object store in a cluster that is started here
_AUTH_MODE: Final = "RAY_AUTH_MODE"


@contextlib.contextmanager
def connected(address: str | None, needed: float, key: str) -> Iterator[None]:
    """Connect to a cluster for this block.

    Args:
        address: HOST:PORT, auto or local; None: RAY_ADDRESS, else as auto, else as local.
        needed: processors, if a cluster is started.
        key: names the address in errors.

    Raises:
        ConfigError: there is no cluster, or it cannot be used.
    """
    if ray.is_initialized():  # by the user's program, which ends it
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
    """Keep Ray from printing what its nodes report: standard output is the run's.

    What concerns the run is in the errors of its actors.
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
                _temp_dir=f"{own.path}/r",  # whose mode Ray sets to 0777
                _node_ip_address=LOOPBACK,
            )
        except Exception as error:  # Ray raises a plain one if its processes are late
            ray.shutdown()
            raise ConfigError(
                f"{key}: Ray cannot be started on this machine: {last_line(error)}"
            ) from None


def _reach(address: str, key: str) -> None:
    """Connect to the cluster at HOST:PORT. Raises ConfigError."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(f"{key}: {address}: must be HOST:PORT, auto or local")
    # Ray takes the loopback address for another one of this machine. A cluster may be there, or on
    # the loopback interface alone.
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
    """Return the address of the cluster that Ray takes for `auto`; empty if there is none."""
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
    """Have Ray use the loopback address as it is, which it does by itself except on Linux."""
    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def _init(**options: Any) -> None:
    """Call ray.init, which then prints nothing, and leaves the handler of SIGTERM as it was."""
    is_main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM) if is_main else None
    with _quiet():  # else it says that a new cluster has a token
        try:
            ray.init(log_to_driver=False, configure_logging=False, **options)
        finally:
            if handler is not None:
                signal.signal(signal.SIGTERM, handler)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Have Ray print no warnings."""
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
