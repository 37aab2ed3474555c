"""Malicious and faulty peers, over real sockets: they are refused, named, and do no damage."""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
import torch
import zmq
from tests.support.blocks_on_the_wire import any_block

from outpace.config.reading import experiment_from
from outpace.errors import OutpaceError
from outpace.experiment.running import run, simulate
from outpace.real.net.addresses import LOOPBACK
from outpace.real.net.clock import RealClock
from outpace.real.net.messages import (
    Fetch,
    Go,
    Initialize,
    JoinRun,
    Plan,
    Ready,
    Refused,
    ReplaceWorker,
    Snapshot,
)
from outpace.real.net.report_messages import Notice
from outpace.real.net.sparse_log import SparseLog
from outpace.real.net.transport import FIRST, Handlers, Keys, Session, new_keys
from outpace.real.net.wire import ANY_MESSAGE, HEADER_BYTES, Envelope, Outgoing
from outpace.real.node.member import COORDINATOR, CoordinatorLink
from outpace.real.node.server import Server
from outpace.real.process.launcher import Role
from outpace.real.process.local import LocalLauncher
from outpace.real.zeromq.transport import ZeroMQTransport
from outpace.sync.messages import Pull, Push, Reply, WireMessage

RUN, GENERATION = 4567, FIRST
WORKERS = ["worker-0", "worker-1", "worker-2"]


class Post:
    """A listener in this process, which works only during `until`."""

    def __init__(self, name: str, members: list[str]) -> None:
        self.name, self.log = name, list[str]()
        self.got: list[tuple[str, WireMessage]] = []
        self.lost: list[str] = []
        self.keys = {who: new_keys() for who in [name, *members]}
        self.clock = RealClock()
        self.transport = ZeroMQTransport(name, self.session(name), self.clock, self.log.append)
        self.listener = self.transport.listen(
            LOOPBACK,
            {who: self.public(who) for who in members},
            Handlers(any_block, self._take, self.lost.append),
        )
        self.callers: list[Honest] = []
        self.step = lambda: self.clock(self.clock.now + 5_000_000)

    def session(self, who: str) -> Session:
        return Session(RUN, GENERATION, 10.0, self.keys[who])

    def public(self, who: str) -> str:
        return self.keys[who].public

    def _take(self, name: str, message: WireMessage) -> None:
        self.got.append((name, message))

    def call(self, name: str, *, endpoint: str = "", key: str | None = None) -> Honest:
        return Honest(self, name, endpoint or self.listener.endpoint, key)

    def until(self, condition: Callable[[], Any], limit_s: float = 20.0) -> None:
        """Let everything in this process continue until then."""
        deadline = time.monotonic() + limit_s
        while not condition():
            assert time.monotonic() < deadline, (self.log, self.got)
            self.step()

    def until_logged(self, *words: str) -> None:
        self.until(lambda: any(all(word in line for word in words) for line in self.log))

    def require_heard(self, name: str = "worker-1") -> Honest:
        """Require that a new, honest caller of this name can send and receive."""
        honest = self.call(name)
        honest.send(Ready())
        self.until(lambda: (name, Ready()) in self.got)
        self.require_reaches(honest, "welcome")
        return honest

    def require_reaches(self, honest: Honest, text: str) -> None:
        self.listener.send(honest.name, Notice(text))
        self.until(lambda: Notice(text) in honest.got)

    def close(self) -> None:
        for caller in self.callers:
            caller.close()
        self.listener.close(linger_s=0)
        self.transport.close()


class Honest:
    """A caller in the same process."""

    def __init__(self, post: Post, name: str, endpoint: str, key: str | None) -> None:
        self.name = name
        self.got: list[WireMessage] = []
        self.lost: list[str] = []
        self.transport = ZeroMQTransport(name, post.session(name), post.clock, post.log.append)
        self.caller = self.transport.call(
            "server",
            endpoint,
            post.public(post.name) if key is None else key,
            Handlers(any_block, self._take, self.lost.append),
        )
        post.callers.append(self)
        self.send = self.caller.send

    def close(self) -> None:
        self.caller.close(linger_s=0)
        self.transport.close()

    def _take(self, _: str, message: WireMessage) -> None:
        self.got.append(message)


