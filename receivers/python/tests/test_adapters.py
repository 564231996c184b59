"""Each adapter behind its real framework and a real server: forged, reordered, repeated, stale, gapped deliveries."""

# No postponed annotations here: FastAPI reads those of functions that are made in functions.

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import fastapi
import flask
import pytest
import redis
import redis.asyncio
from servers import asgi_server, http_handler, send, wsgi_server
from stores import redis_url, unique

import railpost.asgi
import railpost.django
import railpost.fastapi
import railpost.flask
import railpost.wsgi
from railpost import Delivery, MemoryInbox, Policy, QueueFull, Receiver, Rejection, SqliteInbox, SqliteQueue, WorkPolicy
from railpost.redis import AsyncRedisInbox, RedisInbox
from railpost.testing import Forgery, Request, Sender, asgi_handler, ordeal, ordeal_async, wsgi_handler

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


class Shop:
    """An application with a database of its own, and the inbox beside its orders."""

    def __init__(self, path: Path) -> None:
        self.path, self.receiver, self.inbox = path, Receiver(SECRET), SqliteInbox("orders")
        self.reads_json = False
        with contextlib.closing(self.connect()) as database:
            self.inbox.create_tables(database)
            database.execute("create table orders (position integer primary key, id text)")

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=60)

    def receive(self, delivery: Delivery) -> Any:
        with contextlib.closing(self.connect()) as database, self.inbox.transaction(database, delivery) as verdict:
            if verdict.applies:
                database.execute("insert into orders (id) values (?)", [delivery.event_id])
            if self.reads_json:
                delivery.json()
            if delivery.body == b"fail":
                raise RuntimeError("the effect fails")
        return verdict

    def orders(self) -> list[str]:
        with contextlib.closing(self.connect()) as database:
            return [row[0] for row in database.execute("select id from orders order by position")]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path / "shop.db")


def fastapi_app(shop: Shop) -> Any:
    app = fastapi.FastAPI()
    app.add_exception_handler(Rejection, railpost.fastapi.on_rejection)

    @app.post("/hook")
    def hook(delivery: Annotated[Delivery, fastapi.Depends(railpost.fastapi.Verified(shop.receiver))]) -> Any:
        return railpost.fastapi.respond(shop.receive(delivery))

    @app.post("/parsed")
    def parsed(
        event: Annotated[dict[str, Any], fastapi.Body()],
        delivery: Annotated[Delivery, fastapi.Depends(railpost.fastapi.Verified(shop.receiver))],
    ) -> Any:
        return {"event": event, "body": delivery.body.decode()}

    return app


def flask_app(shop: Shop) -> Any:
    app = flask.Flask("shop")

    @app.before_request
    def read_early() -> None:
        if flask.request.is_json:
            flask.request.get_json(silent=True)

    @app.post("/hook")
    @railpost.flask.webhook(shop.receiver)
    def hook(delivery: Delivery) -> Any:
        return railpost.flask.respond(shop.receive(delivery))

    return app


def plain_asgi_app(shop: Shop) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            body += message["body"]
            if not message["more_body"]:
                break
        delivery = scope[railpost.asgi.DELIVERY]
        assert body == delivery.body, "the handler reads the same bytes"
        await railpost.asgi.send_answer(send, shop.receive(delivery).answer)

    return railpost.asgi.ReceiverMiddleware(app, shop.receiver, "/hook")


def plain_wsgi_app(shop: Shop) -> Any:
    def app(environ: Any, start_response: Any) -> list[bytes]:
        delivery = environ[railpost.wsgi.DELIVERY]
        assert environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])) == delivery.body
        answer = shop.receive(delivery).answer
        start_response(f"{answer.status} said", answer.headers)
        return [answer.text.encode()]

    return railpost.wsgi.ReceiverMiddleware(app, shop.receiver, "/hook")


