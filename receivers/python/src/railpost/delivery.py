"""A delivery as it arrived: what its headers say of its event, and its bytes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from .cloudevents import CloudEvent, Thin, hashed_id, mode_of, read_binary, read_structured, read_thin
from .event_body import EventBody, read_event
from .headers import (
    HeaderNames,
    IncomingHeaders,
    parse_after,
    parse_attempt,
    parse_event_id,
    parse_event_time,
    parse_event_type,
    parse_key,
    parse_line,
    parse_schema_version,
    parse_seq,
    parse_timestamp,
    parse_truth,
)
from .limits import HEADERS_KEPT_MAX
from .rejection import Malformed, Unreadable


@dataclass(frozen=True)
class Delivery:
    """An authentic delivery. Id, timestamp and body are signed; the rest is as trustworthy as the connection."""

    #: The event's id: what to deduplicate by.
    event_id: str
    #: When this attempt was made, in seconds since 1970.
    timestamp: int
    #: The bytes as they arrived.
    body: bytes = field(repr=False)
    #: The event's key, if it has one.
    key: str | None = None
    #: The line of numbers that it stands in (`X-Lane`): what an inbox keeps its place by.
    line: str | None = None
    #: Its number in its line.
    seq: int | None = None
    #: The seq that must have been applied before, if the sender says so; otherwise it is the one before.
    after: int | None = None
    #: Which attempt it is, from 1, if the sender counts.
    attempt: int | None = None
    #: Whether a person asked for it.
    replay: bool = False
    #: Whether the body says where to fetch the event instead of holding it (`X-Thin`).
    is_thin: bool = False
    #: The event's type, if the sender says it.
    event_type: str | None = None
    #: When the event happened, if the sender says it.
    event_time: datetime | None = None
    #: The version of the payload's schema, if it has one.
    schema_version: int | None = None
    #: The headers that belong to the body: `content-type`, and `ce-…` in binary mode. Lower-case.
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def place(self) -> tuple[str, int, int] | None:
        """Line, seq, and the seq that must have been applied before (0: nothing). None without a line."""
        if self.line is None or self.seq is None:
            return None
        before = self.seq - 1
        return self.line, self.seq, before if self.after is None else min(self.after, before)

    def json(self) -> Any:
        """The body as JSON."""
        self._check_whole()
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise Unreadable(f"the body is not JSON: {error}") from error

    def cloud_event(self) -> CloudEvent:
        """The CloudEvent that it is, in structured or binary mode.

        Its id must be the one that was signed, or be hashed with its source in that one, as Railpost does with events
        that were published as CloudEvents: an id is unique within its source only.
        """
        self._check_whole()
        mode = mode_of(dict(self.headers).get("content-type", ""))
        if mode in (None, "batched"):
            raise Unreadable(f"expected one CloudEvent in JSON or in `ce-` headers; got {mode or 'another format'}")
        event = read_structured(self.body) if mode == "structured" else read_binary(self.headers, self.body)
        if self.event_id != hashed_id(event.source, event.id):
            self._check_id(event.id)
        return event

    def event(self) -> EventBody:
        """The event of an `event` envelope. Its id must be the one that was signed."""
        self._check_whole()
        event = read_event(self.body)
        self._check_id(event.id)
        return event

    def with_payload(self, payload: bytes, content_type: str) -> Delivery:
        """The delivery with the payload that was fetched for it, as a raw delivery has it."""
        return replace(self, body=payload, headers=(("content-type", content_type),), is_thin=False)

    def thin(self) -> Thin:
        """The thin event that it is. Its id must be the one that was signed."""
        thin = read_thin(self.body)
        self._check_id(thin.id)
        return thin

    def _check_whole(self) -> None:
        # A reference is JSON too: nobody should take it for the payload.
        if self.is_thin:
            raise Unreadable("the body is a reference to the event, not the event: fetch it first")

    def _check_id(self, event_id: str) -> None:
        if event_id != self.event_id:
            raise Unreadable("the body has another event id than the headers")


_OPTIONAL = (
    ("key", "x_key", parse_key),
    ("line", "x_lane", parse_line),
    ("seq", "x_seq", parse_seq),
    ("after", "x_after", parse_after),
    ("attempt", "x_attempt", parse_attempt),
    ("replay", "x_replay", parse_truth),
    ("is_thin", "x_thin", parse_truth),
    ("event_type", "x_event_type", parse_event_type),
    ("event_time", "x_event_time", parse_event_time),
    ("schema_version", "x_schema_version", parse_schema_version),
)


def read_delivery(names: HeaderNames, headers: IncomingHeaders, body: bytes) -> Delivery:
    """Reads a request's headers. It verifies nothing. `Idempotency-Key` must agree with `webhook-id`."""
    event_id = parse_event_id(names.name("webhook_id"), headers.require(names, "webhook_id"))
    again = headers.values.get(names.lower("idempotency_key"))
    if again is not None and again != event_id:
        raise Malformed(names.name("idempotency_key"), "the same event id in both its headers", again)
    fields = read_order(names, headers)
    timestamp = parse_timestamp(names.name("webhook_timestamp"), headers.require(names, "webhook_timestamp"))
    return Delivery(event_id, timestamp, body, headers=kept_headers(headers), **fields)


def read_order(names: HeaderNames, headers: IncomingHeaders) -> dict[str, Any]:
    """The fields that a sender may leave out."""
    values = headers.values
    fields = {}
    for field_name, header, parse in _OPTIONAL:
        value = values.get(names.lower(header))
        if value is not None:
            fields[field_name] = parse(names.name(header), value)
    return fields


def kept_headers(headers: IncomingHeaders) -> tuple[tuple[str, str], ...]:
    """The headers that belong to the body."""
    kept = tuple(
        (name, value) for name, value in headers.values.items() if name == "content-type" or name.startswith("ce-")
    )
    if len(kept) > HEADERS_KEPT_MAX:
        raise Unreadable(f"more than {HEADERS_KEPT_MAX} `ce-` headers")
    return kept
