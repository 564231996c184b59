"""The inbox and the queue in PostgreSQL, with psycopg 3, blocking or with asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any

from .secrets import MissingExtra

try:
    import psycopg
    from psycopg.pq import TransactionStatus
    from psycopg.rows import tuple_row
except ImportError as error:
    raise MissingExtra("railpost.psycopg", "psycopg") from error

from .inbox.dialects import POSTGRES, Dialect
from .inbox.drivers import NoTransaction, OpenTransaction
from .inbox.sql import AsyncSqlInbox, SqlInbox
from .inbox.statements import Row, Statement, Value
from .queue import AsyncSqlQueue, SqlQueue

__all__ = ["AsyncPsycopgInbox", "AsyncPsycopgQueue", "PsycopgInbox", "PsycopgQueue"]

Connection = psycopg.Connection[Any]
AsyncConnection = psycopg.AsyncConnection[Any]


def _is_idle(connection: Connection | AsyncConnection) -> bool:
    return connection.info.transaction_status == TransactionStatus.IDLE


def _check(connection: Connection | AsyncConnection) -> None:
    if connection.autocommit and _is_idle(connection):
        raise NoTransaction("use `inbox.transaction(…)`, or `with connection.transaction():`")


class _PsycopgDriver:
    def dialect(self, connection: Connection) -> Dialect:
        return POSTGRES

    def execute(self, connection: Connection, statement: Statement, values: Sequence[Value]) -> list[Row]:
        # A connection may have a row factory of the application's.
        with connection.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(statement.pyformat.encode(), statement.mapping(values))
            return list(cursor.fetchall())

    def script(self, connection: Connection, statements: Sequence[str]) -> None:
        for statement in statements:
            connection.execute(statement.encode())

    def check(self, connection: Connection) -> None:
        _check(connection)

    @contextmanager
    def transaction(self, connection: Connection) -> Iterator[None]:
        if not _is_idle(connection):
            raise OpenTransaction
        with connection.transaction():
            yield

    def savepoint(self, connection: Connection) -> AbstractContextManager[Any]:
        return connection.transaction()


class _AsyncPsycopgDriver:
    def dialect(self, connection: AsyncConnection) -> Dialect:
        return POSTGRES

    async def execute(self, connection: AsyncConnection, statement: Statement, values: Sequence[Value]) -> list[Row]:
        async with connection.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(statement.pyformat.encode(), statement.mapping(values))
            return list(await cursor.fetchall())

    async def script(self, connection: AsyncConnection, statements: Sequence[str]) -> None:
        for statement in statements:
            await connection.execute(statement.encode())

    async def check(self, connection: AsyncConnection) -> None:
        _check(connection)

    @asynccontextmanager
    async def transaction(self, connection: AsyncConnection) -> AsyncIterator[None]:
        if not _is_idle(connection):
            raise OpenTransaction
        async with connection.transaction():
            yield

    def savepoint(self, connection: AsyncConnection) -> AbstractAsyncContextManager[Any]:
        return connection.transaction()


class PsycopgInbox(SqlInbox[Connection]):
    """An inbox in the application's own PostgreSQL database, on `psycopg.Connection`."""

    driver = _PsycopgDriver()


class AsyncPsycopgInbox(AsyncSqlInbox[AsyncConnection]):
    """An inbox in the application's own PostgreSQL database, on `psycopg.AsyncConnection`."""

    driver = _AsyncPsycopgDriver()


class PsycopgQueue(SqlQueue[Connection]):
    """A queue in the application's own PostgreSQL database, on `psycopg.Connection`."""


class AsyncPsycopgQueue(AsyncSqlQueue[AsyncConnection]):
    """A queue in the application's own PostgreSQL database, on `psycopg.AsyncConnection`."""
