"""The inbox as a work queue: acknowledge fast, apply later.

An event is acknowledged once it is durably queued. A worker takes the oldest job whose line and key have no older
one, runs the effect and removes the job, all in one transaction: a process that dies leaves the job where it was. A
job that fails is tried again later; one that keeps failing becomes a dead letter, and holds its line and key until a
person retries or discards it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from .delivery import Delivery
from .inbox.dialects import Dialect, changed
from .inbox.policy import InboxConfig, QueueFull, Verdict
from .inbox.sql import AsyncSqlInbox, SqlInbox, seconds
from .inbox.statements import Row, Statement, Steps, run, run_async
from .jobs import (
    IDLE,
    Backlog,
    Damaged,
    DeadLetter,
    Job,
    WorkOutcome,
    WorkPolicy,
    error_text,
    order,
    read_job,
    write_head,
)
from .limits import DEAD_LISTED_MAX

C = TypeVar("C")
T = TypeVar("T")

_DEAD = Statement(
    "select position, tries, head, body, error from railpost_work"
    " where inbox = :inbox and due_at is null order by position limit :most"
)
_BACKLOG = Statement("select count(due_at), count(*) from railpost_work where inbox = :inbox")
_OLDEST = Statement(
    "select position, tries, head, body from railpost_work"
    " where inbox = :inbox and due_at is not null order by position limit 1"
)


class SqlQueue(Generic[C]):
    """A queue of events in the application's own database, filled through an inbox. Threads may share it."""

    def __init__(self, inbox: SqlInbox[C], policy: WorkPolicy | None = None) -> None:
        self.inbox, self.policy = inbox, policy or WorkPolicy()

    def enqueue(self, connection: C, delivery: Delivery, now: float | None = None) -> Verdict:
        """Judges an event and queues it if it is to be applied: commit, and acknowledge it.

        Raises `QueueFull`: roll back then.
        """
        verdict = self.inbox.admit(connection, delivery, now)
        if verdict.applies:
            self._run(connection, _push(self._dialect(connection), self.inbox.config, self.policy, delivery, now))
        return verdict

    def accept(self, connection: C, delivery: Delivery, now: float | None = None) -> Verdict:
        """Does the same in a transaction of its own: when it returns, acknowledge the event."""
        with self.inbox.counting() as counted, self.inbox.driver.transaction(connection):
            verdict = self.enqueue(connection, delivery, now)
            counted(verdict)
        return verdict

    def work_one(self, connection: C, effect: Callable[[C, Job], object], now: float | None = None) -> WorkOutcome:
        """Takes the oldest job that is due and that no other worker holds, and runs `effect` on it.

        What the effect writes through the connection, and the job's removal, commit together. If it raises, nothing
        that it wrote is kept, and the job is tried again later. It must not commit itself.
        """
        at = seconds(now)
        with self.inbox.driver.transaction(connection):
            rows = self._query(connection, self._dialect(connection).due, self.inbox.config.name, at)
            if not rows:
                return IDLE
            try:
                job = _read(rows[0])
            except Damaged as damage:
                return self._run(connection, _give_up(self._dialect(connection), damage))
            try:
                with self.inbox.driver.savepoint(connection):
                    effect(connection, job)
            except Exception as error:
                return self._run(connection, _fail(self._dialect(connection), self.policy, job, error, at))
            self._query(connection, self._dialect(connection).remove, job.position)
            return WorkOutcome("done", job.delivery.event_id)

    def dead_letters(self, connection: C) -> list[DeadLetter]:
        """The jobs that were given up on, oldest first."""
        return self._run(connection, _dead_letters(self.inbox.config))

    def retry(self, connection: C, position: int, now: float | None = None) -> bool:
        """Gives a dead letter all its tries again. Says whether there was one at this position. Commit it."""
        rows = self._query(connection, self._dialect(connection).retry, seconds(now), self.inbox.config.name, position)
        return bool(changed(rows))

    def discard(self, connection: C, position: int) -> bool:
        """Drops a dead letter and lets its line and key go on. Says whether there was one. Commit it."""
        rows = self._query(connection, self._dialect(connection).discard, self.inbox.config.name, position)
        return bool(changed(rows))

    def backlog(self, connection: C, now: float | None = None) -> Backlog:
        """How much there is to do, and how far behind the queue is."""
        return self._run(connection, _backlog(self.inbox.config, seconds(now)))

    def _dialect(self, connection: C) -> Dialect:
        return self.inbox.driver.dialect(connection)

    def _query(self, connection: C, statement: Statement, *values: str | int) -> list[Row]:
        return self.inbox.driver.execute(connection, statement, values)

    def _run(self, connection: C, steps: Steps[T]) -> T:
        return run(steps, lambda statement, values: self.inbox.driver.execute(connection, statement, values))


