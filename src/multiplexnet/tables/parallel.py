"""Pieces of work for several processes or the workers of a Dask cluster; among them tables that are checked.

A piece is a few row groups of a Parquet file, a whole file of another kind if there are several, or else some rows that
this process has read. Workers answer with partial reports, which are added up in order; so it does not matter who
checked what, or whether it was done twice because a worker was lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Any, Generic, TypeVar

import polars as pl

from multiplexnet.arguments import refuse_bad_address, refuse_bad_count
from multiplexnet.errors import TableError, install, needing
from multiplexnet.language.formula import Variable
from multiplexnet.tables.report import TableReport
from multiplexnet.tables.sources.columnar import parquet_groups, parquet_table
from multiplexnet.tables.sources.files import PARQUET, table_in_file
from multiplexnet.tables.sources.table import Source, Table
from multiplexnet.tables.work import Work, checked

__all__ = ["PartialReport", "Run", "Task", "run_of", "spread", "tasks_of"]

T = TypeVar("T")
R = TypeVar("R")

PIECE = 1 << 18
"""Rows of a piece, about."""
AHEAD = 3
"""Pieces that are under way for each worker."""
MOST_WAITING = 8
"""Answers for each process that wait for an earlier one."""
ENVIRONMENT = "distributed.nanny.pre-spawn-environ"
TRIM = "MALLOC_TRIM_THRESHOLD_"
"""Dask's workers give memory back at once, which makes every array new memory: a check takes twice as long."""
LOSSES = 3
"""How often lost processes are replaced."""


@dataclass(frozen=True)
class Task:
    """One piece to be checked.

    Args:
        work: what is asked of it.
        title: of its table.
        names: the columns of its table.
        chosen: the column of every variable.
        before: rows of other tables before it.
        start: rows of its table before it.
        source: the file that it is in.
        frame: or the rows themselves, columns named by their positions.
    """

    work: Work
    title: str
    names: tuple[str, ...]
    chosen: dict[Variable, str]
    before: int
    start: int
    source: Source | None
    frame: pl.DataFrame | None


@dataclass(frozen=True)
class PartialReport:
    """What a worker answers: a partial report, and rows to be written out."""

    report: TableReport
    violating: tuple[tuple[pl.DataFrame, list[str]], ...]


Run = Callable[[Iterator[Task]], Iterator[PartialReport]]
"""Has pieces checked, and gives back the answers in the same order."""


def checked_part(task: Task) -> PartialReport:
    """Check a piece: this is what workers run."""
    violating: list[tuple[pl.DataFrame, list[str]]] = []

    def add(frame: pl.DataFrame, breaks: Sequence[str]) -> None:
        violating.append((frame, list(breaks)))

    report = checked(
        task.work,
        _opened(task),
        task.chosen,
        add if task.work.whole else None,
        before=task.before,
        start=task.start,
    )
    return PartialReport(report, tuple(violating))


def _opened(task: Task) -> Table:
    source = task.source
    if source is None:
        frame = task.frame
        assert frame is not None
        return Table(
            task.title,
            task.names,
            lambda positions: iter([frame.select(map(str, positions))]),
        )
    if source.groups is not None:
        opened = parquet_table(source.path, source.groups)
    else:
        opened = table_in_file(source.path, source.delimiter, source.table)
    return replace(opened, title=task.title)


# --- pieces ---------------------------------------------------------------------------------------------------------


def tasks_of(
    work: Work, tables: Sequence[Table], chosen: Sequence[dict[Variable, str]]
) -> Iterator[Task]:
    """The pieces of the tables, in order."""
    before = 0
    for table, own in zip(tables, chosen, strict=True):
        whole = Task(work, table.title, table.names, own, before, 0, table.source, None)
        source = table.source
        if source is not None and source.path.name.lower().endswith(PARQUET):
            for piece, rows in _groups(whole, source):
                yield piece
                before += rows
        elif source is not None and len(tables) > 1 and not work.strips:
            yield whole  # rows before later ones are not known, and only strips ask for them
        else:
            for piece, rows in _frames(whole, table):
                yield piece
                before += rows


