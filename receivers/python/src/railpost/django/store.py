"""The inbox and the queue in the application's database, in transactions of Django's ORM, on SQLite or PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from django.db import connections, transaction

from ..counters import Counters
from ..delivery import Delivery
from ..inbox.dialects import POSTGRES, SQLITE, Dialect
from ..inbox.drivers import NoTransaction, UnknownDatabase
from ..inbox.policy import NotedGap, Policy, Verdict
from ..inbox.sql import SqlInbox
from ..inbox.statements import Row, Statement, Value
from ..jobs import Backlog, DeadLetter, Job, WorkOutcome, WorkPolicy
from ..limits import RETENTION_DEFAULT
from ..queue import SqlQueue


def dialect_of(connection: Any) -> Dialect:
    """The dialect of a connection of Django's."""
    known = {"sqlite": SQLITE, "postgresql": POSTGRES}
    if connection.vendor not in known:
        raise UnknownDatabase(connection.vendor)
    return known[connection.vendor]


class _DjangoDriver:
    """A connection is named by its alias, such as `default`; each thread has its own behind it."""

    def dialect(self, connection: str) -> Dialect:
        return dialect_of(connections[connection])

    def execute(self, connection: str, statement: Statement, values: Sequence[Value]) -> list[Row]:
        with connections[connection].cursor() as cursor:
            cursor.execute(statement.pyformat, statement.mapping(values))
            return [(cursor.rowcount,)] if cursor.description is None else list(cursor.fetchall())

    def script(self, connection: str, statements: Sequence[str]) -> None:
        with connections[connection].cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def check(self, connection: str) -> None:
        if not connections[connection].in_atomic_block:
            raise NoTransaction("use `inbox.transaction(…)`, or `with transaction.atomic():`")

    def transaction(self, connection: str) -> AbstractContextManager[Any]:
        # Within another atomic block, as with ATOMIC_REQUESTS and in tests, the outermost one commits.
        atomic: AbstractContextManager[Any] = transaction.atomic(using=connection)
        return atomic

    def savepoint(self, connection: str) -> AbstractContextManager[Any]:
        return self.transaction(connection)


class _AliasInbox(SqlInbox[str]):
    driver = _DjangoDriver()


class DjangoInbox:
    """An inbox in the application's own database, in the transactions of Django's ORM."""

    def __init__(
        self,
        name: str,
        policy: Policy | None = None,
        retention: int = RETENTION_DEFAULT,
        *,
        using: str = "default",
        counters: Counters | None = None,
    ) -> None:
        self.inner, self.using = _AliasInbox(name, policy, retention, counters=counters), using
        self.counters = self.inner.counters

    def create_tables(self) -> None:
        """Creates the tables if they are not there. `manage.py migrate` does that too."""
        self.inner.create_tables(self.using)

    def admit(self, delivery: Delivery, now: float | None = None) -> Verdict:
        """Judges an event within the atomic block of its effect.

        If the verdict applies, run the effect; then let the block commit, whatever the verdict. If anything fails,
        let the exception leave the block, and the event was never seen.
        """
        return self.inner.admit(self.using, delivery, now)

    @contextmanager
    def transaction(self, delivery: Delivery, now: float | None = None) -> Iterator[Verdict]:
        """An atomic block that begins with the verdict."""
        with self.inner.transaction(self.using, delivery, now) as verdict:
            yield verdict

    def applied(self, line: str) -> int | None:
        """The last seq of a line that was applied, if the line is known."""
        return self.inner.applied(self.using, line)

    def gaps(self) -> list[NotedGap]:
        """The latest gaps that were accepted, latest first."""
        return self.inner.gaps(self.using)

    def prune(self, now: float | None = None) -> int:
        """Forgets what is older than the retention, at most a step of it. Call it again while it returns some."""
        return self.inner.prune(self.using, now)


class DjangoQueue:
    """A queue in the application's own database, filled through an inbox, in the transactions of Django's ORM."""

    def __init__(self, inbox: DjangoInbox, policy: WorkPolicy | None = None) -> None:
        self.inbox, self.using = inbox, inbox.using
        self.inner: SqlQueue[str] = SqlQueue(inbox.inner, policy)

    def enqueue(self, delivery: Delivery, now: float | None = None) -> Verdict:
        """Judges an event and queues it if it is to be applied, in an atomic block of the caller's."""
        return self.inner.enqueue(self.using, delivery, now)

    def accept(self, delivery: Delivery, now: float | None = None) -> Verdict:
        """Does the same in an atomic block of its own: when it returns, acknowledge the event."""
        return self.inner.accept(self.using, delivery, now)

    def work_one(self, effect: Callable[[Job], object], now: float | None = None) -> WorkOutcome:
        """Takes the oldest job that is due, and runs `effect` on it: what it writes commits with the removal."""
        return self.inner.work_one(self.using, lambda _, job: effect(job), now)

    def dead_letters(self) -> list[DeadLetter]:
        """The jobs that were given up on, oldest first."""
        return self.inner.dead_letters(self.using)

    def retry(self, position: int, now: float | None = None) -> bool:
        """Gives a dead letter all its tries again. Says whether there was one at this position."""
        return self.inner.retry(self.using, position, now)

    def discard(self, position: int) -> bool:
        """Drops a dead letter and lets its line and key go on. Says whether there was one at this position."""
        return self.inner.discard(self.using, position)

    def backlog(self, now: float | None = None) -> Backlog:
        """How much there is to do, and how far behind the queue is."""
        return self.inner.backlog(self.using, now)
