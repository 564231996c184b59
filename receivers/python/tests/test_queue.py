"""The queues, on every SQL store: fast acknowledgement, order, retries, dead letters, bounds."""

from __future__ import annotations

import asyncio
import threading
from datetime import datetime, timezone
from typing import Any

import pytest
from stores import NOW, SQL_STORES, EffectFailed, Sqlite3Store, SqlStore, event

from railpost import Delivery, Kind, OpenTransaction, QueueFull, WorkOutcome, WorkPolicy
from railpost.jobs import error_text, read_job, write_head
from railpost.work import work_forever, work_forever_async

every_store = pytest.mark.parametrize("name", SQL_STORES)


def fail(job: Any) -> None:
    raise EffectFailed("no such order\0")


@every_store
def test_an_event_is_queued_once_and_worked_off_in_order(name: str, closing: Any) -> None:
    store: SqlStore = closing(SQL_STORES[name]())
    for seq in (1, 2, 3):
        assert store.accept(event(str(seq), ("A", seq)), NOW).applies
        assert store.accept(event(str(seq), ("A", seq)), NOW).kind is Kind.DUPLICATE
    assert store.effects() == []
    assert [store.work_one(NOW).event_id for _ in range(3)] == ["1", "2", "3"]
    assert store.work_one(NOW) == WorkOutcome("idle")
    assert store.effects() == ["1", "2", "3"]


@every_store
def test_a_job_comes_back_as_it_was_delivered(name: str, closing: Any) -> None:
    store: SqlStore = closing(SQL_STORES[name]())
    delivery = Delivery(
        "evt_1",
        NOW,
        bytes(range(256)),
        key="café \0",
        line="L'\"%s:x",
        seq=7,
        after=0,
        attempt=3,
        replay=True,
        event_type="order.paid",
        event_time=datetime(2026, 1, 2, 3, 4, 5, 678_000, timezone.utc),
        schema_version=2,
        headers=(("content-type", "application/json"), ("ce-source", "/é")),
    )
    store.accept(delivery, NOW)
    seen: list[Any] = []
    store.work_one(NOW, seen.append)
    assert seen[0].delivery == delivery


@every_store
def test_a_job_that_fails_leaves_nothing_and_is_tried_again_later(name: str, closing: Any) -> None:
    store: SqlStore = closing(SQL_STORES[name]())
    store.accept(event("1", ("A", 1)), NOW)
    store.accept(event("2", ("A", 2)), NOW)
    store.accept(event("3"), NOW)
    assert store.work_one(NOW, fail) == WorkOutcome("failed", "1", NOW + 1)
    assert store.effects() == []
    assert store.work_one(NOW).event_id == "3", "other lines go on"
    assert store.work_one(NOW).kind == "idle", "the second event of the line waits for the first"
    assert store.work_one(NOW + 1, fail) == WorkOutcome("failed", "1", NOW + 3)
    assert store.work_one(NOW + 3).event_id == "1"
    assert store.work_one(NOW + 3).event_id == "2"
    assert store.effects() == ["3", "1", "2"]


@every_store
def test_a_dead_letter_holds_its_line_until_a_person_acts(name: str, closing: Any) -> None:
    store: SqlStore = closing(SQL_STORES[name](work=WorkPolicy(tries_max=1)))
    for seq in (1, 2, 3):
        store.accept(event(str(seq), ("A", seq)), NOW)
    assert store.work_one(NOW, fail) == WorkOutcome("dead", "1")
    assert store.work_one(NOW + 10**6).kind == "idle"
    (letter,) = store.dead_letters()
    assert letter.job.delivery.event_id == "1"
    assert letter.error == "EffectFailed: no such order"
    backlog = store.backlog(NOW + 60)
    assert (backlog.waiting, backlog.dead, backlog.lag) == (2, 1, 60)
    assert not store.retry(letter.job.position + 1, NOW), "not a dead letter"
    assert store.retry(letter.job.position, NOW)
    assert store.work_one(NOW, fail).kind == "dead"
    assert store.discard(store.dead_letters()[0].job.position)
    assert [store.work_one(NOW).event_id for _ in range(2)] == ["2", "3"]
    assert store.effects() == ["2", "3"]
    assert store.backlog(NOW).lag == 0


