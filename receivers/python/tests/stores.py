"""Every inbox there is, behind one blocking interface, for the suites that all of them must pass."""

from __future__ import annotations

import asyncio
import itertools
import os
import sqlite3
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import redis
import redis.asyncio
import sqlalchemy
import sqlalchemy.ext.asyncio
import sqlalchemy.orm

from railpost import Delivery, MemoryInbox, Policy, SqliteInbox, SqliteQueue, Verdict, WorkPolicy
from railpost.asyncpg import AsyncpgInbox, AsyncpgQueue
from railpost.django import DjangoInbox, DjangoQueue
from railpost.psycopg import AsyncPsycopgInbox, AsyncPsycopgQueue, PsycopgInbox, PsycopgQueue
from railpost.redis import AsyncRedisInbox, RedisInbox
from railpost.sqlalchemy import AsyncSqlAlchemyInbox, AsyncSqlAlchemyQueue, SqlAlchemyInbox, SqlAlchemyQueue

NOW = 1_767_225_600
_numbers = itertools.count(1)
#: The kinds of stores whose tables are there.
_made: set[type] = set()


def required(variable: str) -> str:
    """A setting that `cargo xtask python` makes."""
    value = os.environ.get(variable)
    if not value:
        raise RuntimeError(f"{variable} is not set: run the tests with `cargo xtask python`")
    return value


def postgres_url(driver: str = "") -> str:
    """The throwaway PostgreSQL server, for SQLAlchemy with its driver's name."""
    url = required("RAILPOST_TEST_POSTGRES")
    return url.replace("postgres://", f"postgresql+{driver}://") if driver else url


def redis_url() -> str:
    return required("RAILPOST_TEST_REDIS")


def unique() -> str:
    """A name that nobody else has: stores are shared, inboxes are told apart by name."""
    return f"inbox-{os.getpid()}-{next(_numbers)}-{uuid.uuid4().hex[:6]}"


def event(event_id: str, place: tuple[str, int] | None = None, **fields: Any) -> Delivery:
    """A delivery that was verified. The line and the key have the same name."""
    if place is not None:
        fields = {"key": place[0], "line": place[0], "seq": place[1], **fields}
    return Delivery(event_id, NOW, b'{"n": 1}', **fields)


class EffectFailed(Exception):
    """What an effect under test raises."""


class Store:
    """An inbox under test. The application's own table is `effects`."""

    #: Whether the effect commits with the inbox.
    transactional = True

    def offer(self, delivery: Delivery, now: int, succeeds: bool = True) -> Verdict:
        """Judges an event, and if the verdict applies, applies it with success or without."""
        raise NotImplementedError

    def applied(self, line: str) -> int | None:
        raise NotImplementedError

    def gaps(self) -> list[Any]:
        raise NotImplementedError

    def effects(self) -> list[str]:
        """The ids whose effect is in the application's table, in order."""
        raise NotImplementedError

    def close(self) -> None:
        """Gives back what it holds."""


SQLITE_EFFECTS = "create table if not exists effects (position integer primary key, inbox text, id text)"
POSTGRES_EFFECTS = "create table if not exists effects (position bigserial primary key, inbox text, id text)"


