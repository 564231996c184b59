"""What each database is asked, and in which order: the steps of an inbox, without a driver.

All writes are the application's to commit. Each dialect locks so that events of one line, and copies of one
event, are judged one after the other.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from ..delivery import Delivery
from ..limits import GAPS_LISTED_MAX, PRUNE_STEP
from .gap_timers import GapTimers
from .policy import DUPLICATE, FRESH, InboxConfig, Kind, Known, NotedGap, Verdict
from .statements import Row, Statement, Steps, Value, schema, split

APPLIED = Statement("select applied from railpost_lines where inbox = :inbox and line = :line")
GAPS = Statement(
    "select line, key, applied, seq, noted_at from railpost_gaps where inbox = :inbox"
    " order by noted_at desc, seq desc limit :most"
)
# The oldest job that is due and has no older one in its line, nor of its key: a key may begin a new line while
# jobs of the old one wait.
_DUE = (
    "select position, tries, head, body from railpost_work as job where inbox = :inbox and due_at <= :now"
    " and not exists (select 1 from railpost_work as older where older.inbox = job.inbox"
    " and older.line = job.line and older.position < job.position)"
    " and not exists (select 1 from railpost_work as older where older.inbox = job.inbox"
    " and older.key = job.key and older.position < job.position)"
    " order by position limit 1"
)
_REMOVE = "delete from railpost_work where position = :position"
_FAIL = "update railpost_work set tries = :tries, due_at = :due_at, error = :error where position = :position"
_RETRY = (
    "update railpost_work set tries = 0, due_at = :now where inbox = :inbox and position = :position and due_at is null"
)
_DISCARD = "delete from railpost_work where inbox = :inbox and position = :position and due_at is null"


def applied(config: InboxConfig, line: str) -> Steps[int | None]:
    """The last seq of a line that was applied, if the line is known."""
    rows = yield APPLIED, (config.name, line)
    return int(rows[0][0]) if rows else None


def gaps(config: InboxConfig) -> Steps[list[NotedGap]]:
    """The latest gaps that were accepted, latest first."""
    rows = yield GAPS, (config.name, GAPS_LISTED_MAX)
    return [NotedGap(row[0], read_key(row[1]), row[2], row[3], row[4]) for row in rows]


def read_key(column: Any) -> str | None:
    """A key as its column held it: text, or bytes of some kind; empty without one."""
    text: str = column if isinstance(column, str) else bytes(column).decode()
    return text or None


def changed(rows: Sequence[Row]) -> int:
    """How many rows a write changed."""
    return int(rows[0][0]) if rows else 0


class Dialect:
    """A database's way of judging and of writing."""

    #: The name of its schema file.
    name: str
    enqueue: Statement
    due: Statement
    remove: Statement
    fail: Statement
    retry: Statement
    discard: Statement

    def tables(self) -> list[str]:
        """The statements that create the tables."""
        return split(schema(self.name))

    def key(self, key: str | None) -> Value:
        """A key as its column holds it."""
        raise NotImplementedError

    def admit(self, config: InboxConfig, timers: GapTimers, delivery: Delivery, now: int) -> Steps[Verdict]:
        """Judges an event and writes what follows from the verdict."""
        raise NotImplementedError

    def prune(self, config: InboxConfig, now: int) -> Steps[int]:
        """Forgets what is older than the retention, at most a step of each table. Says how many rows that were."""
        removed = 0
        for statement, since in (
            (self.prune_ids, now - config.retention),
            (self.prune_lines, now - config.line_retention),
            (self.prune_gaps, now - config.retention),
        ):
            removed += changed((yield statement, (config.name, since, PRUNE_STEP)))
        return removed

    prune_ids: Statement
    prune_lines: Statement
    prune_gaps: Statement


