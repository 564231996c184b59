"""Bad settings, bad calls, bounds: each has an error that says what was wrong and what to do."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
import sqlalchemy.orm
from stores import NOW, MemoryStore, RedisStore, SqlAlchemyStore, event, postgres_url, unique
from vectors import ROOT

from railpost import (
    BadHeaderName,
    BadSecret,
    Delivery,
    Kind,
    MemoryInbox,
    NoTransaction,
    OpenTransaction,
    Policy,
    Receiver,
    SqliteInbox,
    UnknownDatabase,
    Verdict,
    WorkPolicy,
    schema,
)
from railpost.asyncpg import AsyncpgInbox
from railpost.counters import Counters
from railpost.inbox.gap_timers import GapTimers
from railpost.inbox.policy import InboxConfig, Known
from railpost.inbox.statements import split
from railpost.limits import GAP_SIGHTS_MAX
from railpost.psycopg import PsycopgInbox
from railpost.sqlalchemy import SqlAlchemyInbox
from railpost.testing import Sender

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: Receiver(), ValueError, "secrets, keys: expected at least one"),
        (lambda: Receiver("not a secret"), BadSecret, "whsec_"),
        (lambda: Receiver(SECRET, tolerance=-1), ValueError, "tolerance: expected"),
        (lambda: Receiver(SECRET, tolerance=1.5), ValueError, "tolerance: expected"),
        (lambda: Receiver(SECRET, names={"x_keys": "X"}), BadHeaderName, "x_keys"),
        (lambda: Receiver.stripe([]), ValueError, "secrets: expected"),
        (lambda: Receiver.github([""]), ValueError, "secrets: expected"),
        (lambda: Receiver.websub("s", methods=["md5"]), ValueError, "methods: expected"),
        (lambda: Receiver(SECRET).verify({}, "text"), TypeError, "body: expected the bytes"),  # type: ignore[arg-type]
        (lambda: Receiver(SECRET).verify({"a": 5}, b""), TypeError, "header `a`"),  # type: ignore[dict-item]
        (lambda: Policy(on_gap="later"), ValueError, "later"),
        (lambda: Policy(gap_timeout=-1), ValueError, "gap_timeout: expected"),
        (lambda: InboxConfig(""), ValueError, "name: expected"),
        (lambda: InboxConfig("a", retention=0), ValueError, "retention: expected"),
        (lambda: WorkPolicy(tries_max=0), ValueError, "tries_max: expected"),
        (lambda: WorkPolicy(backlog_max=2**31), ValueError, "backlog_max: expected"),
        (lambda: Counters().count("others"), ValueError, "expected one of fresh"),
        (lambda: schema("mysql"), ValueError, "dialect: expected"),
    ],
)
def test_a_setting_that_cannot_be_meant_is_refused_by_name(make: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        make()


def test_a_secret_never_appears_in_an_error_or_a_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises(BadSecret) as caught:
        Receiver(SECRET + "x")
    assert SECRET[6:] not in str(caught.value) + caplog.text


def test_headers_are_taken_as_frameworks_have_them() -> None:
    sender = Sender(SECRET)
    sent = sender.event()
    request = sender.request(sent)
    pairs = list(request.headers)
    shapes: list[Any] = [
        dict(pairs),
        {name.upper(): value for name, value in pairs},
        [(name.encode(), value.encode()) for name, value in pairs],
        [*pairs, ("webhook-id", "the first counts")],
    ]
    for headers in shapes:
        assert Receiver(SECRET).verify(headers, request.body).event_id == sent.id


def test_sqlite_judges_in_the_transaction_of_the_caller_or_not_at_all() -> None:
    inbox = SqliteInbox("orders")
    database = sqlite3.connect(":memory:", isolation_level=None)
    inbox.create_tables(database)
    with pytest.raises(NoTransaction, match="begin immediate"):
        inbox.admit(database, event("1"), NOW)
    database.execute("begin")
    assert inbox.admit(database, event("1"), NOW).applies
    with pytest.raises(OpenTransaction), inbox.transaction(database, event("2"), NOW):
        pass
    database.execute("rollback")
    with inbox.transaction(database, event("1"), NOW) as verdict:
        assert verdict.applies
    assert not database.in_transaction
    database.close()


def test_sqlite_rows_may_have_a_factory_and_a_deferred_transaction_may_have_read() -> None:
    inbox, database = SqliteInbox("orders"), sqlite3.connect(":memory:")
    database.row_factory = sqlite3.Row
    inbox.create_tables(database)
    for seq in (1, 2):
        database.execute("select count(*) from railpost_inbox").fetchall()
        assert inbox.admit(database, event(str(seq), ("A", seq)), NOW).kind is Kind.FRESH
        database.commit()
    assert inbox.applied(database, "A") == 2
    database.close()


if sys.version_info >= (3, 12):

    @pytest.mark.parametrize("mode", [True, False])
    def test_sqlite_in_both_modes_of_autocommit_commits_and_rolls_back(mode: bool, tmp_path: Path) -> None:
        inbox, path = SqliteInbox("orders"), tmp_path / "orders.db"
        database = sqlite3.connect(path, autocommit=mode)  # type: ignore[call-overload]
        inbox.create_tables(database)
        with pytest.raises(RuntimeError), inbox.transaction(database, event("1"), NOW):
            raise RuntimeError("the effect fails")
        for expected in (Kind.FRESH, Kind.DUPLICATE):
            with inbox.transaction(database, event("1"), NOW) as verdict:
                assert verdict.kind is expected
        database.close()
        other = sqlite3.connect(path)
        assert inbox.admit(other, event("1"), NOW).kind is Kind.DUPLICATE
        other.close()


def test_postgresql_judges_in_the_transaction_of_the_caller_or_not_at_all() -> None:
    with psycopg.connect(postgres_url(), autocommit=True) as connection:
        inbox = PsycopgInbox(unique())
        inbox.create_tables(connection)
        with pytest.raises(NoTransaction, match=r"connection\.transaction"):
            inbox.admit(connection, event("1"), NOW)
        with connection.transaction():
            assert inbox.admit(connection, event("1"), NOW).applies
            with pytest.raises(OpenTransaction), inbox.transaction(connection, event("2"), NOW):
                pass

    async def run() -> None:
        connection = await asyncpg.connect(postgres_url())
        inbox = AsyncpgInbox(unique())
        with pytest.raises(NoTransaction):
            await inbox.admit(connection, event("1"), NOW)
        with pytest.raises(TypeError, match="acquire one of the pool"):
            await inbox.admit(object(), event("1"), NOW)
        await connection.close()

    asyncio.run(run())


@pytest.mark.parametrize("where", ["engine", "connection"])
def test_sqlalchemy_with_autocommit_is_refused(where: str) -> None:
    engine = sqlalchemy.create_engine(
        postgres_url("psycopg"), **({"isolation_level": "AUTOCOMMIT"} if where == "engine" else {})
    )
    with engine.connect() as connection:
        if where == "connection":
            connection = connection.execution_options(isolation_level="AUTOCOMMIT")
        with pytest.raises(NoTransaction, match="AUTOCOMMIT"):
            SqlAlchemyInbox(unique()).admit(connection, event("1"), NOW)
    engine.dispose()


def test_a_database_without_an_inbox_is_named() -> None:
    class Dialect:
        name = "mysql"

    engine = sqlalchemy.create_engine("sqlite://")
    with engine.connect() as connection:
        connection.dialect, known = Dialect(), connection.dialect  # type: ignore[assignment]
        with pytest.raises(UnknownDatabase, match="SQLite or PostgreSQL; got one to mysql"):
            SqlAlchemyInbox("orders").driver.dialect(connection)
        connection.dialect = known
    engine.dispose()


def test_what_a_session_has_not_flushed_yet_commits_with_the_event(closing: Any) -> None:
    store: SqlAlchemyStore = closing(SqlAlchemyStore())

    class Base(sqlalchemy.orm.DeclarativeBase):
        pass

    class Order(Base):
        __tablename__ = "orders"
        id = sqlalchemy.Column(sqlalchemy.String, primary_key=True)

    Base.metadata.create_all(store.engine)
    session: Any = store.connection
    with pytest.raises(RuntimeError), store.inbox.transaction(session, event("1"), NOW):
        session.add(Order(id="A"))
        raise RuntimeError("the effect fails")
    with store.inbox.transaction(session, event("1"), NOW) as verdict:
        assert verdict.kind is Kind.FRESH
        session.add(Order(id="A"))
    assert session.query(Order).count() == 1


@pytest.mark.parametrize("store_type", [MemoryStore, RedisStore])
def test_what_is_being_applied_is_busy_and_so_is_its_line(store_type: Any, closing: Any) -> None:
    inbox = closing(store_type(Policy())).inbox
    first = inbox.begin(event("1", ("A", 1)), NOW)
    for other in (event("1", ("A", 1)), event("2", ("A", 2)), event("1", ("B", 1)), event("1")):
        busy = inbox.begin(other, NOW).verdict
        assert (busy.kind, busy.applies, busy.answer.status) == (Kind.BUSY, False, 409)
    assert inbox.begin(event("3", ("B", 1)), NOW).verdict.applies
    inbox.done(first, NOW)
    assert inbox.begin(event("1", ("A", 1)), NOW).verdict.kind is Kind.DUPLICATE


def test_a_late_owner_of_a_claim_in_redis_does_not_move_the_line(closing: Any) -> None:
    store = closing(RedisStore(Policy()))
    late = store.inbox.begin(event("1", ("A", 1)), NOW)
    for key in store.client.keys(f"{store.inbox._core.config.name}:claim:*"):
        store.client.delete(key)
    assert store.offer(event("1", ("A", 1)), NOW).applies
    assert store.offer(event("2", ("A", 2)), NOW).applies
    store.inbox.done(late, NOW)
    assert store.applied("A") == 2
    assert store.offer(event("3", ("A", 3)), NOW).applies


def test_memory_forgets_what_is_old_and_what_is_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    inbox = MemoryInbox(retention=10)
    assert inbox.apply(event("1", ("A", 1)), lambda: None, NOW).applies
    assert inbox.begin(event("1"), NOW + 10).verdict.kind is Kind.DUPLICATE
    assert inbox.begin(event("1"), NOW + 11).verdict.kind is Kind.FRESH
    assert inbox.applied("A") == 1
    inbox.begin(event("x"), NOW + 121)
    assert inbox.applied("A") is None
    monkeypatch.setattr("railpost.memory.MEMORY_IDS_MAX", 3)
    small = MemoryInbox()
    for number in range(10):
        small.apply(event(str(number)), lambda: None, NOW)
    assert len(small._ids) <= 3


def gap(timers: GapTimers, line: str, now: int) -> bool:
    return timers.judge(Policy(), Delivery("1", 0, b"", line=line, seq=5), Known(), now).applies


def test_more_gaps_than_there_is_room_for_wait_together() -> None:
    timers = GapTimers()
    for number in range(GAP_SIGHTS_MAX):
        assert not gap(timers, f"line-{number}", 0)
    assert not gap(timers, "more", 10)
    assert not gap(timers, "even-more", 69)
    assert gap(timers, "even-more", 70)
    assert len(timers) == GAP_SIGHTS_MAX


def test_a_line_that_moved_on_elsewhere_waits_from_the_start() -> None:
    timers = GapTimers()
    assert not gap(timers, "A", 0)
    for now, accepted in ((60, False), (119, False), (120, True)):
        moved = Known(applied=2)
        verdict = timers.judge(Policy(), Delivery("1", 0, b"", line="A", seq=5), moved, now)
        assert verdict.applies == accepted


def test_gaps_that_were_accepted_make_room() -> None:
    timers = GapTimers()
    for now in (0, 60):
        for number in range(GAP_SIGHTS_MAX):
            assert gap(timers, f"line-{number}", now) == (now == 60)
    assert not gap(timers, "another", 60)
    assert len(timers) == 1


def test_the_tables_are_those_of_the_rust_crate() -> None:
    crate = ROOT / "crates" / "receiver" / "src"
    assert split(schema("sqlite")) == split((crate / "sqlite" / "schema.sql").read_text("utf-8"))
    theirs = split((crate / "postgres" / "schema.sql").read_text("utf-8"))
    assert split(schema("postgres")) == [one for one in theirs if not one.startswith("do $$")]


def test_tables_may_be_created_by_several_at_once_and_again() -> None:
    with psycopg.connect(postgres_url()) as connection:
        for _ in range(2):
            PsycopgInbox("orders").create_tables(connection)


WITHOUT_EXTRAS = """
import sys
for name in ("cryptography", "psycopg", "asyncpg", "sqlalchemy", "django", "redis", "starlette", "fastapi", "flask"):
    sys.modules[name] = None