APPS = {
    "fastapi": (asgi_server, fastapi_app),
    "asgi": (asgi_server, plain_asgi_app),
    "flask": (wsgi_server, flask_app),
    "wsgi": (wsgi_server, plain_wsgi_app),
}


@pytest.fixture(params=APPS)
def port(request: pytest.FixtureRequest, shop: Shop) -> Iterator[int]:
    serve, make = APPS[request.param]
    with serve(make(shop)) as port:
        yield port


def test_every_event_takes_effect_once_and_in_order(port: int, shop: Shop) -> None:
    report = ordeal(http_handler(port), SECRET, applied=shop.orders)
    assert report.problems == []
    assert (report.refused, len(report.events)) == (5 * 7, 5)
    assert report.held >= 4, "the reordered ones and the gaps"
    assert shop.receiver.counters.counts()["rejected"] == 35


def test_what_cannot_be_believed_or_read_is_refused_with_a_reason_in_the_log(
    port: int, shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    sender = Sender(SECRET)
    request = sender.request(sender.event(b"{}", key="A"))
    assert send(port, request.without("webhook-id")).status == 400
    assert send(port, request.changed(x_seq="one")).status == 400
    wrong = send(port, sender.forge(sender.event(), Forgery.OTHER_SECRET))
    assert (wrong.status, "secret" in wrong.text) == (401, False)  # type: ignore[attr-defined]
    shop.receiver.body_len_max = 10
    assert send(port, sender.request(sender.event(b"x" * 11))).status == 413
    assert send(port, sender.request(sender.event(b"x" * 10))).status == 200
    reasons = [record.getMessage() for record in caplog.records if record.name == "railpost"]
    assert reasons == [
        "request rejected: expected a header `webhook-id`; got none",
        "request rejected: header `X-Seq`: expected a seq from 1 to 9223372036854775807; got `one`",
        "request rejected: no signature matches a trusted secret or key: check that the secret is this endpoint's,"
        " and that the body reaches the verifier byte for byte",
        "request rejected: the body is longer than 10 bytes",
    ]


def test_a_sender_of_a_body_that_is_too_large_gets_to_see_the_answer(port: int) -> None:
    sender = Sender(SECRET)
    assert send(port, sender.request(sender.event(b"x" * 5_000_000))).status == 413


def test_an_effect_that_fails_is_rolled_back_and_the_sender_is_told_to_try_again(port: int, shop: Shop) -> None:
    sender = Sender(SECRET)
    failing = sender.event(b"fail", key="A")
    assert send(port, sender.request(failing)).status == 500
    assert shop.orders() == []
    assert shop.inbox.counters.counts()["trouble"] == 1
    again = sender.event(b"{}", event_id=failing.id, key="A", line=failing.line, seq=1)
    assert send(port, sender.request(again)).status == 200
    assert shop.orders() == [failing.id]


@pytest.mark.parametrize("name", ["fastapi", "asgi"])
def test_a_body_in_chunks_without_a_length_is_read_up_to_the_limit(name: str, shop: Shop) -> None:
    sender = Sender(SECRET)
    with asgi_server(APPS[name][1](shop)) as port:
        assert send(port, sender.request(sender.event(b'{"a": 1}')), chunked=True).status == 200
        shop.receiver.body_len_max = 7
        assert send(port, sender.request(sender.event(b'{"a": 1}')), chunked=True).status == 413


@pytest.mark.parametrize("name", ["fastapi", "flask"])
def test_a_body_that_the_handler_cannot_read_is_answered_400_and_leaves_nothing(name: str, shop: Shop) -> None:
    serve, make = APPS[name]
    sender = Sender(SECRET)
    shop.reads_json = True
    with serve(make(shop)) as port:
        assert send(port, sender.request(sender.event(b"no JSON"))).status == 400
        assert send(port, sender.request(sender.event(b"{}"))).status == 200
    assert len(shop.orders()) == 1


def test_fastapi_may_parse_the_body_too_and_the_bytes_are_kept(shop: Shop) -> None:
    sender = Sender(SECRET)
    body = b'{ "total":  1.0 }'
    with asgi_server(fastapi_app(shop)) as port:
        answer = send(port, sender.request(sender.event(body)), "/parsed")
        assert json.loads(answer.text) == {"event": {"total": 1.0}, "body": body.decode()}  # type: ignore[attr-defined]
        forged = sender.forge(sender.event(body), Forgery.UNSIGNED)
        assert send(port, forged, "/parsed").status == 401


def form_request(sender: Sender) -> Request:
    request = sender.request(sender.event(b"a=1&b=2"))
    return Request((*request.headers, ("content-type", "application/x-www-form-urlencoded")), request.body)


def test_a_form_that_was_read_first_is_an_error_that_says_what_to_do(shop: Shop) -> None:
    app = flask.Flask("shop")
    app.testing = True

    @app.post("/hook")
    @railpost.flask.webhook(shop.receiver)
    def hook(delivery: Delivery) -> Any:
        return delivery.body

    @app.before_request
    def read_form() -> None:
        assert flask.request.form

    request = form_request(Sender(SECRET))
    client = app.test_client()
    with pytest.raises(RuntimeError, match=r"put railpost\.wsgi\.ReceiverMiddleware around app\.wsgi_app"):
        client.post("/hook", data=request.body, headers=dict(request.headers))
    app.wsgi_app = railpost.wsgi.ReceiverMiddleware(app.wsgi_app, shop.receiver, "/hook")  # type: ignore[method-assign]
    assert client.post("/hook", data=request.body, headers=dict(request.headers)).data == request.body


def form_app(shop: Shop) -> fastapi.FastAPI:
    app = fastapi.FastAPI()

    @app.post("/hook")
    async def hook(request: fastapi.Request) -> Any:
        form = await request.form()
        delivery = await railpost.fastapi.Verified(shop.receiver)(request)
        assert (form["a"], delivery.body) == ("1", b"a=1&b=2")
        return railpost.fastapi.respond(shop.receive(delivery))

    return app


def test_the_middleware_keeps_the_bytes_when_fastapi_reads_a_form(shop: Shop) -> None:
    request = form_request(Sender(SECRET))

    async def call(app: Any) -> int:
        # `asgi_handler` says that it sends JSON; the request's own content type is the one that counts here.
        async def form_type(scope: Any, receive: Any, send: Any) -> None:
            scope["headers"] = [pair for pair in scope["headers"] if pair[1] != b"application/json"]
            await app(scope, receive, send)

        return await asgi_handler(form_type, "/hook")(request)

    with pytest.raises(RuntimeError, match=r"add railpost\.asgi\.ReceiverMiddleware"):
        asyncio.run(call(form_app(shop)))
    app = form_app(shop)
    app.add_middleware(railpost.asgi.ReceiverMiddleware, receiver=shop.receiver, paths="/hook")
    assert asyncio.run(call(app)) == 200
    assert len(shop.orders()) == 1


class Handler:
    """A handler that knows nothing of inboxes, behind one that judges."""

    def __init__(self) -> None:
        self.applied: list[str] = []
        self.status = 200

    def wsgi(self, environ: Any, start_response: Any) -> Any:
        # A handler may work after `start_response`.
        start_response(f"{self.status or 200} said", [])
        yield b""
        if self.status == 0:
            raise RuntimeError("the effect fails")
        if self.status == 200:
            self.applied.append(environ[railpost.wsgi.DELIVERY].event_id)

    async def asgi(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": self.status or 200, "headers": []})
        if self.status == 0:
            raise RuntimeError("the effect fails")
        if self.status == 200:
            self.applied.append(scope[railpost.asgi.DELIVERY].event_id)
        await send({"type": "http.response.body", "body": b"said"})


HOLD = Policy(on_gap="hold")


@pytest.mark.parametrize("store", ["memory", "redis"])
def test_a_wsgi_handler_behind_an_inbox_sees_only_what_it_should_apply(store: str) -> None:
    handler, receiver = Handler(), Receiver(SECRET)
    client = redis.Redis.from_url(redis_url())
    inbox: Any = MemoryInbox(HOLD) if store == "memory" else RedisInbox(client, unique(), HOLD)
    call = wsgi_handler(railpost.wsgi.ReceiverMiddleware(handler.wsgi, receiver, inbox=inbox))
    assert ordeal(call, SECRET, applied=lambda: handler.applied).problems == []
    counts = receiver.counters.counts()
    assert (counts["fresh"], counts["duplicate"], counts["stale"]) == (5, 5, 2)

    sender = Sender(SECRET)
    request = sender.request(sender.event(event_id="fails", line="F", seq=1))
    for handler.status, expected in ((503, 503), (0, None), (200, 200)):
        if expected is None:
            with pytest.raises(RuntimeError):
                call(request)
        else:
            assert call(request) == expected
    assert handler.applied.count("fails") == 1
    client.close()


@pytest.mark.parametrize("store", ["memory", "redis"])
def test_an_asgi_handler_behind_an_inbox_sees_only_what_it_should_apply(store: str) -> None:
    async def run() -> None:
        handler, receiver = Handler(), Receiver(SECRET)
        client = redis.asyncio.Redis.from_url(redis_url())
        inbox: Any = MemoryInbox(HOLD) if store == "memory" else AsyncRedisInbox(client, unique(), HOLD)
        call = asgi_handler(railpost.asgi.ReceiverMiddleware(handler.asgi, receiver, inbox=inbox))
        assert (await ordeal_async(call, SECRET, applied=lambda: handler.applied)).problems == []
        counts = receiver.counters.counts()
        assert (counts["fresh"], counts["duplicate"], counts["stale"]) == (5, 5, 2)
        sender = Sender(SECRET)
        request = sender.request(sender.event(event_id="fails", line="F", seq=1))
        for handler.status, expected in ((503, 503), (0, None), (200, 200)):
            if expected is None:
                with pytest.raises(RuntimeError):
                    await call(request)
            else:
                assert await call(request) == expected
        assert handler.applied.count("fails") == 1
        await client.aclose()

    asyncio.run(run())


class BrokenInbox(MemoryInbox):
    """A store that is away when the event is to be noted."""

    def done(self, ticket: Any, now: float | None = None) -> None:
        ticket.undo()
        raise ConnectionError("Redis is away")


def test_an_event_that_cannot_be_noted_is_not_acknowledged() -> None:
    sender = Sender(SECRET)
    request, receiver = sender.request(sender.event()), Receiver(SECRET)
    wsgi = railpost.wsgi.ReceiverMiddleware(Handler().wsgi, receiver, inbox=BrokenInbox())
    assert wsgi_handler(wsgi)(request) == 503
    asgi = railpost.asgi.ReceiverMiddleware(Handler().asgi, receiver, inbox=BrokenInbox())
    assert asyncio.run(asgi_handler(asgi)(request)) == 503
    assert receiver.counters.counts()["trouble"] == 2


def test_a_full_queue_is_answered_429_with_retry_after(shop: Shop) -> None:
    app, queue = fastapi.FastAPI(), SqliteQueue(shop.inbox, WorkPolicy(backlog_max=1))

    @app.post("/hook")
    def hook(delivery: Annotated[Delivery, fastapi.Depends(railpost.fastapi.Verified(shop.receiver))]) -> Any:
        with contextlib.closing(shop.connect()) as database:
            try:
                return railpost.fastapi.respond(queue.accept(database, delivery))
            except QueueFull as full:
                return railpost.fastapi.respond(full.answer)

    sender = Sender(SECRET)
    with asgi_server(app) as port:
        assert send(port, sender.request(sender.event())).status == 200
        full = send(port, sender.request(sender.event()))
    assert (full.status, full.getheader("retry-after")) == (429, "5")