def _groups(whole: Task, source: Source) -> Iterator[tuple[Task, int]]:
    """Neighbouring row groups with about as many rows as a piece shall have; one piece at least."""
    groups: list[int] = []
    rows = start = 0
    sizes = parquet_groups(source.path)
    for g, size in enumerate(sizes):
        groups.append(g)
        rows += size
        if rows >= PIECE or g == len(sizes) - 1:
            yield (
                replace(
                    whole, start=start, source=replace(source, groups=tuple(groups))
                ),
                rows,
            )
            start += rows
            groups = []
            rows = 0
    if not sizes:
        yield whole, 0


def _frames(whole: Task, table: Table) -> Iterator[tuple[Task, int]]:
    """Rows that are read here, several blocks to a piece."""
    columns = {table.names.index(name) for name in whole.chosen.values()}
    wanted = range(len(table.names)) if whole.work.whole else sorted(columns)
    waiting: list[pl.DataFrame] = []
    start = 0
    for frame in table.frames(list(wanted) or [0]):
        rows = sum(part.height for part in waiting)
        if waiting and (rows >= PIECE or waiting[0].schema != frame.schema):
            yield (
                replace(whole, start=start, source=None, frame=pl.concat(waiting)),
                rows,
            )
            start += rows
            waiting = []
        waiting.append(frame)
    if not waiting:
        waiting = [pl.DataFrame(schema={str(p): pl.String for p in wanted or [0]})]
    last = pl.concat(waiting)
    yield replace(whole, start=start, source=None, frame=last), last.height


# --- who checks -----------------------------------------------------------------------------------------------------


def run_of(jobs: int, dask: str | None) -> Run | None:
    """Who checks the pieces; ``None``: this process, without pieces.

    Raises:
        OptionError: a number of processes, or an address, that cannot be.
    """
    _refuse_bad(jobs, dask)
    if jobs == 1 and dask is None:
        return None
    return lambda tasks: spread(checked_part, tasks, jobs, dask)


def spread(
    do: Callable[[T], R], tasks: Iterator[T], jobs: int, dask: str | None
) -> Iterator[R]:
    """What a function gives for every piece, in order; done by several processes, or on a Dask cluster.

    A piece may be done twice if its worker was lost, so the function has to give the same both times.

    Raises:
        OptionError: a number of processes, or an address, that cannot be.
        TableError: no cluster; workers that end again and again.
    """
    _refuse_bad(jobs, dask)
    if dask is not None:
        return _on_dask(do, tasks, dask, max(jobs, 2))
    return _in_processes(do, tasks, jobs)


def _refuse_bad(jobs: int, dask: str | None) -> None:
    refuse_bad_count("jobs", jobs, 1, "processes")
    refuse_bad_address("dask", dask)


def _in_processes(do: Callable[[T], R], tasks: Iterator[T], jobs: int) -> Iterator[R]:
    """The pieces in processes of this machine, this one among them, in order."""
    if jobs == 1:
        yield from map(do, tasks)
        return
    crew = _Crew(do, jobs)
    try:
        for task in tasks:
            crew.take(task)
            yield from crew.answers()
        crew.take_back()
        yield from crew.answers(to_the_end=True)
    finally:
        crew.end()