@every_store
def test_a_key_that_begins_a_new_line_waits_for_jobs_of_the_old_one(name: str, closing: Any) -> None:
    store: SqlStore = closing(SQL_STORES[name]())
    store.accept(event("1", ("L", 1), key="K"), NOW)
    store.accept(event("2", ("M", 1), key="K"), NOW)
    assert store.work_one(NOW, fail).kind == "failed"
    assert store.work_one(NOW).kind == "idle"
    assert [store.work_one(NOW + 1).event_id for _ in range(2)] == ["1", "2"]


@every_store
def test_a_full_queue_takes_nothing_and_forgets_what_it_refused(name: str, closing: Any) -> None:
    store: SqlStore = closing(SQL_STORES[name](work=WorkPolicy(backlog_max=2)))
    for seq in (1, 2):
        store.accept(event(str(seq), ("A", seq)), NOW)
    with pytest.raises(QueueFull) as caught:
        store.accept(event("3", ("A", 3)), NOW)
    assert (caught.value.answer.status, caught.value.answer.retry_after) == (429, 5)
    assert store.accept(event("2", ("A", 2)), NOW).kind is Kind.DUPLICATE, "a duplicate needs no room"
    store.work_one(NOW)
    assert store.accept(event("3", ("A", 3)), NOW).kind is Kind.FRESH
    inbox = getattr(store.inbox, "_inner", store.inbox)
    assert inbox.counters.counts() == {
        "fresh": 3,
        "duplicate": 1,
        "stale": 0,
        "gap": 0,
        "busy": 0,
        "rejected": 0,
        "full": 1,
        "trouble": 0,
    }


@every_store
def test_a_damaged_job_becomes_a_dead_letter_and_can_be_discarded(name: str, closing: Any) -> None:
    store: SqlStore = closing(SQL_STORES[name]())
    store.accept(event("1"), NOW)
    store.execute("update railpost_work set head = 'no JSON' where inbox = ?", store.name)
    store.commit()
    assert store.backlog(NOW).lag == 0
    assert store.work_one(NOW).kind == "dead"
    (letter,) = store.dead_letters()
    assert "is damaged, discard it" in letter.error
    assert (letter.job.delivery.event_id, letter.job.delivery.body) == ("", b'{"n": 1}')
    assert store.discard(letter.job.position)


@pytest.mark.parametrize("name", [name for name in SQL_STORES if not name.startswith("django") and name != "asyncpg"])
def test_accept_refuses_to_run_in_a_transaction_of_somebody_else(name: str, closing: Any) -> None:
    store: SqlStore = closing(SQL_STORES[name]())
    store.note_effect("something")
    with pytest.raises(OpenTransaction):
        store.accept(event("1"), NOW)
    store.rollback()
    assert store.accept(event("1"), NOW).applies


def test_a_worker_works_off_what_is_there_and_stops(closing: Any) -> None:
    store: Sqlite3Store = closing(Sqlite3Store())
    for seq in (1, 2, 3):
        store.accept(event(str(seq), ("A", seq)), NOW)
    stop, worked, broken = threading.Event(), [], [RuntimeError("the database restarts")]

    def work() -> WorkOutcome:
        if broken:
            raise broken.pop()
        worked.append(store.work_one(NOW))
        if worked[-1].kind == "idle":
            stop.set()
        return worked[-1]

    work_forever(work, stop, 0)
    assert [one.kind for one in worked] == ["done", "done", "done", "idle"]

    store.accept(event("4", ("A", 4)), NOW)
    worked.clear()

    async def run() -> None:
        stopped = asyncio.Event()

        async def work_async() -> WorkOutcome:
            worked.append(store.work_one(NOW))
            if worked[-1].kind == "idle":
                stopped.set()
            return worked[-1]

        await work_forever_async(work_async, stopped, 0)

    asyncio.run(run())
    assert [one.kind for one in worked] == ["done", "idle"]


def test_heads_of_other_languages_are_read() -> None:
    head = (
        '{"id":"evt_1","key":null,"line":"L","seq":3,"after":null,"attempt":1,"replay":false,"timestamp":5,'
        '"headers":[["content-type",[97,47,98]]]}'
    )
    job = read_job(1, 0, head, memoryview(b"x"))
    assert job.delivery == Delivery("evt_1", 5, b"x", line="L", seq=3, attempt=1, headers=(("content-type", "a/b"),))
    assert read_job(1, 0, write_head(job.delivery), b"x") == job
    assert error_text(ValueError("x" * 1000 + "\ud800")) == ("ValueError: " + "x" * 1000)[:500]
