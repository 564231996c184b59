"""What an inbox needs of a database driver: to run a statement, and to begin and end transactions."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol, TypeVar

from .dialects import Dialect
from .statements import Row, Statement, Value

C_contra = TypeVar("C_contra", contravariant=True)


class NoTransaction(RuntimeError):
    """An event was to be judged outside of a transaction: id and effect would not commit together."""

    def __init__(self, how: str) -> None:
        super().__init__(f"no transaction is open, so that the event and its effect would not commit together: {how}")


class OpenTransaction(RuntimeError):
    """A transaction was to be begun while one is open: its end would be the caller's, and could be forgotten."""

    def __init__(self) -> None:
        super().__init__(
            "a transaction is open already: end it first, or use `admit` or `enqueue` in it and commit it yourself"
        )


class UnknownDatabase(TypeError):
    """A database that has no inbox."""

    def __init__(self, name: str) -> None:
        super().__init__(f"expected a connection to SQLite or PostgreSQL; got one to {name}")


class Driver(Protocol[C_contra]):
    """A blocking driver."""

    def dialect(self, connection: C_contra) -> Dialect:
        """The dialect of the database behind a connection."""

    def execute(self, connection: C_contra, statement: Statement, values: Sequence[Value]) -> list[Row]:
        """Runs a statement. A write that returns nothing is answered with the number of rows that it changed."""

    def script(self, connection: C_contra, statements: Sequence[str]) -> None:
        """Runs statements without values."""

    def check(self, connection: C_contra) -> None:
        """Raises `NoTransaction` if what is written would be committed at once."""

    def transaction(self, connection: C_contra) -> AbstractContextManager[Any]:
        """A transaction that commits at the end, or rolls back on an error. Raises `OpenTransaction` in one."""

    def savepoint(self, connection: C_contra) -> AbstractContextManager[Any]:
        """A part of a transaction that is undone by itself on an error."""


class AsyncDriver(Protocol[C_contra]):
    """An asyncio driver."""

    def dialect(self, connection: C_contra) -> Dialect:
        """The dialect of the database behind a connection."""

    async def execute(self, connection: C_contra, statement: Statement, values: Sequence[Value]) -> list[Row]:
        """Runs a statement. A write that returns nothing is answered with the number of rows that it changed."""

    async def script(self, connection: C_contra, statements: Sequence[str]) -> None:
        """Runs statements without values."""

    async def check(self, connection: C_contra) -> None:
        """Raises `NoTransaction` if what is written would be committed at once."""

    def transaction(self, connection: C_contra) -> AbstractAsyncContextManager[Any]:
        """A transaction that commits at the end, or rolls back on an error. Raises `OpenTransaction` in one."""

    def savepoint(self, connection: C_contra) -> AbstractAsyncContextManager[Any]:
        """A part of a transaction that is undone by itself on an error."""
