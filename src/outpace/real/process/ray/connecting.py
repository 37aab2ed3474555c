"""The connection of this process to a Ray cluster, and its nodes.

All that depends on more than Ray's public interface is in this file. Ray has no public way to do
what these of its private names are used for: to know which address it takes for the loopback
address (`services.get_node_ip_address`) and which cluster for `auto`
(`services.get_ray_address_from_environment`), to be reached on the loopback address as it is
(`ray_constants.ENABLE_RAY_CLUSTER`), not to print what the nodes report
(`worker.print_to_stdstream`), to know the free resources of each node
(`available_resources_per_node`) and which nodes are drained (`state.get_draining_nodes`). Whether
an actor has ended with its node is known from the words of its error alone (`has_lost_its_node`).
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
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import ray
from ray._private import ray_constants, services, worker
from ray._private.state import available_resources_per_node, state
from ray.exceptions import ActorDiedError, RayError
from ray.util.placement_group import PlacementGroup, placement_group_table

from outpace.errors import ConfigError
from outpace.real.elastic.view import Node
from outpace.real.net.addresses import LOOPBACK, is_loopback
from outpace.real.process.ray.left_behind import PassingFolder
from outpace.real.process.ray.placing import RESOURCES

_REACH_S: Final = 5.0
_STORE_BYTES: Final = 100 << 20  # Ray's object store in a cluster that is started here
_AUTH_MODE: Final = "RAY_AUTH_MODE"
_LEAVE_S: Final = 60.0  # for other threads to come back from Ray


def node_names() -> dict[str, str]:
    """Return the names of all nodes by their ids: different ones, as readable as possible."""
    found = {}
    for node in ray.nodes():
        own, address = node["NodeName"], node["NodeManagerAddress"]
        found[node["NodeID"]] = node["NodeManagerHostname"] if own == address else own
    names = list(found.values())
    return {
        each: name if names.count(name) == 1 else f"{name}-{each[:6]}"
        for each, name in found.items()
    }


def resources_of_nodes() -> dict[str, dict[str, float]]:
    """Return the resources of each node that is alive, used or not, by its id."""
    return {node["NodeID"]: node["Resources"] for node in ray.nodes() if node["Alive"]}


def nodes_now() -> Sequence[Node]:
    """Return the nodes that are alive."""
    free, drained, names = available_resources_per_node(), state.get_draining_nodes(), node_names()
    return [
        Node(
            id=each,
            name=names.get(each, each),
            free={name: free[each].get(name, 0.0) for name in RESOURCES},
            is_drained=each in drained,
        )
        for each in sorted(resources_of_nodes())
        if each in free
    ]


def nodes_of(group: PlacementGroup) -> Mapping[int, str]:
    """Return the ids of the nodes of a group's bundles, by index; without those that have none."""
    found: Mapping[int, str] = placement_group_table(group).get("bundles_to_node_id", {})
    return {index: node for index, node in found.items() if node}


def has_lost_its_node(error: ActorDiedError) -> bool:
    """True if an actor has ended because its node has."""
    return "its node has died" in str(error)


def last_line(error: BaseException) -> str:
    """Return the last line of an error, which has the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


class _Threads:
    """The threads that are in a function of Ray, beside the one that connects.

    Ray ends the whole process, by `_exit`, if a thread calls it after `ray.shutdown`, or is in a
    stream then; or it connects again by itself, to any cluster.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count, self._is_left = 0, True

    def connect(self) -> None:
        """This process has connected."""
        with self._changed:
            self._is_left = False

    def leave(self) -> bool:
        """Let no more threads in, and wait for those that are; False: some do not come back."""
        with self._changed:
            self._is_left = True
            return self._changed.wait_for(lambda: not self._count, _LEAVE_S)

    @contextlib.contextmanager
    def enter(self) -> Iterator[None]:
        """Keep this process connected for the block. See `staying_connected`."""
        with self._changed:
            if self._is_left:
                raise RuntimeError("this process is not connected to Ray")
            self._count += 1
        try:
            yield
        finally:
            with self._changed:
                self._count -= 1
                self._changed.notify_all()


_THREADS: Final = _Threads()


@contextlib.contextmanager
def staying_connected() -> Iterator[None]:
    """Keep this process connected for a block, or a function, in which a thread calls Ray.

    Every thread but that of `connected` calls Ray in such a block only.

    Raises:
        RuntimeError: this process is not connected, or about to disconnect.
    """
    with _THREADS.enter():
        yield


def _disconnect() -> None:
    """Disconnect, unless a thread does not come back from Ray: then the process stays connected."""
    if _THREADS.leave():
        ray.shutdown()


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
        _THREADS.connect()
        try:
            yield
        finally:
            _THREADS.leave()
        return
    address = address or os.environ.get("RAY_ADDRESS") or ""
    if "://" in address:
        raise ConfigError(
            f"{key}: {address} is the address of a Ray client, and a run is started on "
            "a machine of the cluster: give HOST:PORT, or use `ray job submit`"
        )
    with contextlib.ExitStack() as closing:
        closing.callback(_without_mode, os.environ.get(_AUTH_MODE))
        if address == "local":
            _start(needed, closing, key)
        elif address in ("", "auto"):
            try:
                host, port = _running()
                if _is_on_loopback(host, port):
                    with _on_loopback():
                        _init(address=f"{host}:{port}")
                else:
                    _init(address="auto")
            except ConnectionError:
                if address == "auto":
                    raise ConfigError(
                        f"{key}: auto: no Ray cluster runs on this machine: start one "
                        "with `ray start --head`, or give HOST:PORT"
                    ) from None
                _start(needed, closing, key)
        else:
            _reach(address, key)
        _THREADS.connect()
        closing.callback(_disconnect)
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
    own = _is_on_loopback(host, int(port))
    other = services.get_node_ip_address() if _is_mine(host) else host
    if not _answers(host if own else other, int(port)):
        raise ConfigError(
            f"{key}: no Ray cluster answers at {address} within {_REACH_S:g} s: look at "
            "it with `ray status`, and give the address that `ray start --head` has printed"
        )
    try:
        with _on_loopback() if own else contextlib.nullcontext():
            _init(address=address)
    except (ConnectionError, RuntimeError, RayError) as error:
        raise ConfigError(
            f"{key}: the cluster at {address} cannot be used: {last_line(error)}"
        ) from None


def _running() -> tuple[str, int]:
    """Return host and port of the cluster that Ray takes for `auto`.

    Raises:
        ConnectionError: there is none.
    """
    with _quiet():
        found = services.get_ray_address_from_environment("auto", None)
    host, _, port = str(found).rpartition(":")
    return host, int(port) if port.isdecimal() else 0


def _is_mine(host: str) -> bool:
    return host == "localhost" or is_loopback(host)


def _is_on_loopback(host: str, port: int) -> bool:
    """True if a cluster is on the loopback interface alone.

    Ray takes the loopback address for another one of this machine. A cluster may be there, too.
    """
    return _is_mine(host) and not _answers(services.get_node_ip_address(), port)


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