class Stranger:
    """A raw socket under any name, with any keys."""

    def __init__(
        self,
        endpoint: str,
        name: bytes,
        keys: Keys | None = None,
        key: str = "",
    ) -> None:
        self.context: zmq.Context[Any] = zmq.Context()
        self.context.linger = 0
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.routing_id = name
        if keys is not None:
            self.socket.curve_serverkey = key.encode()
            self.socket.curve_publickey = keys.public.encode()
            self.socket.curve_secretkey = keys.secret.encode()
        self.socket.connect(endpoint)
        self.outgoing = Outgoing(RUN, GENERATION)

    def send(self, message: WireMessage) -> list[bytes]:
        """Send a correct message; return the frames of its last part."""
        with contextlib.suppress(zmq.Again):  # the connection has been refused already
            for part in self.outgoing.frames(message):
                self.socket.send_multipart(part, zmq.NOBLOCK)
        return [bytes(frame) for frame in part]

    def heard(self) -> WireMessage | None:
        if not self.socket.poll(0):
            return None
        raw = msgspec.msgpack.decode(self.socket.recv_multipart()[0], type=Envelope).message
        return msgspec.msgpack.decode(raw, type=ANY_MESSAGE)

    def close(self) -> None:
        self.context.destroy(linger=0)


@pytest.fixture
def stranger() -> Iterator[Callable[..., Stranger]]:
    with contextlib.ExitStack() as stack:
        yield lambda *what: stack.enter_context(contextlib.closing(Stranger(*what)))


@pytest.fixture
def post() -> Iterator[Post]:
    with contextlib.closing(Post("server-0", WORKERS)) as post:
        yield post


def member(post: Post, stranger: Callable[..., Stranger], owner: str, name: str) -> Stranger:
    """A client that has the owner's keys and calls itself by this name."""
    return stranger(post.listener.endpoint, name.encode(), post.keys[owner], post.public(post.name))


# -- who may come in ------------------------------------------------------------------


def test_who_has_another_members_key_can_neither_be_nor_shut_out_that_member(
    post, stranger, monkeypatch
):
    tails: list[str] = []
    monkeypatch.setattr(secrets, "token_hex", lambda _: tails.append(f"{len(tails)}") or tails[-1])
    before = member(post, stranger, "worker-0", "worker-1")
    before.send(Ready())
    post.until_logged("refused", "'worker-1'", "its key belongs to worker-0")
    honest = post.require_heard("worker-1")
    identities = [f"worker-1/{tail}" for tail in tails]  # one of them is the honest caller's
    for number, name in enumerate(("worker-1", *identities, "worker-1/again")):
        other = member(post, stranger, "worker-0", name)
        other.send(Ready())
        post.require_reaches(honest, f"still there {number}?")
    post.until_logged("'worker-1'", "worker-0", "2 times")
    assert post.got == [("worker-1", Ready())]
    assert post.lost == []
    post.require_heard("worker-0")


def test_without_a_key_that_is_known_nobody_comes_in(post, stranger):
    server = post.keys["server-0"].public
    frames = [
        stranger(post.listener.endpoint, b"worker-1", new_keys(), server),
        stranger(post.listener.endpoint, b"worker-1"),
        stranger(post.listener.endpoint, b"worker-1", post.keys["worker-1"], new_keys().public),
    ]
    for who in frames:
        who.send(Ready())
    post.until_logged("refused a connection from 127.0.0.1: unknown key")
    post.until_logged("refused a connection that does not use the protocol of this run")
    post.require_heard("worker-1")
    assert post.got == [("worker-1", Ready())]


