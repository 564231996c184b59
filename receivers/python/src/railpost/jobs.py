"""Jobs of a queue: what is stored of an event, when a failed one is tried again, what a worker did."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from .delivery import Delivery
from .limits import BACKLOG_MAX, ERROR_CHARS_MAX, TRIES_MAX, TRY_DELAY_BASE, TRY_DELAY_MAX


@dataclass(frozen=True)
class WorkPolicy:
    """What a queue does about failures and about too much work. Delays are in seconds."""

    #: Tries before a job becomes a dead letter.
    tries_max: int = TRIES_MAX
    #: The delay after the first failed try; it doubles with each further one.
    delay_base: int = TRY_DELAY_BASE
    #: The longest delay between tries.
    delay_max: int = TRY_DELAY_MAX
    #: Most jobs that wait, dead letters among them.
    backlog_max: int = BACKLOG_MAX

    def __post_init__(self) -> None:
        for name, least in (("tries_max", 1), ("delay_base", 0), ("delay_max", 0), ("backlog_max", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or not least <= value < 2**31:
                raise ValueError(f"{name}: expected a whole number from {least} to {2**31 - 1}; got {value!r}")

    def next_try(self, tries: int, now: int) -> int | None:
        """When a job that has failed so often is tried again, or never."""
        if tries >= self.tries_max:
            return None
        return now + min(self.delay_base << min(tries - 1, 32), self.delay_max)


@dataclass(frozen=True)
class Job:
    """An event in the queue."""

    #: Its place in the queue.
    position: int
    #: How often it has failed.
    tries: int
    delivery: Delivery


@dataclass(frozen=True)
class DeadLetter:
    """A job that was given up on. It holds its line and key until a person retries or discards it."""

    job: Job
    #: What the last try said.
    error: str


@dataclass(frozen=True)
class WorkOutcome:
    """What a worker did."""

    #: `idle`: no job is due. `done`: it applied the event. `failed`: it tries again at `at`. `dead`: it gave up.
    kind: str
    event_id: str | None = None
    at: int | None = None


IDLE = WorkOutcome("idle")


@dataclass(frozen=True)
class Backlog:
    """How much a queue has to do."""

    #: Jobs that wait for a try.
    waiting: int
    #: Dead letters.
    dead: int
    #: Seconds since the oldest event that waits was sent; 0 without one.
    lag: int


class Damaged(ValueError):
    """A row does not hold what was written: somebody changed it. Discard it."""

    def __init__(self, position: int, problem: object) -> None:
        super().__init__(f"the job at {position} is damaged, discard it: {problem}")
        self.position = position


_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def write_head(delivery: Delivery) -> str:
    """What is queued beside the body, as JSON. Stable: rows outlive versions, and other languages read them."""
    time = delivery.event_time
    return json.dumps(
        {
            "id": delivery.event_id,
            "key": delivery.key,
            "line": delivery.line,
            "seq": delivery.seq,
            "after": delivery.after,
            "attempt": delivery.attempt,
            "replay": delivery.replay,
            "timestamp": delivery.timestamp,
            "event_type": delivery.event_type,
            "event_unix_ms": (time - _EPOCH) // timedelta(milliseconds=1) if time else None,
            "schema_version": delivery.schema_version,
            "thin": delivery.is_thin,
            "headers": [[name, list(value.encode("latin-1", "replace"))] for name, value in delivery.headers],
        }
    )


def read_job(position: int, tries: int, head: str, body: Any) -> Job:
    """A job as it was stored."""
    try:
        fields = json.loads(head)
        unix_ms = fields.get("event_unix_ms")
        delivery = Delivery(
            event_id=str(fields["id"]),
            timestamp=int(fields["timestamp"]),
            body=bytes(body),
            key=fields.get("key"),
            line=fields.get("line"),
            seq=fields.get("seq"),
            after=fields.get("after"),
            attempt=fields.get("attempt"),
            replay=bool(fields.get("replay")),
            is_thin=bool(fields.get("thin")),
            event_type=fields.get("event_type"),
            event_time=None if unix_ms is None else _EPOCH + timedelta(milliseconds=unix_ms),
            schema_version=fields.get("schema_version"),
            headers=tuple((name, bytes(value).decode("latin-1")) for name, value in fields.get("headers", [])),
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Damaged(position, error) from error
    return Job(position, tries, delivery)


def order(delivery: Delivery) -> tuple[str | None, str | None]:
    """The line and the key that a job waits in; neither without a line.

    The line, because an endpoint may have one line for all keys; the key, because a key that begins a new line may
    have jobs of the old one, which go first.
    """
    return (None, None) if delivery.place is None else (delivery.line, delivery.key)


def error_text(error: BaseException) -> str:
    """An effect's error, cut to what is kept. Databases refuse a NUL in a text."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    # A lone surrogate cannot be stored as UTF-8.
    return text.replace("\0", "").encode("utf-8", "replace").decode()[:ERROR_CHARS_MAX]
