"""The inbox and the queue in PostgreSQL, with asyncpg."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from .secrets import MissingExtra

try:
    import asyncpg
except ImportError as error:
    raise MissingExtra("railpost.asyncpg", "asyncpg") from error

from .inbox.dialects import POSTGRES, Dialect
from .inbox.drivers import NoTransaction, OpenTransaction
from .inbox.sql import AsyncSqlInbox
from .inbox.statements import Row, Statement, Value
from .queue import AsyncSqlQueue

__all__ = ["AsyncpgInbox", "AsyncpgQueue"]

#: A connection, or what a pool hands out. asyncpg has no types of its own.
Connection = Any


class _AsyncpgDriver:
    def dialect(self, connection: Connection) -> Dialect:
        if not hasattr(connection, "is_in_transaction"):
            raise TypeError(
                f"expected a connection of asyncpg; got {type(connection).__name__}: acquire one of the pool"
            )
        return POSTGRES

    async def execute(self, connection: Connection, statement: Statement, values: Sequence[Value]) -> list[Row]:
        return list(await connection.fetch(statement.numbered, *values))

    async def script(self, connection: Connection, statements: Sequence[str]) -> None:
        for statement in statements:
            await connection.execute(statement)

    async def check(self, connection: Connection) -> None:
        self.dialect(connection)
        if not connection.is_in_transaction():
            raise NoTransaction("use `inbox.transaction(…)`, or `async with connection.transaction():`")

    @asynccontextmanager
    async def transaction(self, connection: Connection) -> AsyncIterator[None]:
        self.dialect(connection)
        if connection.is_in_transaction():
            raise OpenTransaction
        async with connection.transaction():
            yield

    def savepoint(self, connection: Connection) -> AbstractAsyncContextManager[Any]:
        savepoint: AbstractAsyncContextManager[Any] = connection.transaction()
        return savepoint


class AsyncpgInbox(AsyncSqlInbox[Connection]):
    """An inbox in the application's own PostgreSQL database, on a connection of asyncpg."""

    driver = _AsyncpgDriver()


class AsyncpgQueue(AsyncSqlQueue[Connection]):
    """A queue in the application's own PostgreSQL database, on a connection of asyncpg."""


del asyncpg
