"""Runs a function over units in several processes.

Processes, because reading, hashing and encoding small documents holds the interpreter's lock most of the
time. They are started afresh (spawn), which works on every system and beside threads. A worker that loses its
parent, even to SIGKILL, ends at once; one that is killed itself ends the work with an error that says so.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection
from typing import TypeVar

from gptwright.errors import DataError

Task = TypeVar("Task")
Result = TypeVar("Result")


def each_result(
    function: Callable[[Task], Result], tasks: Iterator[Task], *, workers: int
) -> Generator[Result]:
    """The results in the order in which they are ready; tasks are taken a few ahead of the workers.

    Args:
        function: of a module, so that another process can find it.
        tasks: what to do.
        workers: how many processes; with 1 all is done in this one.

    Raises:
        DataError: a worker was killed. What the function raises is raised here too.
    """
    if workers == 1:
        yield from map(function, tasks)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_begin_worker) as pool:
        running: set[Future[Result]] = set()
        try:
            for task in tasks:
                running.add(pool.submit(function, task))
                # One more for each worker lies ready, so that none waits for the parent.
                if len(running) >= 2 * workers:
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    yield from (future.result() for future in done)
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        except BrokenProcessPool:
            raise DataError(
                "a worker process was killed",
                why="most often because memory ran out; each worker needs about 300 MB",
                fix="give the same command again, which goes on where it stopped, with fewer --workers",
            ) from None
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _begin_worker() -> None:
    # Ctrl-C reaches the whole group; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The tokenizers library would start a thread a core in every process.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