class SqlStore(Store):
    """A blocking inbox. Subclasses say how to connect and how to run a statement of the application's."""

    inbox_type: type[Any]
    queue_type: type[Any]

    def __init__(self, policy: Policy | None = None, work: WorkPolicy | None = None, name: str | None = None) -> None:
        self.name = name or unique()
        self.inbox = self.inbox_type(self.name, policy)
        self.queue = self.queue_type(self.inbox, work)
        self.connection = self.connect()
        self.create_tables()

    def create_tables(self) -> None:
        """The server's tables outlive a store: each kind of store makes them once."""
        if self.effects_table == POSTGRES_EFFECTS:
            if type(self) in _made:
                return
            _made.add(type(self))
        self.inbox.create_tables(self.connection)
        self.execute(self.effects_table)
        self.commit()

    effects_table = SQLITE_EFFECTS

    def connect(self) -> Any:
        raise NotImplementedError

    def execute(self, sql: str, *values: Any) -> list[Any]:
        raise NotImplementedError

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()

    def note_effect(self, event_id: str) -> None:
        self.execute("insert into effects (inbox, id) values (?, ?)", self.name, event_id)

    def offer(self, delivery: Delivery, now: int, succeeds: bool = True) -> Verdict:
        verdict: Verdict = self.inbox.admit(self.connection, delivery, now)
        if verdict.applies:
            self.note_effect(delivery.event_id)
        if succeeds:
            self.commit()
        else:
            self.rollback()
        return verdict

    def applied(self, line: str) -> int | None:
        found: int | None = self.inbox.applied(self.connection, line)
        self.rollback()
        return found

    def gaps(self) -> list[Any]:
        found: list[Any] = self.inbox.gaps(self.connection)
        self.rollback()
        return found

    def effects(self) -> list[str]:
        rows = self.execute("select id from effects where inbox = ? order by position", self.name)
        self.rollback()
        return [row[0] for row in rows]

    def prune(self, now: int) -> int:
        removed: int = self.inbox.prune(self.connection, now)
        self.commit()
        return removed

    def close(self) -> None:
        self.connection.close()

    # The queue, with the same signatures for all stores.

    def accept(self, delivery: Delivery, now: int) -> Verdict:
        verdict: Verdict = self.queue.accept(self.connection, delivery, now)
        return verdict

    def work_one(self, now: int, effect: Callable[[Any], None] | None = None) -> Any:
        """Notes the effect, then lets `effect` fail if it likes."""

        def run(_: Any, job: Any) -> None:
            self.note_effect(job.delivery.event_id)
            if effect:
                effect(job)

        return self.queue.work_one(self.connection, run, now)

    def dead_letters(self) -> list[Any]:
        letters: list[Any] = self.queue.dead_letters(self.connection)
        self.rollback()
        return letters

    def retry(self, position: int, now: int) -> bool:
        found: bool = self.queue.retry(self.connection, position, now)
        self.commit()
        return found

    def discard(self, position: int) -> bool:
        found: bool = self.queue.discard(self.connection, position)
        self.commit()
        return found

    def backlog(self, now: int) -> Any:
        backlog = self.queue.backlog(self.connection, now)
        self.rollback()
        return backlog


class Sqlite3Store(SqlStore):
    inbox_type, queue_type = SqliteInbox, SqliteQueue
    path: str = ":memory:"

    def connect(self) -> sqlite3.Connection:
        # Processes wait for each other here, on machines that do other work too.
        return sqlite3.connect(self.path, timeout=60)

    def execute(self, sql: str, *values: Any) -> list[Any]:
        return self.connection.execute(sql, values).fetchall()


class PsycopgStore(SqlStore):
    inbox_type, queue_type = PsycopgInbox, PsycopgQueue
    effects_table = POSTGRES_EFFECTS

    def connect(self) -> Any:
        return psycopg.connect(postgres_url())

    def execute(self, sql: str, *values: Any) -> list[Any]:
        cursor = self.connection.execute(sql.replace("?", "%s"), values)
        return cursor.fetchall() if cursor.description else []


class SqlAlchemyStore(SqlStore):
    inbox_type, queue_type = SqlAlchemyInbox, SqlAlchemyQueue

    def url(self) -> str:
        return "sqlite://"

    def connect(self) -> Any:
        self.engine = sqlalchemy.create_engine(self.url())
        return sqlalchemy.orm.Session(self.engine)

    def execute(self, sql: str, *values: Any) -> list[Any]:
        return _run_alchemy(self.connection, sql, values)

    def close(self) -> None:
        self.connection.close()
        self.engine.dispose()


def _named(sql: str, values: Any) -> tuple[Any, dict[str, Any]]:
    names = [f"v{at}" for at in range(len(values))]
    for name in names:
        sql = sql.replace("?", f":{name}", 1)
    return sqlalchemy.text(sql), dict(zip(names, values, strict=True))


def _run_alchemy(connection: Any, sql: str, values: Any) -> list[Any]:
    result = connection.execute(*_named(sql, values))
    return list(result) if result.returns_rows else []


class SqlAlchemyConnectionStore(SqlAlchemyStore):
    def connect(self) -> Any:
        self.engine = sqlalchemy.create_engine(self.url())
        return self.engine.connect()


class SqlAlchemyPostgresStore(SqlAlchemyStore):
    effects_table = POSTGRES_EFFECTS

    def url(self) -> str:
        return postgres_url("psycopg")


