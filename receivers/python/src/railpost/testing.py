"""For tests of a handler: a sender that does to it what networks and strangers do.

```
def test_my_handler():
    report = ordeal(wsgi_handler(app, "/hook"), secrets=SECRET)
    assert not report.problems, report.problems
    # Look at the handler's database here: each event took effect once, in order.
```

`ordeal_async` and `asgi_handler` do the same with asyncio.
"""

from __future__ import annotations

import asyncio
import base64
import io
import time
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from secrets import token_hex
from typing import Any, Union

from .headers import HeaderNames, encode_key, format_time
from .secrets import Secret, Signer, SigningKey, tag

#: Rounds of an ordeal before a handler that never acknowledges is given up on.
ROUNDS_MAX = 100


def parse_signer(text: str) -> Signer:
    """A secret (`whsec_`) or a signing key (`whsk_`)."""
    return SigningKey(text) if text.startswith("whsk_") else Secret(text)


def sign_standard(signers: Iterable[Signer], event_id: str, timestamp: int, body: bytes) -> str:
    """The value of `webhook-signature`."""
    message = b"%s.%d.%s" % (event_id.encode(), timestamp, body)
    return " ".join(_standard_entry(signer, message) for signer in signers)


def _standard_entry(signer: Signer, message: bytes) -> str:
    if isinstance(signer, Secret):
        return "v1," + base64.b64encode(tag(signer.key, message)).decode()
    return "v1a," + base64.b64encode(signer.sign(message)).decode()


def sign_timestamped(signers: Iterable[Signer], timestamp: int, body: bytes) -> str | None:
    """The value of `X-Webhook-Signature`. None without a secret: keys do not sign this form."""
    message = b"%d.%s" % (timestamp, body)
    tags = [tag(signer.text, message).hex() for signer in signers if isinstance(signer, Secret)]
    return ",".join([f"t={timestamp}", *(f"v1={made}" for made in tags)]) if tags else None


@dataclass(frozen=True)
class Event:
    """An event to be sent."""

    id: str
    body: bytes
    key: str | None = None
    #: The line that it stands in, if it has a key, and its number there.
    line: str | None = None
    seq: int | None = None
    #: The seq that must have been applied before, where that is not the one before.
    after: int | None = None
    event_type: str | None = None
    event_time: datetime | None = None
    schema_version: int | None = None
    #: Whether its body says where to fetch it instead of holding it.
    is_thin: bool = False


@dataclass(frozen=True)
class Request:
    """A request for the handler under test."""

    headers: tuple[tuple[str, str], ...]
    body: bytes

    def changed(self, **values: str) -> Request:
        """The same with other values of these headers; an underscore stands for a dash."""
        changes = {name.replace("_", "-"): value for name, value in values.items()}
        kept = tuple(pair for pair in self.headers if pair[0].lower() not in changes)
        return replace(self, headers=kept + tuple(changes.items()))

    def without(self, *names: str) -> Request:
        """The same without these headers."""
        return replace(self, headers=tuple(pair for pair in self.headers if pair[0].lower() not in names))


class Forgery(Enum):
    """How a request is not what it says it is."""

    OTHER_SECRET = "signed with a secret that the receiver does not trust"
    CHANGED_BODY = "the body was changed after it was signed"
    CHANGED_ID = "the id was changed after it was signed"
    REPLAYED = "a true request, captured and sent again a day later"
    UNSIGNED = "not signed at all"
    TIMESTAMPED_ONLY = "only the form of signature that does not cover the id"
    GARBAGE = "a signature that is none"