class SqliteDialect(Dialect):
    """SQLite has one writer at a time: from the first write to the commit, nobody else judges.

    Drivers answer a write with one row, the number of rows that it changed.
    """

    name = "sqlite"

    _insert_id = Statement(
        "insert into railpost_inbox (inbox, event_id, applied_at) values (:inbox, :event_id, :now)"
        " on conflict (inbox, event_id) do nothing"
    )
    _delete_id = Statement("delete from railpost_inbox where inbox = :inbox and event_id = :event_id")
    _move_on = Statement(
        "insert into railpost_lines (inbox, line, applied, changed_at) values (:inbox, :line, :seq, :now)"
        " on conflict (inbox, line) do update set applied = excluded.applied, changed_at = excluded.changed_at"
        " where applied < excluded.applied"
    )
    _note_gap = Statement(
        "insert into railpost_gaps (inbox, line, key, applied, seq, noted_at)"
        " values (:inbox, :line, :key, :applied, :seq, :now)"
    )
    enqueue = Statement(
        "insert into railpost_work (inbox, line, key, due_at, head, body)"
        " select :inbox, :line, :key, :now, :head, :body where :most > (select count(*) from"
        " (select 1 from railpost_work where inbox = :inbox limit :most))"
    )
    due = Statement(_DUE)
    remove, fail = Statement(_REMOVE), Statement(_FAIL)
    retry, discard = Statement(_RETRY), Statement(_DISCARD)
    prune_ids = Statement(
        "delete from railpost_inbox where (inbox, event_id) in (select inbox, event_id from railpost_inbox"
        " where inbox = :inbox and applied_at < :since limit :most)"
    )
    prune_lines = Statement(
        "delete from railpost_lines where (inbox, line) in (select inbox, line from railpost_lines"
        " where inbox = :inbox and changed_at < :since limit :most)"
    )
    prune_gaps = Statement(
        "delete from railpost_gaps where rowid in (select rowid from railpost_gaps"
        " where inbox = :inbox and noted_at < :since limit :most)"
    )

    def tables(self) -> list[str]:
        statements = super().tables()
        if sqlite3.sqlite_version_info < (3, 37):
            # Older versions do not know strict tables; they take the same rows.
            statements = [text.replace(") strict, without", ") without").removesuffix(" strict") for text in statements]
        return statements

    def key(self, key: str | None) -> Value:
        return key

    def admit(self, config: InboxConfig, timers: GapTimers, delivery: Delivery, now: int) -> Steps[Verdict]:
        # Writing first takes the writer's lock before anything is read, in every kind of transaction.
        new = changed((yield self._insert_id, (config.name, delivery.event_id, now)))
        place, last = delivery.place, None
        if place is not None:
            rows = yield APPLIED, (config.name, place[0])
            last = rows[0][0] if rows else None
        verdict = timers.judge(config.policy, delivery, Known(not new, last), now)
        if new and not verdict.applies:
            yield self._delete_id, (config.name, delivery.event_id)
        if place is not None and verdict.moves_line:
            yield self._move_on, (config.name, place[0], place[1], now)
            if verdict.kind is Kind.GAP:
                yield self._note_gap, (config.name, place[0], delivery.key or "", last or 0, place[1], now)
        return verdict