def test_no_message_of_a_stranger_is_collected(post):
    """ZeroMQ would keep all frames of a message, without bound, until the last of them comes."""
    ready = b"\x04\x29\x05READY\x0bSocket-Type\0\0\0\x06DEALER\x08Identity\0\0\0\0"
    frame = b"\x03" + (1 << 20).to_bytes(8, "big") + bytes(1 << 20)  # more frames follow
    with tcp(post.listener.endpoint) as connection:
        connection.sendall(b"\xff" + bytes(8) + b"\x7f\x03\0" + b"NULL".ljust(52, b"\0") + ready)
        sent = 0
        with contextlib.suppress(ConnectionError):
            for _ in range(64):
                connection.sendall(frame)
                sent += 1
    assert sent < 64, "all 64 MiB were read"


def left(held: list[socket.socket]) -> int:
    """Drop connections that were closed at the other end; return the number of the others."""
    for each in select.select(held, [], [], 0)[0]:
        if not each.recv(64):
            held.remove(each)
    return len(held)


def test_strangers_hold_no_more_than_a_few_connections(post):
    honest = post.require_heard("worker-0")
    with contextlib.ExitStack() as opened:
        held = [opened.enter_context(tcp(post.listener.endpoint)) for _ in range(90)]
        post.until(lambda: left(held) <= 32 + len(WORKERS))  # some of these have not come yet
        post.require_reaches(honest, "still there?")
        post.require_heard("worker-1")
    assert post.lost == []


def test_a_peer_that_has_sent_nothing_yet_keeps_its_connection(post):
    """Otherwise its first message would be lost, and all further ones would be refused."""
    silent = [post.call(name) for name in WORKERS]
    post.until(lambda: all(each.caller.up for each in silent))
    with contextlib.ExitStack() as opened:
        for _ in range(90):
            assert opened.enter_context(tcp(post.listener.endpoint)).recv(10)  # it is accepted
        for _ in range(20):  # more time than notices of 90 connections need
            post.step()
        for each in silent:
            each.send(Ready())
        post.until(lambda: {name for name, _ in post.got} == set(WORKERS))
    assert post.lost == []
    assert all(each.lost == [] for each in silent)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff\0\0\0\0\0\0\0\1\x7f\3\1CURVE" + bytes(60) + b"\4\xff" + b"\xff" * 300,
    ],
    ids=["nothing", "http", "a greeting, then noise"],
)
def test_plain_tcp_is_refused(post, data):
    with tcp(post.listener.endpoint) as connection:
        connection.sendall(data)
    post.until_logged("connection")
    post.require_heard()
    assert post.got == [("worker-1", Ready())]


def tcp(endpoint: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(endpoint.rsplit(":", 1)[1])), 10)


@pytest.mark.slow
def test_no_number_of_connections_stops_the_socket(post):
    """ZeroMQ blocks if its events are not read; 2000 events were enough for that."""
    for _ in range(2500):
        with tcp(post.listener.endpoint) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
    post.require_heard()


# -- messages of strangers -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("frames", "why"),
    [([b"\x94\xc1noise"], "cannot be decoded"), ([b"x"] * 5000, "1 or 2 frames, not 5000")],
    ids=["noise", "many frames"],
)
def test_what_is_no_message_of_this_run_is_refused(post, stranger, frames, why):
    who = member(post, stranger, "worker-1", "worker-1/odd")
    who.socket.send_multipart(frames)
    post.until_logged("refused a message of 'worker-1'", why)
    post.require_heard("worker-1")
    post.require_heard("worker-0")
    assert post.got == [("worker-1", Ready()), ("worker-0", Ready())]


def test_a_frame_beyond_the_limit_ends_its_connection_and_nothing_else(post, stranger):
    who = member(post, stranger, "worker-1", "worker-1/large")
    who.socket.send(bytes(HEADER_BYTES + 1000))
    post.until_logged("a connection ended that had brought no message of this run")
    post.require_heard("worker-0")
    assert post.lost == []


@pytest.mark.parametrize("name", [b"worker-9", b"worker-1\xff", b"worker-1\n\x1b[31m", b"x" * 255])
def test_a_name_that_nobody_has_is_refused_in_one_printable_line(stranger, name):
    with contextlib.closing(Post("server-0", WORKERS)) as post:
        keys, server = post.keys["worker-1"], post.public("server-0")
        stranger(post.listener.endpoint, name, keys, server).send(Ready())
        post.until_logged("refused a message of", "its key belongs to worker-1")
        assert all(line.isprintable() and len(line) < 500 for line in post.log)
        post.require_heard()


