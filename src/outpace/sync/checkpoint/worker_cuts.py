"""Takes the state of one worker without servers for a checkpoint, when it is asked for.

Where workers average by all-reduces, all are saved when they have the same number of results and
have not joined the next all-reduce (`PeerContext.may_save`). They have changed the common model
alike then, and what each has beside it is in no other worker's state. A worker that is past that
place when it hears of the request says so, and never stops for it.
"""

from __future__ import annotations

from collections.abc import Callable


class WorkerCuts:
    """The requests for the state of one worker. Does no IO.

    Args:
        save: called with the number of the request, when the state is to be taken.
        missed: called with the number of the request and the results that the worker has, if it
            has begun to go on with as many as were asked for, or with more.
    """

    def __init__(self, save: Callable[[int], None], missed: Callable[[int, int], None]) -> None:
        self._save, self._missed = save, missed
        self._asked: dict[int, int] = {}  # number of a request -> the results to wait for
        self._passed = -1  # results with which the worker could be saved last

    @property
    def has_begun(self) -> bool:
        """True once the worker could be saved after its first iteration."""
        return self._passed >= 0

    def ask(self, number: int, results: int | None) -> None:
        """Save the worker when it has so many results; None: at once.

        To be called between two steps of the worker. Before the first one, 0 means at once. May
        call `save` or `missed` at once.
        """
        if results is None or (results == 0 and not self.has_begun):
            self._save(number)
        elif self._passed >= results:
            self._missed(number, self._passed)
        else:
            self._asked[number] = results

    def give_up(self, number: int) -> None:
        """Forget a request."""
        self._asked.pop(number, None)

    def look(self, results: int) -> None:
        """The worker has so many results, and joins the next all-reduce after this call."""
        self._passed = results
        for number, wanted in list(self._asked.items()):
            if results < wanted:
                continue
            del self._asked[number]
            if results == wanted:
                self._save(number)
            else:
                self._missed(number, results)
