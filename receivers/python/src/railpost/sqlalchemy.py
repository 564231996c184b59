"""The inbox and the queue in the application's database, with SQLAlchemy 2 on SQLite or PostgreSQL.

A blocking inbox takes a `Session` or a `Connection`, an asyncio one an `AsyncSession` or an `AsyncConnection`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from functools import lru_cache
from typing import Any, Union

from .secrets import MissingExtra

try:
    from sqlalchemy import BigInteger, Connection, LargeBinary, String, TextClause, bindparam, text
    from sqlalchemy.engine import CursorResult, Result
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
    from sqlalchemy.orm import Session
except ImportError as error:
    raise MissingExtra("railpost.sqlalchemy", "sqlalchemy") from error

from .inbox.dialects import POSTGRES, SQLITE, Dialect
from .inbox.drivers import NoTransaction, OpenTransaction, UnknownDatabase
from .inbox.sql import AsyncSqlInbox, SqlInbox
from .inbox.statements import Row, Statement, Value
from .queue import AsyncSqlQueue, SqlQueue

__all__ = ["AsyncSqlAlchemyInbox", "AsyncSqlAlchemyQueue", "SqlAlchemyInbox", "SqlAlchemyQueue"]

AnySession = Union[Session, Connection]
AnyAsyncSession = Union[AsyncSession, AsyncConnection]

_TYPES: dict[type, Any] = {str: String(), int: BigInteger(), bytes: LargeBinary()}


@lru_cache(maxsize=256)
def _clause(statement: Statement, types: tuple[type, ...]) -> TextClause:
    # Some drivers announce 32 bits for any number unless they are told.
    known = [(name, _TYPES.get(kind)) for name, kind in zip(statement.names, types, strict=True)]
    return text(statement.named).bindparams(*(bindparam(name, type_=kind) for name, kind in known if kind is not None))


def _prepared(statement: Statement, values: Sequence[Value]) -> tuple[TextClause, dict[str, Value]]:
    return _clause(statement, tuple(map(type, values))), statement.mapping(values)


def _rows(result: Result[Any]) -> list[Row]:
    if isinstance(result, CursorResult) and not result.returns_rows:
        return [(result.rowcount,)]
    return list(result.all())


def _dialect_named(name: str) -> Dialect:
    if name == "sqlite":
        return SQLITE
    if name == "postgresql":
        return POSTGRES
    raise UnknownDatabase(name)


def _check(connection: Connection) -> None:
    # What `Connection` itself goes by: its own option, or that of its engine.
    level = connection.get_execution_options().get("isolation_level")
    if level is None:
        level = getattr(connection.engine.dialect, "_on_connect_isolation_level", None)
    if level == "AUTOCOMMIT":
        raise NoTransaction("the connection has the isolation level AUTOCOMMIT; use another one here")


class _SqlAlchemyDriver:
    def dialect(self, connection: AnySession) -> Dialect:
        return _dialect_named(
            connection.get_bind().dialect.name if isinstance(connection, Session) else connection.dialect.name
        )

    def execute(self, connection: AnySession, statement: Statement, values: Sequence[Value]) -> list[Row]:
        return _rows(connection.execute(*_prepared(statement, values)))

    def script(self, connection: AnySession, statements: Sequence[str]) -> None:
        raw = self._raw(connection)
        for statement in statements:
            raw.exec_driver_sql(statement)

    def check(self, connection: AnySession) -> None:
        _check(self._raw(connection))

    @contextmanager
    def transaction(self, connection: AnySession) -> Iterator[None]:
        if connection.in_transaction():
            raise OpenTransaction
        with connection.begin():
            yield

    def savepoint(self, connection: AnySession) -> AbstractContextManager[Any]:
        return connection.begin_nested()

    def _raw(self, connection: AnySession) -> Connection:
        return connection.connection() if isinstance(connection, Session) else connection


class _AsyncSqlAlchemyDriver:
    def dialect(self, connection: AnyAsyncSession) -> Dialect:
        if isinstance(connection, AsyncSession):
            return _dialect_named(connection.get_bind().dialect.name)
        return _dialect_named(connection.dialect.name)

    async def execute(self, connection: AnyAsyncSession, statement: Statement, values: Sequence[Value]) -> list[Row]:
        return _rows(await connection.execute(*_prepared(statement, values)))

    async def script(self, connection: AnyAsyncSession, statements: Sequence[str]) -> None:
        raw = await self._raw(connection)
        for statement in statements:
            await raw.exec_driver_sql(statement)

    async def check(self, connection: AnyAsyncSession) -> None:
        raw = await self._raw(connection)
        if raw.sync_connection is not None:
            _check(raw.sync_connection)

    @asynccontextmanager
    async def transaction(self, connection: AnyAsyncSession) -> AsyncIterator[None]:
        if connection.in_transaction():
            raise OpenTransaction
        async with connection.begin():
            yield

    def savepoint(self, connection: AnyAsyncSession) -> AbstractAsyncContextManager[Any]:
        return connection.begin_nested()

    async def _raw(self, connection: AnyAsyncSession) -> AsyncConnection:
        return await connection.connection() if isinstance(connection, AsyncSession) else connection


class SqlAlchemyInbox(SqlInbox[AnySession]):
    """An inbox in the application's own database, in a `Session` or on a `Connection`."""

    driver = _SqlAlchemyDriver()


class AsyncSqlAlchemyInbox(AsyncSqlInbox[AnyAsyncSession]):
    """An inbox in the application's own database, in an `AsyncSession` or on an `AsyncConnection`."""

    driver = _AsyncSqlAlchemyDriver()


class SqlAlchemyQueue(SqlQueue[AnySession]):
    """A queue in the application's own database, in a `Session` or on a `Connection`."""


class AsyncSqlAlchemyQueue(AsyncSqlQueue[AnyAsyncSession]):
    """A queue in the application's own database, in an `AsyncSession` or on an `AsyncConnection`."""