class DjangoStore(SqlStore):
    """Django names its connections."""

    alias = "default"

    def __init__(self, policy: Policy | None = None, work: WorkPolicy | None = None, name: str | None = None) -> None:
        self.name = name or unique()
        self.inbox = DjangoInbox(self.name, policy, using=self.alias)
        self.queue = DjangoQueue(self.inbox, work)
        if type(self) not in _made:
            _made.add(type(self))
            self.inbox.create_tables()
            self.execute(self.effects_table)

    def execute(self, sql: str, *values: Any) -> list[Any]:
        from django.db import connections

        with connections[self.alias].cursor() as cursor:
            cursor.execute(sql.replace("?", "%s"), values or None)
            return list(cursor.fetchall()) if cursor.description else []

    def offer(self, delivery: Delivery, now: int, succeeds: bool = True) -> Verdict:
        try:
            with self.inbox.transaction(delivery, now) as verdict:
                if verdict.applies:
                    self.note_effect(delivery.event_id)
                if not succeeds:
                    raise EffectFailed
        except EffectFailed:
            pass
        return verdict

    def commit(self) -> None:
        pass

    def rollback(self) -> None:
        pass

    def applied(self, line: str) -> int | None:
        return self.inbox.applied(line)

    def gaps(self) -> list[Any]:
        return self.inbox.gaps()

    def prune(self, now: int) -> int:
        return self.inbox.prune(now)

    def accept(self, delivery: Delivery, now: int) -> Verdict:
        return self.queue.accept(delivery, now)

    def work_one(self, now: int, effect: Callable[[Any], None] | None = None) -> Any:
        def run(job: Any) -> None:
            self.note_effect(job.delivery.event_id)
            if effect:
                effect(job)

        return self.queue.work_one(run, now)

    def dead_letters(self) -> list[Any]:
        return self.queue.dead_letters()

    def retry(self, position: int, now: int) -> bool:
        return self.queue.retry(position, now)

    def discard(self, position: int) -> bool:
        return self.queue.discard(position)

    def backlog(self, now: int) -> Any:
        return self.queue.backlog(now)

    def close(self) -> None:
        from django.db import connections

        connections[self.alias].close()


class DjangoPostgresStore(DjangoStore):
    alias, effects_table = "postgres", POSTGRES_EFFECTS


