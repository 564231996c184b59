"""The inbox in a SQL database: its row and the application's effect commit together.

| table | a row is | made | removed |
|---|---|---|---|
| `railpost_inbox` | an event that was applied or queued | with its effect | after the retention |
| `railpost_lines` | the last seq of a line | with its first event | long after its last event |
| `railpost_gaps` | a gap that was accepted | with the event after it | after the retention |
| `railpost_work` | an event that waits for its effect | when it is acknowledged | with its effect |

With `OnGap.WAIT`, an inbox remembers in the process when a gap was first seen: each process waits by itself, and a
restart starts the wait again. So make one inbox and keep it.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Generic, TypeVar

from ..counters import Counters
from ..delivery import Delivery
from ..limits import RETENTION_DEFAULT
from . import dialects
from .drivers import AsyncDriver, Driver
from .gap_timers import GapTimers
from .policy import InboxConfig, NotedGap, Policy, QueueFull, Verdict
from .statements import Steps, run, run_async

C = TypeVar("C")
T = TypeVar("T")


def seconds(now: float | None) -> int:
    """A time in whole seconds since 1970: this moment, if none was given."""
    return int(time.time() if now is None else now)


class _Settings:
    def __init__(
        self,
        name: str,
        policy: Policy | None = None,
        retention: int = RETENTION_DEFAULT,
        *,
        counters: Counters | None = None,
    ) -> None:
        self.config = InboxConfig(name, policy or Policy(), retention)
        self.timers = GapTimers()
        #: What became of the events of `transaction`, and of a queue's `accept`. A receiver's may be given.
        self.counters = counters or Counters()

    @contextmanager
    def counting(self) -> Iterator[Callable[[Verdict], None]]:
        """Counts the verdict that was handed over, once everything went well."""
        verdicts: list[Verdict] = []
        try:
            yield verdicts.append
        except QueueFull:
            self.counters.count("full")
            raise
        except BaseException:
            self.counters.count("trouble")
            raise
        self.counters.count(verdicts[-1].kind)


class SqlInbox(_Settings, Generic[C]):
    """An inbox in the application's own database, on a blocking driver. Threads may share it."""

    driver: Driver[C]

    def create_tables(self, connection: C) -> None:
        """Creates the tables if they are not there, in a transaction of its own."""
        with self.driver.transaction(connection):
            self.driver.script(connection, self.driver.dialect(connection).tables())

    def admit(self, connection: C, delivery: Delivery, now: float | None = None) -> Verdict:
        """Judges an event within the transaction of its effect.

        If the verdict applies, run the effect; then commit, whatever the verdict: a duplicate moves its line on.
        If anything fails, roll back, and the event was never seen. Events of one line are serialised from here to
        the end of the transaction, and so are copies of one event.
        """
        driver = self.driver
        driver.check(connection)
        steps = driver.dialect(connection).admit(self.config, self.timers, delivery, seconds(now))
        return run(steps, lambda statement, values: driver.execute(connection, statement, values))

    @contextmanager
    def transaction(self, connection: C, delivery: Delivery, now: float | None = None) -> Iterator[Verdict]:
        """A transaction that begins with the verdict. It commits at the end, and rolls back on an error."""
        with self.counting() as counted, self.driver.transaction(connection):
            verdict = self.admit(connection, delivery, now)
            yield verdict
            counted(verdict)

    def applied(self, connection: C, line: str) -> int | None:
        """The last seq of a line that was applied, if the line is known."""
        return self._run(connection, dialects.applied(self.config, line))

    def gaps(self, connection: C) -> list[NotedGap]:
        """The latest gaps that were accepted, latest first."""
        return self._run(connection, dialects.gaps(self.config))

    def prune(self, connection: C, now: float | None = None) -> int:
        """Forgets what is older than the retention, at most a step of it, in the caller's transaction.

        Returns how many rows went: commit, and call it again while there are some. Once a day is often enough.
        """
        return self._run(connection, self.driver.dialect(connection).prune(self.config, seconds(now)))

    def _run(self, connection: C, steps: Steps[T]) -> T:
        return run(steps, lambda statement, values: self.driver.execute(connection, statement, values))


class AsyncSqlInbox(_Settings, Generic[C]):
    """An inbox in the application's own database, on an asyncio driver. Tasks may share it."""

    driver: AsyncDriver[C]

    async def create_tables(self, connection: C) -> None:
        """Creates the tables if they are not there, in a transaction of its own."""
        async with self.driver.transaction(connection):
            await self.driver.script(connection, self.driver.dialect(connection).tables())

    async def admit(self, connection: C, delivery: Delivery, now: float | None = None) -> Verdict:
        """Judges an event within the transaction of its effect.

        If the verdict applies, run the effect; then commit, whatever the verdict: a duplicate moves its line on.
        If anything fails, roll back, and the event was never seen. Events of one line are serialised from here to
        the end of the transaction, and so are copies of one event.
        """
        await self.driver.check(connection)
        steps = self.driver.dialect(connection).admit(self.config, self.timers, delivery, seconds(now))
        return await self._run(connection, steps)

    @asynccontextmanager
    async def transaction(self, connection: C, delivery: Delivery, now: float | None = None) -> AsyncIterator[Verdict]:
        """A transaction that begins with the verdict. It commits at the end, and rolls back on an error."""
        with self.counting() as counted:
            async with self.driver.transaction(connection):
                verdict = await self.admit(connection, delivery, now)
                yield verdict
                counted(verdict)

    async def applied(self, connection: C, line: str) -> int | None:
        """The last seq of a line that was applied, if the line is known."""
        return await self._run(connection, dialects.applied(self.config, line))

    async def gaps(self, connection: C) -> list[NotedGap]:
        """The latest gaps that were accepted, latest first."""
        return await self._run(connection, dialects.gaps(self.config))

    async def prune(self, connection: C, now: float | None = None) -> int:
        """Forgets what is older than the retention, at most a step of it, in the caller's transaction.

        Returns how many rows went: commit, and call it again while there are some. Once a day is often enough.
        """
        return await self._run(connection, self.driver.dialect(connection).prune(self.config, seconds(now)))

    async def _run(self, connection: C, steps: Steps[T]) -> T:
        return await run_async(steps, lambda statement, values: self.driver.execute(connection, statement, values))
