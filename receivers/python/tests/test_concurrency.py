"""Two connections, two processes: copies of one event and events of one line are judged one after the other."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hammer import LINES, SEQS
from stores import NOW, PsycopgStore, Sqlite3Store, event, postgres_url, unique

from railpost import Kind, Policy, Verdict

HAMMER = Path(__file__).with_name("hammer.py")


def wait_until_blocked(thread: threading.Thread, store: PsycopgStore) -> None:
    """Returns once the thread's backend waits for a lock of another transaction."""
    blocked = "select 1 from pg_stat_activity where pid = %s and wait_event_type = 'Lock'"
    with psycopg.connect(postgres_url(), autocommit=True) as watcher:
        while not watcher.execute(blocked, [store.connection.info.backend_pid]).fetchone():
            assert thread.is_alive(), "it did not wait"


@pytest.mark.parametrize(
    ("first_succeeds", "second", "expected"),
    [
        (True, event("2", ("A", 2)), Kind.DUPLICATE),
        (False, event("2", ("A", 2)), Kind.FRESH),
        (True, event("3", ("A", 3)), Kind.FRESH),
        (False, event("3", ("A", 3)), Kind.GAP),
        (True, event("other", ("A", 2)), Kind.STALE),
        (True, event("2", ("B", 1)), Kind.DUPLICATE),
        (False, event("2", ("B", 1)), Kind.FRESH),
    ],
    ids=["copy", "copy-of-failed", "next", "next-of-failed", "old-seq", "copy-in-line", "copy-of-failed-in-line"],
)
def test_what_comes_at_the_same_time_waits_for_the_first_and_goes_by_what_it_leaves(
    first_succeeds: bool, second: Any, expected: Kind, closing: Any
) -> None:
    one: PsycopgStore = closing(PsycopgStore())
    two: PsycopgStore = closing(PsycopgStore(name=one.name))
    one.offer(event("1", ("A", 1)), NOW)
    assert one.inbox.admit(one.connection, event("2", ("A", 2)), NOW).applies
    verdicts: list[Verdict] = []
    thread = threading.Thread(target=lambda: verdicts.append(two.offer(second, NOW)))
    thread.start()
    wait_until_blocked(thread, two)
    assert verdicts == []
    if first_succeeds:
        one.commit()
    else:
        one.rollback()
    thread.join()
    assert verdicts[0].kind is expected


def test_two_transactions_that_begin_one_line_out_of_turn_are_judged_one_after_the_other(closing: Any) -> None:
    one: PsycopgStore = closing(PsycopgStore(Policy(start="anywhere")))
    two: PsycopgStore = closing(PsycopgStore(Policy(start="anywhere"), name=one.name))
    assert one.inbox.admit(one.connection, event("5", ("A", 5)), NOW).applies
    verdicts: list[Verdict] = []
    thread = threading.Thread(target=lambda: verdicts.append(two.offer(event("4", ("A", 4)), NOW)))
    thread.start()
    wait_until_blocked(thread, two)
    one.commit()
    thread.join()
    assert verdicts == [Verdict(Kind.STALE, 5)], "it looked again after the line was there"


def test_a_copy_of_the_first_event_of_a_line_waits_and_the_second_event_is_held_off(closing: Any) -> None:
    one: PsycopgStore = closing(PsycopgStore())
    two: PsycopgStore = closing(PsycopgStore(name=one.name))
    assert one.inbox.admit(one.connection, event("1", ("A", 1)), NOW).applies
    assert two.offer(event("2", ("A", 2)), NOW) == Verdict(Kind.GAP), "nobody else sees the line yet"
    verdicts: list[Verdict] = []
    thread = threading.Thread(target=lambda: verdicts.append(two.offer(event("1", ("A", 1)), NOW)))
    thread.start()
    wait_until_blocked(thread, two)
    one.commit()
    thread.join()
    assert verdicts[0].kind is Kind.DUPLICATE


def test_other_lines_do_not_wait(closing: Any) -> None:
    one: PsycopgStore = closing(PsycopgStore())
    two: PsycopgStore = closing(PsycopgStore(name=one.name))
    assert one.inbox.admit(one.connection, event("1", ("A", 1)), NOW).applies
    assert two.offer(event("2", ("B", 1)), NOW).kind is Kind.FRESH
    one.rollback()


def test_a_worker_passes_over_what_another_one_holds(closing: Any) -> None:
    one: PsycopgStore = closing(PsycopgStore())
    two: PsycopgStore = closing(PsycopgStore(name=one.name))
    for event_id, place in (("1", ("A", 1)), ("2", ("A", 2)), ("3", ("B", 1))):
        one.accept(event(event_id, place), NOW)

    def meanwhile(job: Any) -> None:
        assert job.delivery.event_id == "1"
        assert two.work_one(NOW).event_id == "3", "not the one that is held, nor the one behind it"
        assert two.work_one(NOW).kind == "idle"

    assert one.work_one(NOW, meanwhile).kind == "done"
    assert two.work_one(NOW).event_id == "2"


def test_a_second_worker_on_sqlite_waits_before_it_looks_for_a_job(tmp_path: Path, closing: Any) -> None:
    one = closing(_file_store(str(tmp_path / "orders.db"), "orders"))
    two = closing(_file_store(str(tmp_path / "orders.db"), "orders"))
    two.connection.execute("pragma busy_timeout = 0")
    one.accept(event("1", ("A", 1)), NOW)
    seen: list[Any] = []

    def meanwhile(job: Any) -> None:
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            two.queue.work_one(two.connection, lambda _, job: seen.append(job), NOW)

    assert one.work_one(NOW, meanwhile).kind == "done"
    assert seen == []
    assert two.work_one(NOW).kind == "idle"


@pytest.mark.parametrize("name", ["sqlite3", "psycopg", "asyncpg", "django-postgres"])
def test_two_processes_apply_every_event_once_and_in_order(name: str, tmp_path: Path, closing: Any) -> None:
    inbox, path = unique(), str(tmp_path / "orders.db")
    store: Any = closing(_file_store(path, inbox) if name == "sqlite3" else PsycopgStore(name=inbox))
    command = [sys.executable, str(HAMMER), name, path, inbox]
    children = [subprocess.Popen([*command, str(seed)]) for seed in (1, 2)]
    assert [child.wait() for child in children] == [0, 0]
    effects = store.effects()
    assert len(effects) == LINES * SEQS
    for line in range(LINES):
        assert [one for one in effects if one.startswith(f"{line}-")] == [f"{line}-{seq}" for seq in range(1, SEQS + 1)]


def _file_store(path: str, inbox: str) -> Sqlite3Store:
    class FileStore(Sqlite3Store):
        pass

    FileStore.path = path
    return FileStore(name=inbox)