def test_many_names_fill_neither_log_nor_memory(stranger):
    log: list[str] = []
    lines = SparseLog(log.append)
    tracemalloc.start()
    for number in range(1000):
        lines.note(f"refused {number}" + "\n" * 10_000)
        lines.note("refused again")
    assert len(log) < 300
    assert sum(map(len, log)) < 300 * 500
    assert tracemalloc.get_traced_memory()[0] < 1_000_000
    tracemalloc.stop()
    lines.note("a member did this", always=True)
    assert log[-1] == "a member did this"
    with contextlib.closing(Post("server-0", WORKERS)) as post:
        for number in range(20):
            member(post, stranger, "worker-0", f"worker-{100 + number}").send(Ready())
        post.until_logged("worker-119")
        assert post.listener.peers == []
        assert post.got == []


# -- messages of members ---------------------------------------------------------------------


def test_a_peer_that_goes_astray_is_told_and_never_listened_to_again(post, stranger):
    honest = post.require_heard("worker-0")
    who = member(post, stranger, "worker-1", "worker-1/odd")
    who.send(Ready())
    post.until(lambda: ("worker-1", Ready()) in post.got)
    who.socket.send_multipart([msgspec.msgpack.encode((RUN, GENERATION, 5, Ready()))])  # not 1
    post.until_logged("refused a message of 'worker-1', and all further ones")
    heard: list[WireMessage | None] = []
    post.until(lambda: heard.append(who.heard()) or heard[-1])
    assert isinstance(heard[-1], Refused)
    assert post.lost == ["worker-1"]
    who.send(Ready())
    who.close()
    stranger_again = member(post, stranger, "worker-1", "worker-1/again")
    stranger_again.send(Ready())
    post.until_logged("'worker-1'", "has been here already")
    post.require_reaches(honest, "continue")
    assert post.got == [("worker-0", Ready()), ("worker-1", Ready())]
    assert post.listener.peers == ["worker-0"]
    assert post.lost == ["worker-1"]
    post.require_heard("worker-2")


# -- a real server --------------------------------------------------------------------------

EXPERIMENT = {
    "task": {"kind": "digits-mlp"},
    "workers": 3,
    "sync": {"kind": "asp"},
    "optimizer": {"lr": 3.0},
    "stop": {"iterations": 10},
}
START = torch.arange(6, dtype=torch.float32)