import importlib, railpost
try:
    railpost.Receiver(keys="whpk_ZlN4eg7dSSqi0moX9hQUk3orrOouK3QVQSlJa248c/g=")
except railpost.MissingExtra as error:
    print(error)
for name in ("psycopg", "asyncpg", "sqlalchemy", "django", "redis", "fastapi", "flask"):
    try:
        importlib.import_module(f"railpost.{name}")
    except railpost.MissingExtra as error:
        print(error)
import railpost.asgi, railpost.wsgi, railpost.handshakes, railpost.testing, railpost.work
railpost.Receiver("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
"""


def test_what_is_not_installed_is_named_with_the_extra_that_brings_it() -> None:
    output = subprocess.run([sys.executable, "-c", WITHOUT_EXTRAS], capture_output=True, text=True, check=True).stdout
    said = output.splitlines()
    extras = ["ed25519", "psycopg", "asyncpg", "sqlalchemy", "django", "redis", "fastapi", "flask"]
    assert [line.rpartition(": ")[2] for line in said] == [f"pip install 'railpost[{extra}]'" for extra in extras]


def test_verdicts_are_answered_as_the_sender_acts_on_them() -> None:
    answers = {
        Verdict(Kind.FRESH): 200,
        Verdict(Kind.DUPLICATE): 200,
        Verdict(Kind.STALE, 3): 200,
        Verdict(Kind.GAP): 425,
        Verdict(Kind.GAP, 3, True): 200,
        Verdict(Kind.BUSY): 409,
    }
    assert {verdict: verdict.answer.status for verdict in answers} == answers
