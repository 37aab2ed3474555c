"""The promises of a policy, which hold for all actions of its workers.

A game is a random test run. A few workers take steps in a random order: they push, pull, choose not
to push or not to pull, skip iterations, leave, or wait in a collective of their script; some pushes
arrive twice. At the end all workers wait in a collective, continue, and leave after a few more
steps. Later games are longer, so the first game that shows a fault is short.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

from outpace.cluster.laws import Constant
from outpace.cluster.network import NetworkLaw
from outpace.config.experiment import Experiment
from outpace.config.goals import Stop
from outpace.errors import RunError
from outpace.experiment.running import simulate
from outpace.sync import Policy, Reason
from outpace.sync.observer import Outcome
from outpace.sync.python import policy_from
from outpace.tasks import Timing
from outpace.testing.promises import no_error, require
from outpace.testing.shard_driver import Driver

_ACTIONS: Final = (
    *("step",) * 6,
    *("abstain", "withhold", "skip", "no pull", "repeat", "leave", "pause", "resume"),
)
_LONGEST: Final = 60  # steps of a game before the workers leave
_ITERATIONS: Final = 12  # iterations of a run in virtual time


def check_policy(
    policy: Policy, *, bound: int | None = None, workers: int = 5, games: int = 200, seed: int = 0
) -> None:
    """Check that a policy keeps the promises of every strategy with servers.

    Every pull is answered once. No worker waits for a worker that has left, or that waits in a
    collective. No answer exceeds the bound. Every gradient is either applied or dropped, once. The
    same messages give the same answers. Runs in virtual time end.

        check_policy(Ssp(staleness=3), bound=3)

    Args:
        policy: an object of a class that derives from `outpace.sync.Policy`.
        bound: no pull of iteration i may be answered unless i < V + bound, where V is the server's
            clock; None: only the bounds of the policy's own decisions are checked.
        workers: number of workers; some games have fewer.
        games: number of random games.
        seed: seed of the games.

    Raises:
        AssertionError: for the first promise that is broken.
        ConfigError: if the object is not a policy.
        ValueError: if the policy refuses this number of workers.
    """
    name = type(policy).__name__
    policy_from(policy, name)  # refuses what is no policy
    policy = policy.for_workers(workers)
    if refused := list(policy.problems(workers)):
        raise ValueError(f"{name} refuses a run of {workers} workers: {'; '.join(refused)}")
    parameters = getattr(policy, "__dataclass_params__", None)
    require(
        parameters is not None and parameters.frozen,
        "a policy is a frozen dataclass: servers share it, and runs are compared by it",
        name,
        "write @dataclass(frozen=True) before the class",
    )
    judged = policy_from(policy, name)
    for number in range(games):
        first, again = (
            _played(judged, name, workers, Random(f"{seed}/{number}"), number % _LONGEST)
            for _ in range(2)
        )
        _check_game(first, name, bound)
        require(
            (first.answers, first.account.settled) == (again.answers, again.account.settled),
            "the same messages have the same answers",
            _case(name, first),
            "decide by `pull`, `view` and `pull.coin` alone: no state, no clock, no random module",
        )
    for tie_seed in (None, 1):
        _check_run(policy, name, workers, tie_seed)


def _played(policy: Policy, name: str, most: int, source: Random, length: int) -> Driver:
    """Play a game until all workers have left; return its driver."""
    count = source.randint(1, most)
    driver = Driver(policy, count)
    try:
        for _ in range(length):
            action = source.choice(_ACTIONS)
            able = driver.free()
            if action == "resume":
                able = sorted(driver.paused)
            elif action == "repeat":
                able = [worker for worker in range(count) if driver.can_repeat(worker)]
            if able and (action != "leave" or len(driver.gone) < count - 1):
                driver.act(source.choice(able), action)
        # All wait in a collective: a worker that still needs parameters for it must get them
        # without pushes of the others.
        while len(driver.paused) + len(driver.gone) < count:
            driver.act(_free(driver, name)[0], "pause")
        for worker in sorted(driver.paused):
            driver.act(worker, "resume")
        last = max(driver.iteration) + 3
        while len(driver.gone) < count:
            worker = min(_free(driver, name), key=lambda each: driver.iteration[each])
            driver.act(worker, "step" if driver.iteration[worker] < last else "leave")
        driver.shard.close(0)
    except RunError as error:  # an error of the shard, or of the check of the policy's answers
        raise AssertionError(f"{error}\n  case: {_case(name, driver)}") from error
    return driver


def _free(driver: Driver, name: str) -> list[int]:
    """Let time pass until at least one worker can take a step; return the workers that can."""
    while not driver.free():
        require(
            driver.wait(),
            f"every pull is answered: {driver.shard.describe_waiting()}",
            _case(name, driver),
            "may_answer must return a release_clock that the server reaches, and patience_s must "
            "return 0 when view.reached >= view.live",
        )
    return driver.free()


def _check_game(driver: Driver, name: str, bound: int | None) -> None:
    for answer, decision in zip(driver.answers, driver.account.decisions, strict=True):
        worker, iteration, clock, step = answer
        case = (
            f"worker {worker} was answered in iteration {iteration} at V = {clock} by {decision}; "
            f"{_case(name, driver, step)}"
        )
        require(
            bound is None or iteration < clock + bound,
            f"no pull of iteration i is answered unless i < V + {bound}",
            case,
            "return a Decision whose release_clock is the first V that may answer it",
        )
        is_within = decision.lead < decision.bound
        require(
            decision.reason is not (Reason.BEYOND_BOUND if is_within else Reason.WITHIN_BOUND),
            "the reason of a decision is true: WITHIN_BOUND if lead < bound, else BEYOND_BOUND",
            case,
            "answer a pull as WITHIN_BOUND only if pull.iteration - view.clock < bound",
        )
    chosen = (Outcome.ABSTAINED, Outcome.SKIPPED, Outcome.REPEATED)
    settled = [(w, i) for w, i, outcome, _ in driver.account.settled if outcome not in chosen]
    require(
        sorted(settled) == sorted(driver.pushed),
        "every gradient is applied or dropped, once",
        _case(name, driver),
        "let patience_s be 0 only when the iteration may end without the workers that are missing",
    )


def _check_run(policy: Policy, name: str, workers: int, tie_seed: int | None) -> None:
    """Check that a run in virtual time ends, and that its totals agree with the policy."""
    sync: Any = policy  # Experiment does not list a user's own class
    experiment = Experiment(
        task=Timing(parameters=3000),
        workers=workers,
        servers=3,
        compute=Constant(mean_s=0.1, worker_cv=0.3),
        network=NetworkLaw(latency_s=0.01, bandwidth_bytes_per_s=1e6),
        sync=sync,
        stop=Stop(iterations=_ITERATIONS),
    )
    case = f"{name} in virtual time: {workers} workers, 3 servers, {_ITERATIONS} iterations"
    with no_error("a run comes to its end", case, "the error names who waits for what"):
        summary = simulate(experiment, tie_seed=tie_seed).summary
    iterations, dropped = summary["iterations"], summary["gradients_dropped"]
    require(
        max(iterations) == _ITERATIONS
        and summary["gradients_applied"] + dropped == sum(iterations)
        and (policy.leaves_behind or (min(iterations) == _ITERATIONS and dropped == 0)),
        "every iteration's gradient is applied or dropped; dropped only if the policy says that it "
        f"leaves workers behind: {iterations} iterations, {dropped} dropped",
        case,
        "declare leaves_behind = True if a server may finish an iteration without a live worker",
    )


def _case(name: str, driver: Driver, last: int | None = None) -> str:
    """Return the steps of a game up to its present state, as text."""
    return f"{name} with {len(driver.iteration)} workers: {', '.join(driver.steps[:last])}"