class Cluster:
    """A server with two honest workers, all in this process; begun: their run has begun."""

    def __init__(self, *, begun: bool = True) -> None:
        self.post = post = Post(COORDINATOR, ["server-0", *WORKERS])
        key = post.public(COORDINATOR)
        link = CoordinatorLink("server-0", post.listener.endpoint, key, post.session("server-0"))
        keys = {who: post.public(who) for who in WORKERS}
        self.server = Server(link, 0, experiment_from(EXPERIMENT, "the test"), keys)
        self.key = post.public("server-0")
        post.step = self._step
        self.server.spawn(self.server.serve())
        self._until_said(lambda message: isinstance(message, JoinRun))
        post.listener.send("server-0", Plan([], [], [6], [0, 6], "float32", ""))
        self._until_said(lambda message: message == Ready())
        endpoint = self.server.listener.endpoint
        self.honest = [post.call(name, endpoint=endpoint, key=self.key) for name in WORKERS[:2]]
        self.honest[0].send(Initialize("", [], [], START))
        self._until_said(lambda message: message == Ready(), 2)
        if begun:
            self.begin()

    def begin(self) -> None:
        self.post.listener.send("server-0", Go(0, "elsewhere"))

    def third(self, stranger: Callable[..., Stranger]) -> Stranger:
        """Return a client that has the keys of worker 2."""
        endpoint, keys = self.server.listener.endpoint, self.post.keys["worker-2"]
        return stranger(endpoint, b"worker-2", keys, self.key)

    def _step(self) -> None:
        self.server.kernel.run(until=self.server.kernel.now + 2_000_000)
        self.post.clock(self.post.clock.now)

    def _until_said(self, what: Callable[[WireMessage], bool], times: int = 1) -> None:
        self.post.until(lambda: sum(what(message) for _, message in self.post.got) >= times)

    def until_noticed(self, *words: str) -> None:
        self._until_said(
            lambda message: (
                isinstance(message, Notice) and all(word in message.text for word in words)
            )
        )

    @property
    def state(self) -> tuple[Any, ...]:
        shard = self.server.shard
        block = shard.read()
        assert isinstance(block, torch.Tensor)
        waiting = shard.describe_waiting()
        return shard.version, shard.clock, shard.live, block.tolist(), waiting

    def require_training(self, iteration: int) -> None:
        """Require that both honest workers push and get the resulting parameters."""
        for worker, honest in enumerate(self.honest):
            version = self.server.shard.version
            before = self.server.shard.read()
            assert isinstance(before, torch.Tensor)
            gradient = torch.ones(6)
            honest.send(Push(worker, iteration, version, gradient))
            honest.send(Pull(worker, iteration, 0.5))
            count = len(honest.got)
            self.post.until(lambda honest=honest, count=count: len(honest.got) > count)
            assert isinstance(honest.got[-1], Reply)
            assert honest.got[-1].version == version + 1
            after = self.server.shard.read()
            assert torch.equal(after, before - 1.0)  # of three workers

    def close(self) -> None:
        self.server.close()
        self.post.close()


BAD = {
    "another's rank in a push": (Push(1, 5, 0, START), "it speaks for worker 1"),
    "another's rank in a pull": (Pull(0, 5, 0.5), "it speaks for worker 0"),
    "another dtype": (Push(2, 0, 0, START.double()), "6 elements of float64"),
    "more than there is": (Push(2, 0, 0, torch.zeros(10**6)), "1000000 elements"),
    "an iteration far off": (Push(2, 2**61, 0, START), "pushed iteration 2305"),
    "a version to come": (Push(2, 0, 99, START), "version 99"),
    "parameters": (
        Initialize("", [], [], START),
        "Initialize is not accepted from this worker",
    ),
    "a reply": (Reply(0, 2, 0, 0, 0, 0, START), "must not come with a block"),
    "an order": (ReplaceWorker(0, 1, False), "ReplaceWorker is not accepted"),
}


@pytest.mark.parametrize(("bad", "why"), BAD.values(), ids=BAD)
def test_a_server_refuses_a_worker_and_goes_on_with_the_others(stranger, bad, why):
    with contextlib.closing(Cluster()) as cluster:
        cluster.require_training(0)
        who = cluster.third(stranger)
        who.send(Fetch("initial"))
        cluster.post.until(lambda: isinstance(who.heard(), Snapshot))
        before = cluster.state
        who.send(bad)
        who.send(Push(2, 0, 0, START))  # proper, but too late
        cluster.until_noticed("refused a message of 'worker-2', and all further ones", why)
        assert cluster.state == before
        cluster.require_training(1)
        heard: list[WireMessage | None] = []
        cluster.post.until(lambda: heard.append(who.heard()) or isinstance(heard[-1], Refused))
        assert cluster.server.shard.clock == 0  # nothing of worker 2 counts as progress


def test_a_gradient_that_is_not_finite_counts_as_progress_and_changes_nothing(stranger):
    with contextlib.closing(Cluster()) as cluster:
        cluster.require_training(0)
        who = cluster.third(stranger)
        version, clock, live, block, waiting = cluster.state
        who.send(Push(2, 0, version, torch.full((6,), torch.nan)))
        cluster.until_noticed("a gradient of worker 2 is not finite")
        cluster.post.until(lambda: cluster.state[1] == clock + 1)
        assert cluster.state == (version, clock + 1, live, block, waiting)
        cluster.require_training(1)


# -- a whole run under attack -------------------------------------------------------------------