class Sender:
    """A sender that signs as the real one does, and counts the seqs of its lines: one for each key."""

    def __init__(self, secrets: Union[str, Sequence[str]], *, names: Mapping[str, str] | None = None) -> None:
        texts = [secrets] if isinstance(secrets, str) else secrets
        self.signers = [parse_signer(text) for text in texts]
        self.names = HeaderNames(names)
        # A database that outlives a test knows the ids of the test before.
        self._run = token_hex(4)
        self._lines: dict[str, tuple[str, int]] = {}
        self._lines_begun = self._events = 0

    def event(
        self,
        body: bytes = b"{}",
        *,
        key: str | None = None,
        event_id: str | None = None,
        line: str | None = None,
        seq: int | None = None,
        after: int | None = None,
    ) -> Event:
        """A new event: the next of its key, if it has one and no place is given."""
        self._events += 1
        if key is not None and line is None and seq is None:
            line, seq = self._next_place(key)
        return Event(event_id or f"test-{self._run}-{self._events}", body, key, line, seq, after)

    def _next_place(self, key: str) -> tuple[str, int]:
        if key not in self._lines:
            self._lines_begun += 1
            self._lines[key] = (f"{self._run}-{self._lines_begun}", 0)
        line, last = self._lines[key]
        self._lines[key] = (line, last + 1)
        return self._lines[key]

    def begin_new_lines(self) -> None:
        """The next event of each key has seq 1 of a new line, as after the sender's store was restored."""
        self._lines.clear()

    def request(self, event: Event, attempt: int = 1, timestamp: int | None = None, *, replay: bool = False) -> Request:
        """An attempt of an event, signed. `timestamp` is in seconds since 1970."""
        at = int(time.time()) if timestamp is None else timestamp
        values: dict[str, Any] = {
            "webhook_id": event.id,
            "webhook_timestamp": at,
            "webhook_signature": sign_standard(self.signers, event.id, at, event.body) or None,
            "x_webhook_signature": sign_timestamped(self.signers, at, event.body),
            "idempotency_key": event.id,
            "x_event_type": event.event_type,
            "x_event_time": None if event.event_time is None else format_time(event.event_time),
            "x_schema_version": event.schema_version,
            "x_key": None if event.key is None else encode_key(event.key),
            "x_lane": event.line,
            "x_seq": event.seq,
            "x_after": event.after,
            "x_attempt": attempt,
            "x_replay": "true" if replay else None,
            "x_thin": "true" if event.is_thin else None,
        }
        headers = tuple((self.names.name(name), str(value)) for name, value in values.items() if value is not None)
        return Request(headers, event.body)

    def forge(self, event: Event, forgery: Forgery, timestamp: int | None = None) -> Request:
        """A request that must be refused."""
        at = int(time.time()) if timestamp is None else timestamp
        request = self.request(event, 1, at)
        standard = self.names.lower("webhook_signature")
        if forgery is Forgery.OTHER_SECRET:
            other = Sender("whsec_" + base64.b64encode(b"\x5a" * 32).decode())
            other.names = self.names
            return other.request(event, 1, at)
        if forgery is Forgery.CHANGED_BODY:
            return replace(request, body=request.body + b" ")
        if forgery is Forgery.CHANGED_ID:
            changed = (self.names.lower("webhook_id"), self.names.lower("idempotency_key"))
            return request.changed(**{name: "another" for name in changed})
        if forgery is Forgery.REPLAYED:
            return self.request(event, 1, at - 24 * 60 * 60)
        if forgery is Forgery.UNSIGNED:
            return request.without(standard, self.names.lower("x_webhook_signature"))
        if forgery is Forgery.TIMESTAMPED_ONLY:
            return request.without(standard)
        return request.changed(**{standard: "v1,=,%%"})


@dataclass
class Report:
    """What a handler did under an ordeal."""

    #: Requests that were sent.
    sent: int = 0
    #: Forged ones that were refused.
    refused: int = 0
    #: Authentic ones that were held off, to be retried.
    held: int = 0
    #: Events after a gap that were taken, as a policy may choose.
    gaps_accepted: int = 0
    #: The events that must have taken effect, in the order of their lines.
    events: list[Event] = field(default_factory=list)
    #: What it did wrong.
    problems: list[str] = field(default_factory=list)