class _Crew(Generic[T, R]):
    """This process and others.

    The others take about a second to start, in which this one begins; later it does what is too much for them. What a
    process was doing when it was lost is done again.

    Args:
        do: what is to be done with a piece.
        jobs: how many processes there are together.
    """

    def __init__(self, do: Callable[[T], R], jobs: int) -> None:
        self.do = do
        self.jobs = jobs
        self.losses = 0
        self.waiting: deque[tuple[T, Future[R]]] = deque()
        self._start()

    def _start(self) -> None:
        self.pool = _pool(self.jobs - 1)
        self.started: Future[int] = self.pool.submit(int)

    def take(self, task: T) -> None:
        """Give a piece to another process, or do it here if none has started or all have enough to do."""
        busy = sum(not future.done() for _, future in self.waiting)
        if self.started.done() and busy < AHEAD * (self.jobs - 1):
            self.waiting.append((task, self._submitted(task)))
        else:
            self.waiting.append((task, self._done(task)))

    def take_back(self) -> None:
        """Do here what no process has begun, the last pieces first."""
        for k in reversed(range(len(self.waiting))):
            task, future = self.waiting[k]
            if future.cancel():
                self.waiting[k] = (task, self._done(task))

    def answers(self, to_the_end: bool = False) -> Iterator[R]:
        """What is done, in order; waits where too much would be waiting otherwise, and for everything at the end."""
        while self.waiting:
            few = len(self.waiting) <= MOST_WAITING * self.jobs
            if few and not to_the_end and not self.waiting[0][1].done():
                return
            try:
                answer = self.waiting[0][1].result()
            except BrokenProcessPool:
                self._begin_again()
                continue
            self.waiting.popleft()
            yield answer
        if to_the_end:
            self._refuse_what_cannot_start()

    def end(self) -> None:
        self.pool.shutdown(cancel_futures=True)

    def _done(self, task: T) -> Future[R]:
        """A piece that is done here."""
        future: Future[R] = Future()
        future.set_result(self.do(task))
        return future

    def _submitted(self, task: T) -> Future[R]:
        try:
            return self.pool.submit(self.do, task)
        except BrokenProcessPool as broken:
            future: Future[R] = Future()
            future.set_exception(broken)
            return future

    def _begin_again(self) -> None:
        """Other processes in place of those that were lost."""
        self.losses += 1
        self._refuse_what_cannot_start()
        if self.losses > LOSSES:
            raise TableError(
                f"processes of --jobs {self.jobs} were ended from outside {self.losses} times (was memory short?): "
                "take fewer"
            ) from None
        self.pool.shutdown(cancel_futures=True)
        self._start()
        for k, (task, future) in enumerate(self.waiting):
            if not future.done() or future.cancelled() or future.exception():
                self.waiting[k] = (task, self._submitted(task))

    def _refuse_what_cannot_start(self) -> None:
        try:
            self.started.result()
        except BrokenProcessPool:
            _refuse_dying_at_start(self.jobs)


def _pool(jobs: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))


def _refuse_dying_at_start(jobs: int) -> None:
    """Raises ``TableError`` if a new process cannot even answer a question that needs nothing."""
    with _pool(1) as pool:
        try:
            pool.submit(int).result()
        except BrokenProcessPool:
            raise TableError(
                f"processes of jobs={jobs} end as they start. Each of them reads the script that is run once more: put "
                'what it does, this call included, under `if __name__ == "__main__":`'
            ) from None


def _and_then(tasks: Iterator[T], end: None) -> Iterator[T | None]:
    yield from tasks
    yield end


def _on_dask(
    do: Callable[[T], R], tasks: Iterator[T], address: str, workers: int
) -> Iterator[R]:
    """The pieces on the workers of a cluster; Dask gives those of a worker that was lost to another one."""
    with _client(address, workers) as client:
        under_way: deque[Any] = deque()
        count = max(len(client.nthreads()), 1)
        for task in _and_then(tasks, None):
            if task is not None:
                under_way.append(client.submit(do, task, pure=False))
            while under_way and (task is None or len(under_way) > AHEAD * count):
                yield under_way.popleft().result()


@contextmanager
def _client(address: str, workers: int) -> Iterator[Any]:
    with needing("distributed", "working on Dask", install("dask")):
        import dask
        import distributed

    connected: Any = distributed.Client
    local: Any = distributed.LocalCluster
    if address == "local":
        before = dask.config.get(ENVIRONMENT, {})
        kept = {name: value for name, value in before.items() if name != TRIM}
        with (
            dask.config.set({ENVIRONMENT: kept}),
            local(
                n_workers=workers, threads_per_worker=1, dashboard_address=None
            ) as cluster,
            connected(cluster) as client,
        ):
            yield client
        return
    try:
        client = connected(address, timeout="5s")
    except (OSError, ValueError) as error:
        raise TableError(
            f"no Dask scheduler answers at {address} ({str(error) or type(error).__name__}): "
            "give its address, as in tcp://10.0.0.1:8786, or local"
        ) from None
    with client:
        yield client