class Attack:
    """All kinds of attacks from outside, repeated at every endpoint of a run."""

    def __init__(self, engine: Any, roles: list[Role]) -> None:
        self._engine = engine
        self._links: dict[str, CoordinatorLink] = {role.name: role.arguments[0] for role in roles}
        self._over = threading.Event()
        self.rounds = 0
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._attack)
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        self._thread.join(30)
        if self.error is not None:
            raise self.error

    def _attack(self) -> None:
        at: dict[str, list[Stranger]] = {}
        try:
            while not self._over.wait(0.02):
                joined = self._engine.coordinator.state.joined
                servers = {n: j.endpoint for n, j in list(joined.items()) if j.endpoint}
                endpoints = servers | {COORDINATOR: self._engine.coordinator.listener.endpoint}
                for name, endpoint in endpoints.items():
                    if name not in at:
                        at[name] = self._strangers(name, endpoint)
                    self._round(at[name], endpoint)
                self.rounds += 1
        except BaseException as error:
            self.error = error
        finally:
            for strangers in at.values():
                for who in strangers:
                    who.close()

    def _strangers(self, server: str, endpoint: str) -> list[Stranger]:
        link = self._links["worker-2"]  # a process of the run that claims another name
        key = link.key if server == COORDINATOR else self._links[server].session.keys.public
        made = []
        for victim in (b"worker-0", b"worker-1", b"server-0"):
            made.append(Stranger(endpoint, victim))
            made.append(Stranger(endpoint, victim, new_keys(), key))
            made.append(Stranger(endpoint, victim, link.session.keys, key))
            made[-1].outgoing = Outgoing(link.session.run, 0)
        for who in made:
            who.socket.sndhwm = 10
        return made

    def _round(self, strangers: list[Stranger], endpoint: str) -> None:
        block = torch.full((100,), torch.nan)
        push = Push(0, self.rounds, 0, block)
        for who in strangers:
            with contextlib.suppress(zmq.Again):
                for frames in who.outgoing.frames(push):
                    who.socket.send_multipart(frames, zmq.NOBLOCK)
                who.socket.send_multipart([os.urandom(50)] * 3, zmq.NOBLOCK)
                who.socket.send(
                    bytes(2 * HEADER_BYTES if self.rounds % 20 == 0 else 9), zmq.NOBLOCK
                )
        with contextlib.suppress(OSError), tcp(endpoint) as connection:
            connection.sendall(os.urandom(200))


@pytest.mark.slow
def test_a_run_under_fire_ends_as_if_there_was_none(monkeypatch):
    roles: list[Role] = []
    start = LocalLauncher.start
    monkeypatch.setattr(
        LocalLauncher, "start", lambda *self_and: roles.append(self_and[1]) or start(*self_and)
    )
    config = {
        "seed": 7,
        "task": {"kind": "digits-mlp"},
        "workers": 3,
        "servers": 2,
        "compute": {"kind": "constant", "mean_s": 0.05},
        "sync": {"kind": "bsp"},
        "batch_size": 8,
        "optimizer": {"lr": 0.05, "momentum": 0.9},
        "deterministic": True,
        "stop": {"iterations": 25},
    }
    log: list[str] = []
    attacks: list[Attack] = []
    try:
        result = run(
            config,
            log=log.append,
            watch=lambda engine: attacks.append(Attack(engine, roles)),
        )
    except OutpaceError as error:
        pytest.fail(f"{error}\n{log}")
    finally:
        for attack in attacks:
            attack.end()
    assert attacks[0].rounds > 5  # each at all endpoints
    expected = simulate(config)
    assert result.summary["parameters_digest"] == expected.summary["parameters_digest"]
    assert result.summary["gradients_applied"] == expected.summary["gradients_applied"]
    why = ["does not use the protocol of this run", "unknown key", "its key belongs to worker-2"]
    for words in [*why, "refused a message of 'worker-0'"]:
        for where in ("server-0: ", "server-1: ", ""):
            lines = [line for line in log if line.startswith(f"{where}refused") and words in line]
            assert lines, "\n".join([f"no {where}{words} in:", *log])
    assert len(log) < 2000