Handler = Callable[[Request], int]
AsyncHandler = Callable[[Request], Awaitable[int]]
_Exchange = Generator[Request, int, None]


def ordeal(handler: Handler, secrets: Union[str, Sequence[str]], **choices: Any) -> Report:
    """Sends forged, reordered, repeated, stale and gapped deliveries to a handler that returns its status.

    Forged copies of every event come first. Then the events come in reversed order, each one twice once it is
    acknowledged, and again and again until all are. Then one with an unknown id and an old seq for each line, which
    must be acknowledged and do nothing, and one that leaves a gap, which must be answered 425 or taken.

    `bodies` are the payloads by key, in order: `{"A": [b"…", b"…"], None: [b"…"]}`. `applied` is called at the end
    and returns the ids of the events that took effect, in order. `forgeries` are those to send: leave out
    `TIMESTAMPED_ONLY` for a receiver that takes that form. `starts_anywhere` sends the first event of each line
    first, for inboxes that take an unknown line from anywhere. `names` are renamed headers.
    """
    report, exchange = _ordeal(secrets, **choices)
    try:
        request = next(exchange)
        while True:
            request = exchange.send(handler(request))
    except StopIteration:
        return report


async def ordeal_async(handler: AsyncHandler, secrets: Union[str, Sequence[str]], **choices: Any) -> Report:
    """The same to a handler of asyncio."""
    report, exchange = _ordeal(secrets, **choices)
    try:
        request = next(exchange)
        while True:
            request = exchange.send(await handler(request))
    except StopIteration:
        return report


def _ordeal(
    secrets: Union[str, Sequence[str]],
    *,
    bodies: Mapping[str | None, Sequence[bytes]] | None = None,
    applied: Callable[[], Iterable[str]] | None = None,
    forgeries: Iterable[Forgery] = tuple(Forgery),
    starts_anywhere: bool = False,
    names: Mapping[str, str] | None = None,
) -> tuple[Report, _Exchange]:
    sender, report = Sender(secrets, names=names), Report()
    payloads = bodies or {"A": [b'{"n": 1}', b'{"n": 2}', b'{"n": 3}'], "B": [b'{"n": 1}'], None: [b'{"n": 0}']}
    report.events = [sender.event(body, key=key) for key, of_key in payloads.items() for body in of_key]

    def exchange() -> _Exchange:
        for event in report.events:
            for forgery in forgeries:
                _note_forged(report, event, forgery, (yield sender.forge(event, forgery)))
        waiting = report.events[::-1]
        if starts_anywhere:
            waiting.sort(key=lambda event: event.seq != 1)
        yield from _send_until_acknowledged(sender, report, waiting)
        yield from _send_stale_and_gapped(sender, report)
        if applied is not None:
            _compare(report, list(applied()))

    return report, exchange()


def _send_until_acknowledged(sender: Sender, report: Report, waiting: list[Event]) -> _Exchange:
    for attempt in range(1, ROUNDS_MAX + 1):
        held = []
        for event in waiting:
            request = sender.request(event, attempt)
            if _note(report, event, (yield request)):
                _note_acknowledged(report, event, "sent twice", (yield request))
            else:
                held.append(event)
        waiting = held
        if not waiting:
            return
    report.problems += [f"{event.id} was never acknowledged" for event in waiting]


def _send_stale_and_gapped(sender: Sender, report: Report) -> _Exchange:
    last = {event.line: event for event in report.events if event.line is not None}
    for line, event in last.items():
        stale = sender.event(event.body, key=event.key, event_id=f"stale-{line}", line=line, seq=1)
        _note_acknowledged(report, stale, "with an old seq", (yield sender.request(stale)))
        seq = (event.seq or 0) + 2
        gapped = sender.event(event.body, key=event.key, event_id=f"gap-{line}", line=line, seq=seq)
        status = yield sender.request(gapped)
        report.sent += 1
        if 200 <= status <= 299:
            report.gaps_accepted += 1
        elif status == 425:
            report.held += 1
        else:
            report.problems.append(f"{gapped.id} after a gap was answered {status}")


