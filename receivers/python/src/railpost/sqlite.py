"""The inbox and the queue in SQLite, with the standard library's `sqlite3`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from .inbox.dialects import SQLITE, Dialect
from .inbox.drivers import NoTransaction, OpenTransaction
from .inbox.sql import SqlInbox
from .inbox.statements import Row, Statement, Value
from .queue import SqlQueue

__all__ = ["SqliteInbox", "SqliteQueue"]


class _Sqlite3Driver:
    def dialect(self, connection: sqlite3.Connection) -> Dialect:
        return SQLITE

    def execute(self, connection: sqlite3.Connection, statement: Statement, values: Sequence[Value]) -> list[Row]:
        cursor = connection.execute(statement.qmark, statement.spread(values))
        return [(cursor.rowcount,)] if cursor.description is None else _plain(cursor)

    def script(self, connection: sqlite3.Connection, statements: Sequence[str]) -> None:
        for statement in statements:
            connection.execute(statement)

    def check(self, connection: sqlite3.Connection) -> None:
        if connection.in_transaction:
            return
        if connection.isolation_level is None or getattr(connection, "autocommit", None) is True:
            raise NoTransaction('use `inbox.transaction(…)`, or connection.execute("begin immediate") first')
        connection.execute("begin immediate")

    @contextmanager
    def transaction(self, connection: sqlite3.Connection) -> Iterator[None]:
        # In the mode `autocommit=False` a transaction is always open, and ends with commit() or rollback().
        if getattr(connection, "autocommit", None) is not False:
            if connection.in_transaction:
                raise OpenTransaction
            # The writer's lock comes first, so that nobody writes between what is read and what is written.
            connection.execute("begin immediate")
        try:
            yield
            self._end(connection, "commit")
        except BaseException:
            # A failed statement may have ended the transaction already.
            if connection.in_transaction:
                self._end(connection, "rollback")
            raise

    def _end(self, connection: sqlite3.Connection, how: str) -> None:
        # commit() does nothing in the mode `autocommit=True`, where `begin` was ours.
        if getattr(connection, "autocommit", None) is True:
            connection.execute(how)
        else:
            getattr(connection, how)()

    @contextmanager
    def savepoint(self, connection: sqlite3.Connection) -> Iterator[None]:
        connection.execute("savepoint railpost_effect")
        try:
            yield
        except BaseException:
            if connection.in_transaction:
                connection.execute("rollback to railpost_effect")
                connection.execute("release railpost_effect")
            raise
        connection.execute("release railpost_effect")


def _plain(cursor: sqlite3.Cursor) -> list[Row]:
    # A connection may have a row factory of the application's.
    cursor.row_factory = None
    return cursor.fetchall()


class SqliteInbox(SqlInbox[sqlite3.Connection]):
    """An inbox in the application's own SQLite database. SQLite has one writer at a time: events wait for each other.

    ```
    inbox = SqliteInbox("orders")
    with inbox.transaction(database, delivery) as verdict:
        if verdict.applies:
            database.execute("update orders set paid = 1 where id = ?", [order])
    ```
    """

    driver = _Sqlite3Driver()


class SqliteQueue(SqlQueue[sqlite3.Connection]):
    """A queue in the application's own SQLite database."""