class PostgresDialect(Dialect):
    """PostgreSQL locks the row of the line, or waits for the transaction that inserts it or the same id.

    The transaction should be `read committed`, the default; stricter ones fail where others wait, and the sender
    tries again. Values are cast, because drivers differ in the types that they announce.
    """

    name = "postgres"

    # Writes an event that is fresh under every policy, and moves the line of a duplicate on; locks the line of
    # any other, and says what is known.
    _admit = Statement(
        "select railpost_admit(cast(:inbox as text), cast(:event_id as text), cast(:line as text),"
        " cast(:seq as bigint), cast(:follows as bigint), cast(:now as bigint))"
    )
    # For events that a policy lets in out of their turn. The event is new unless a copy in another line came at
    # the same time. A replay may be older than what was applied.
    _note = (
        " gap as (insert into railpost_gaps (inbox, line, key, applied, seq, noted_at)"
        " select cast(:inbox as text), cast(:line as text), cast(:key as bytea), cast(:gap_after as bigint),"
        " cast(:seq as bigint), cast(:now as bigint) from new where cast(:gap_after as bigint) is not null)"
    )
    # The line is there and locked.
    _move_on = Statement(
        "with new as (insert into railpost_inbox (inbox, event_id, applied_at)"
        " values (cast(:inbox as text), cast(:event_id as text), cast(:now as bigint))"
        " on conflict do nothing returning 1),"
        f"{_note}, line as (update railpost_lines set applied = greatest(applied, cast(:seq as bigint)),"
        " changed_at = cast(:now as bigint)"
        " where inbox = cast(:inbox as text) and line = cast(:line as text))"
        " select true, exists (select 1 from new)"
    )
    # The line is not there. A conflict waits for the transaction that makes it.
    _begin_line = Statement(
        "with line as (insert into railpost_lines (inbox, line, applied, changed_at)"
        " values (cast(:inbox as text), cast(:line as text), cast(:seq as bigint), cast(:now as bigint))"
        " on conflict do nothing returning 1),"
        " new as (insert into railpost_inbox (inbox, event_id, applied_at)"
        " select cast(:inbox as text), cast(:event_id as text), cast(:now as bigint) from line"
        f" on conflict do nothing returning 1),{_note}"
        " select exists (select 1 from line), exists (select 1 from new)"
    )
    enqueue = Statement(
        "insert into railpost_work (inbox, line, key, due_at, head, body)"
        " select cast(:inbox as text), cast(:line as text), cast(:key as bytea), cast(:now as bigint),"
        " cast(:head as text), cast(:body as bytea) where cast(:most as bigint) > (select count(*) from"
        " (select 1 from railpost_work where inbox = cast(:inbox as text) limit cast(:most as bigint)) as waiting)"
        " returning 1"
    )
    # The row's lock is the claim: it lasts as long as the transaction, and no longer than the process.
    due = Statement(_DUE + " for update of job skip locked")
    remove, fail = Statement(_REMOVE + " returning 1"), Statement(_FAIL + " returning 1")
    retry, discard = Statement(_RETRY + " returning 1"), Statement(_DISCARD + " returning 1")

    @staticmethod
    def _prune(table: str, age: str) -> Statement:
        return Statement(
            f"with gone as (delete from {table} where ctid = any (array(select ctid from {table}"
            f" where inbox = :inbox and {age} < :since limit :most for update skip locked)) returning 1)"
            " select count(*) from gone"
        )

    def __init__(self) -> None:
        self.prune_ids = self._prune("railpost_inbox", "applied_at")
        self.prune_lines = self._prune("railpost_lines", "changed_at")
        self.prune_gaps = self._prune("railpost_gaps", "noted_at")

    def key(self, key: str | None) -> Value:
        return None if key is None else key.encode()

    def admit(self, config: InboxConfig, timers: GapTimers, delivery: Delivery, now: int) -> Steps[Verdict]:
        line, seq, follows = delivery.place or (None, 0, 0)
        while True:
            rows = yield self._admit, (config.name, delivery.event_id, line, seq, follows, now)
            found = rows[0][0]
            if found == -1:
                if line is not None:
                    timers.clear(line)
                return FRESH
            if found == -2:
                return DUPLICATE
            last = found or None
            verdict = timers.judge(config.policy, delivery, Known(applied=last), now)
            if not verdict.applies:
                return verdict
            values: dict[str, Value] = {
                "inbox": config.name,
                "line": line,
                "seq": seq,
                "now": now,
                "event_id": delivery.event_id,
                "gap_after": (last or 0) if verdict.kind is Kind.GAP else None,
                "key": (delivery.key or "").encode(),
            }
            statement = self._begin_line if last is None else self._move_on
            moved, new = (yield statement, [values[name] for name in statement.names])[0]
            if moved:
                return verdict if new else DUPLICATE
            # Another transaction made the line meanwhile: look again.


SQLITE = SqliteDialect()
POSTGRES = PostgresDialect()