class Await:
    """Makes the methods of an object of asyncio blocking, on one loop."""

    def __init__(self, inner: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._inner, self._loop = inner, loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not asyncio.iscoroutinefunction(found):
            return found
        return lambda *values: self._loop.run_until_complete(found(*values))


class AsyncSqlStore(SqlStore):
    """An inbox of asyncio, run to its end call by call."""

    def __init__(self, policy: Policy | None = None, work: WorkPolicy | None = None, name: str | None = None) -> None:
        self.name = name or unique()
        self.loop = asyncio.new_event_loop()
        inner = self.inbox_type(self.name, policy)
        self.inbox, self.queue = Await(inner, self.loop), Await(self.queue_type(inner, work), self.loop)
        self.connection = self.run(self.open())
        self.create_tables()

    def run(self, coroutine: Any) -> Any:
        return self.loop.run_until_complete(coroutine)

    async def open(self) -> Any:
        raise NotImplementedError

    def commit(self) -> None:
        self.run(self.connection.commit())

    def rollback(self) -> None:
        self.run(self.connection.rollback())

    def execute(self, sql: str, *values: Any) -> list[Any]:
        return list(self.run(self.execute_async(sql, *values)))

    async def execute_async(self, sql: str, *values: Any) -> list[Any]:
        raise NotImplementedError

    def work_one(self, now: int, effect: Callable[[Any], None] | None = None) -> Any:
        async def run(_: Any, job: Any) -> None:
            await self.execute_async("insert into effects (inbox, id) values (?, ?)", self.name, job.delivery.event_id)
            if effect:
                effect(job)

        return self.queue.work_one(self.connection, run, now)

    def close(self) -> None:
        self.run(self.connection.close())
        self.loop.close()


class AsyncPsycopgStore(AsyncSqlStore):
    inbox_type, queue_type = AsyncPsycopgInbox, AsyncPsycopgQueue
    effects_table = POSTGRES_EFFECTS

    async def open(self) -> Any:
        return await psycopg.AsyncConnection.connect(postgres_url())

    async def execute_async(self, sql: str, *values: Any) -> list[Any]:
        cursor = await self.connection.execute(sql.replace("?", "%s"), values)
        return await cursor.fetchall() if cursor.description else []


class AsyncpgStore(AsyncSqlStore):
    """asyncpg has no implicit transactions."""

    inbox_type, queue_type = AsyncpgInbox, AsyncpgQueue
    effects_table = POSTGRES_EFFECTS

    async def open(self) -> Any:
        return await asyncpg.connect(postgres_url())

    async def execute_async(self, sql: str, *values: Any) -> list[Any]:
        for at in range(1, len(values) + 1):
            sql = sql.replace("?", f"${at}", 1)
        return await self.connection.fetch(sql, *values)

    def commit(self) -> None:
        pass

    def rollback(self) -> None:
        pass

    def offer(self, delivery: Delivery, now: int, succeeds: bool = True) -> Verdict:
        async def offer() -> Verdict:
            transaction = self.connection.transaction()
            await transaction.start()
            verdict: Verdict = await self.inbox._inner.admit(self.connection, delivery, now)
            if verdict.applies:
                await self.execute_async("insert into effects (inbox, id) values (?, ?)", self.name, delivery.event_id)
            await (transaction.commit() if succeeds else transaction.rollback())
            return verdict

        return self.run(offer())


class AsyncSqlAlchemyStore(AsyncSqlStore):
    inbox_type, queue_type = AsyncSqlAlchemyInbox, AsyncSqlAlchemyQueue

    def url(self) -> str:
        return "sqlite+aiosqlite://"

    async def open(self) -> Any:
        self.engine = sqlalchemy.ext.asyncio.create_async_engine(self.url())
        return sqlalchemy.ext.asyncio.AsyncSession(self.engine)

    async def execute_async(self, sql: str, *values: Any) -> list[Any]:
        result = await self.connection.execute(*_named(sql, values))
        return list(result) if result.returns_rows else []

    def close(self) -> None:
        self.run(self.connection.close())
        self.run(self.engine.dispose())
        self.loop.close()


class AsyncSqlAlchemyAsyncpgStore(AsyncSqlAlchemyStore):
    effects_table = POSTGRES_EFFECTS

    def url(self) -> str:
        return postgres_url("asyncpg")


class AsyncSqlAlchemyConnectionStore(AsyncSqlAlchemyAsyncpgStore):
    async def open(self) -> Any:
        self.engine = sqlalchemy.ext.asyncio.create_async_engine(postgres_url("psycopg"))
        return await self.engine.connect()


class MemoryStore(Store):
    transactional = False

    def __init__(self, policy: Policy | None = None) -> None:
        self.inbox = MemoryInbox(policy)
        self._effects: list[str] = []

    def offer(self, delivery: Delivery, now: int, succeeds: bool = True) -> Verdict:
        ticket = self.inbox.begin(delivery, now)
        if not succeeds:
            self.inbox.undo(ticket)
            return ticket.verdict
        if ticket.verdict.applies:
            self._effects.append(delivery.event_id)
        self.inbox.done(ticket, now)
        return ticket.verdict

    def applied(self, line: str) -> int | None:
        return self.inbox.applied(line)

    def gaps(self) -> list[Any]:
        return self.inbox.gaps()

    def effects(self) -> list[str]:
        return self._effects


class RedisStore(MemoryStore):
    def __init__(self, policy: Policy | None = None) -> None:
        self.client: Any = redis.Redis.from_url(redis_url())
        self.inbox: Any = RedisInbox(self.client, unique(), policy)
        self._effects = []

    def close(self) -> None:
        self.client.close()


class AsyncRedisStore(MemoryStore):
    def __init__(self, policy: Policy | None = None) -> None:
        self.loop = asyncio.new_event_loop()
        self.client: Any = redis.asyncio.Redis.from_url(redis_url(), decode_responses=True)
        self.inbox: Any = Await(AsyncRedisInbox(self.client, unique(), policy), self.loop)
        self._effects = []

    def close(self) -> None:
        self.loop.run_until_complete(self.client.aclose())
        self.loop.close()


SQL_STORES: dict[str, type[SqlStore]] = {
    "sqlite3": Sqlite3Store,
    "psycopg": PsycopgStore,
    "psycopg-async": AsyncPsycopgStore,
    "asyncpg": AsyncpgStore,
    "sqlalchemy-sqlite": SqlAlchemyStore,
    "sqlalchemy-connection": SqlAlchemyConnectionStore,
    "sqlalchemy-psycopg": SqlAlchemyPostgresStore,
    "sqlalchemy-aiosqlite": AsyncSqlAlchemyStore,
    "sqlalchemy-asyncpg": AsyncSqlAlchemyAsyncpgStore,
    "sqlalchemy-psycopg-async-connection": AsyncSqlAlchemyConnectionStore,
    "django-sqlite": DjangoStore,
    "django-postgres": DjangoPostgresStore,
}
STORES: dict[str, Callable[..., Store]] = {
    **SQL_STORES,
    "redis": RedisStore,
    "redis-async": AsyncRedisStore,
    "memory": MemoryStore,
}


def configure_django(folder: Path) -> None:
    """Two databases: SQLite, and the throwaway PostgreSQL server."""
    import django
    from django.conf import settings
    from psycopg.conninfo import conninfo_to_dict

    info = conninfo_to_dict(postgres_url())
    settings.configure(
        SECRET_KEY="for tests",
        INSTALLED_APPS=["railpost.django"],
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF="django_urls",
        MIDDLEWARE=["django.middleware.csrf.CsrfViewMiddleware"],
        USE_TZ=True,
        DATABASES={
            "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(folder / "django.db")},
            "postgres": {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": info["dbname"],
                "USER": info["user"],
                "HOST": info["host"],
                "PORT": info["port"],
            },
        },
    )
    django.setup()