class AsyncSqlQueue(Generic[C]):
    """A queue of events in the application's own database, on an asyncio driver. Tasks may share it."""

    def __init__(self, inbox: AsyncSqlInbox[C], policy: WorkPolicy | None = None) -> None:
        self.inbox, self.policy = inbox, policy or WorkPolicy()

    async def enqueue(self, connection: C, delivery: Delivery, now: float | None = None) -> Verdict:
        """Judges an event and queues it if it is to be applied: commit, and acknowledge it.

        Raises `QueueFull`: roll back then.
        """
        verdict = await self.inbox.admit(connection, delivery, now)
        if verdict.applies:
            steps = _push(self._dialect(connection), self.inbox.config, self.policy, delivery, now)
            await self._run(connection, steps)
        return verdict

    async def accept(self, connection: C, delivery: Delivery, now: float | None = None) -> Verdict:
        """Does the same in a transaction of its own: when it returns, acknowledge the event."""
        with self.inbox.counting() as counted:
            async with self.inbox.driver.transaction(connection):
                verdict = await self.enqueue(connection, delivery, now)
                counted(verdict)
        return verdict

    async def work_one(
        self, connection: C, effect: Callable[[C, Job], Awaitable[object]], now: float | None = None
    ) -> WorkOutcome:
        """Takes the oldest job that is due and that no other worker holds, and runs `effect` on it.

        What the effect writes through the connection, and the job's removal, commit together. If it raises, nothing
        that it wrote is kept, and the job is tried again later. It must not commit itself.
        """
        at = seconds(now)
        async with self.inbox.driver.transaction(connection):
            rows = await self._query(connection, self._dialect(connection).due, self.inbox.config.name, at)
            if not rows:
                return IDLE
            try:
                job = _read(rows[0])
            except Damaged as damage:
                return await self._run(connection, _give_up(self._dialect(connection), damage))
            try:
                async with self.inbox.driver.savepoint(connection):
                    await effect(connection, job)
            except Exception as error:
                return await self._run(connection, _fail(self._dialect(connection), self.policy, job, error, at))
            await self._query(connection, self._dialect(connection).remove, job.position)
            return WorkOutcome("done", job.delivery.event_id)

    async def dead_letters(self, connection: C) -> list[DeadLetter]:
        """The jobs that were given up on, oldest first."""
        return await self._run(connection, _dead_letters(self.inbox.config))

    async def retry(self, connection: C, position: int, now: float | None = None) -> bool:
        """Gives a dead letter all its tries again. Says whether there was one at this position. Commit it."""
        statement = self._dialect(connection).retry
        rows = await self._query(connection, statement, seconds(now), self.inbox.config.name, position)
        return bool(changed(rows))

    async def discard(self, connection: C, position: int) -> bool:
        """Drops a dead letter and lets its line and key go on. Says whether there was one. Commit it."""
        statement = self._dialect(connection).discard
        return bool(changed(await self._query(connection, statement, self.inbox.config.name, position)))

    async def backlog(self, connection: C, now: float | None = None) -> Backlog:
        """How much there is to do, and how far behind the queue is."""
        return await self._run(connection, _backlog(self.inbox.config, seconds(now)))

    def _dialect(self, connection: C) -> Dialect:
        return self.inbox.driver.dialect(connection)

    async def _query(self, connection: C, statement: Statement, *values: str | int) -> list[Row]:
        return await self.inbox.driver.execute(connection, statement, values)

    async def _run(self, connection: C, steps: Steps[T]) -> T:
        driver = self.inbox.driver
        return await run_async(steps, lambda statement, values: driver.execute(connection, statement, values))


def _push(
    dialect: Dialect, config: InboxConfig, policy: WorkPolicy, delivery: Delivery, now: float | None
) -> Steps[None]:
    line, key = order(delivery)
    values = {
        "inbox": config.name,
        "line": line,
        "key": dialect.key(key),
        "now": seconds(now),
        "head": write_head(delivery),
        "body": delivery.body,
        "most": policy.backlog_max,
    }
    rows = yield dialect.enqueue, [values[name] for name in dialect.enqueue.names]
    if not changed(rows):
        raise QueueFull(policy.backlog_max)


def _fail(dialect: Dialect, policy: WorkPolicy, job: Job, error: BaseException, now: int) -> Steps[WorkOutcome]:
    tries = job.tries + 1
    at = policy.next_try(tries, now)
    yield dialect.fail, (tries, at, error_text(error), job.position)
    return WorkOutcome("dead" if at is None else "failed", job.delivery.event_id, at)


def _give_up(dialect: Dialect, damage: Damaged) -> Steps[WorkOutcome]:
    """A job that cannot be read is a dead letter at once: no further try would read it."""
    yield dialect.fail, (0, None, error_text(damage), damage.position)
    return WorkOutcome("dead")


def _dead_letters(config: InboxConfig) -> Steps[list[DeadLetter]]:
    rows = yield _DEAD, (config.name, DEAD_LISTED_MAX)
    return [DeadLetter(_read_or_bare(row), row[4]) for row in rows]


def _backlog(config: InboxConfig, now: int) -> Steps[Backlog]:
    waiting, all_jobs = (yield _BACKLOG, (config.name,))[0]
    oldest = yield _OLDEST, (config.name,)
    lag = max(0, now - _read_or_bare(oldest[0], now).delivery.timestamp) if oldest else 0
    return Backlog(waiting, all_jobs - waiting, lag)


def _read(row: Row) -> Job:
    return read_job(row[0], row[1], row[2], row[3])


def _read_or_bare(row: Row, timestamp: int = 0) -> Job:
    """A job that cannot be read is shown by its body alone, without an event id."""
    try:
        return _read(row)
    except Damaged:
        return Job(row[0], row[1], Delivery("", timestamp, bytes(row[3])))