def _note_forged(report: Report, event: Event, forgery: Forgery, status: int) -> None:
    report.sent += 1
    if status in (400, 401):
        report.refused += 1
    else:
        report.problems.append(f"{event.id}, {forgery.value}, was answered {status}")


def _note(report: Report, event: Event, status: int) -> bool:
    """Says whether it was acknowledged."""
    report.sent += 1
    if 200 <= status <= 299:
        return True
    if status in (409, 425, 429) or 500 <= status <= 599:
        report.held += 1
    else:
        report.problems.append(f"{event.id} was answered {status}")
    return False


def _note_acknowledged(report: Report, event: Event, how: str, status: int) -> None:
    report.sent += 1
    if not 200 <= status <= 299:
        report.problems.append(f"{event.id} {how} was answered {status}")


def _compare(report: Report, applied: list[str]) -> None:
    for event in report.events:
        if applied.count(event.id) != 1:
            report.problems.append(f"{event.id} took effect {applied.count(event.id)} times")
    for line in {event.line for event in report.events if event.line is not None}:
        wanted = [event.id for event in report.events if event.line == line]
        if [one for one in applied if one in wanted] != wanted:
            report.problems.append(f"the events of {line} took effect in another order than {wanted}")
    known = {event.id for event in report.events}
    others = [one for one in applied if one not in known and not one.startswith("gap-")]
    if report.gaps_accepted == 0:
        others = [one for one in applied if one not in known]
    report.problems += [f"{one} took effect and should not have" for one in others]


def wsgi_handler(app: Callable[..., Any], path: str = "/") -> Handler:
    """A handler that calls a WSGI application, such as Flask's or Django's, without a server."""

    def handle(request: Request) -> int:
        statuses: list[int] = []
        environ: dict[str, Any] = {
            "REQUEST_METHOD": "POST",
            "SCRIPT_NAME": "",
            "PATH_INFO": path,
            "QUERY_STRING": "",
            "SERVER_NAME": "127.0.0.1",
            "SERVER_PORT": "80",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "HTTP_HOST": "127.0.0.1",
            "REMOTE_ADDR": "127.0.0.1",
            "CONTENT_TYPE": "application/json",
            "CONTENT_LENGTH": str(len(request.body)),
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.input": io.BytesIO(request.body),
            "wsgi.errors": io.StringIO(),
            "wsgi.multithread": False,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
        }
        environ |= {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in request.headers}

        def start_response(status: str, headers: Any, exc_info: Any = None) -> Callable[[bytes], object]:
            statuses.append(int(status.split(" ")[0]))
            return lambda data: None

        answer = app(environ, start_response)
        try:
            for _ in answer:
                pass
        finally:
            if hasattr(answer, "close"):
                answer.close()
        return statuses[-1]

    return handle


def asgi_handler(app: Callable[..., Any], path: str = "/") -> AsyncHandler:
    """A handler that calls an ASGI application, such as FastAPI's, without a server."""

    async def handle(request: Request) -> int:
        statuses: list[int] = []
        headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
        headers += [(name.lower().encode(), value.encode("latin-1")) for name, value in request.headers]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
            "state": {},
        }
        messages: list[dict[str, Any]] = [{"type": "http.request", "body": request.body, "more_body": False}]
        answered = asyncio.Event()

        async def receive() -> dict[str, Any]:
            if messages:
                return messages.pop()
            # A client stays until it has its answer; some frameworks listen for its going away meanwhile.
            await answered.wait()
            return {"type": "http.disconnect"}

        async def send(message: Mapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                statuses.append(int(message["status"]))
            elif not message.get("more_body", False):
                answered.set()

        await app(scope, receive, send)
        return statuses[-1]

    return handle
