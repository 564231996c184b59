"""A whole run against the real server: failures, lost answers, redelivery, a restore and a re-created endpoint.

Every effect happens once, and in the order of its key.
"""

import asyncio
import base64
import contextlib
import random
import sqlite3
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Annotated, Any

import asyncpg
import fastapi
import pytest
import standardwebhooks
import stripe
import svix
from sender_server import Railpost
from servers import asgi_server
from stores import POSTGRES_EFFECTS, SQLITE_EFFECTS, postgres_url, unique

from railpost import Delivery, Receiver, SqliteInbox, Verdict
from railpost.asyncpg import AsyncpgInbox
from railpost.fastapi import Verified, respond
from railpost.secrets import SigningKey

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SIGNING_KEY = SigningKey("whsk_" + base64.b64encode(b"k" * 32).decode())
KEYS = ["A", "B", "café 1"]
POLICY = {
    "retry": {"backoff": {"strategy": "fixed", "delay": "20ms"}},
    "breaker": {"failure_percent": 100, "min_attempts": 64, "window": 64},
}


class EffectFailed(Exception):
    """Raised after the effect was written."""


class Shop:
    """A receiver that fails by chance: before the inbox, after the effect, and after the commit."""

    def __init__(self) -> None:
        self.receiver = Receiver(SECRET, SIGNING_KEY.public)
        self.name = unique()
        self.chance = random.Random(7)
        self.lock = threading.Lock()
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.happened: Counter[str] = Counter()

    def trouble(self, delivery: Delivery) -> str:
        with self.lock:
            trouble = self.chance.choice(["none"] * 5 + ["refuse", "fail", "lose"])
            trouble = trouble if (delivery.attempt or 0) <= 4 else "none"
            self.happened[f"{trouble} attempts"] += 1
            return trouble

    def keep(self, request: fastapi.Request, body: bytes) -> None:
        with self.lock:
            self.requests.append((dict(request.headers), body))

    def answer(self, verdict: Verdict, trouble: str) -> Any:
        with self.lock:
            self.happened[verdict.kind.value] += 1
        return respond(verdict) if trouble != "lose" else fastapi.Response(status_code=502)


class SqliteShop(Shop):
    """Blocking, on SQLite."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.path, self.inbox = folder / "shop.db", SqliteInbox(self.name)
        with contextlib.closing(self.connect()) as database:
            self.inbox.create_tables(database)
            database.execute(SQLITE_EFFECTS)

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=30)

    def app(self) -> fastapi.FastAPI:
        app = fastapi.FastAPI()

        @app.post("/hook")
        def hook(
            request: fastapi.Request, delivery: Annotated[Delivery, fastapi.Depends(Verified(self.receiver))]
        ) -> Any:
            self.keep(request, delivery.body)
            trouble = self.trouble(delivery)
            if trouble == "refuse":
                return fastapi.Response(status_code=503)
            with contextlib.closing(self.connect()) as database, self.inbox.transaction(database, delivery) as verdict:
                if verdict.applies:
                    database.execute("insert into effects (inbox, id) values (?, ?)", [self.name, delivery.json()])
                if trouble == "fail":
                    raise EffectFailed
            return self.answer(verdict, trouble)

        app.add_exception_handler(EffectFailed, lambda request, error: fastapi.Response(status_code=500))
        return app

    def effects(self) -> list[str]:
        with contextlib.closing(self.connect()) as database:
            return [row[0] for row in database.execute("select id from effects order by position")]


@contextlib.asynccontextmanager
async def connected() -> AsyncIterator[Any]:
    connection = await asyncpg.connect(postgres_url())
    try:
        yield connection
    finally:
        await connection.close()


class PostgresShop(Shop):
    """With asyncio, on PostgreSQL."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.inbox = AsyncpgInbox(self.name)
        asyncio.run(self.create_tables())

    async def create_tables(self) -> None:
        async with connected() as connection:
            await self.inbox.create_tables(connection)
            await connection.execute(POSTGRES_EFFECTS)

    def app(self) -> fastapi.FastAPI:
        app = fastapi.FastAPI()

        @app.post("/hook")
        async def hook(
            request: fastapi.Request, delivery: Annotated[Delivery, fastapi.Depends(Verified(self.receiver))]
        ) -> Any:
            self.keep(request, delivery.body)
            trouble = self.trouble(delivery)
            if trouble == "refuse":
                return fastapi.Response(status_code=503)
            async with connected() as database, self.inbox.transaction(database, delivery) as verdict:
                if verdict.applies:
                    sql = "insert into effects (inbox, id) values ($1, $2)"
                    await database.execute(sql, self.name, delivery.json())
                if trouble == "fail":
                    raise EffectFailed
            return self.answer(verdict, trouble)

        app.add_exception_handler(EffectFailed, lambda request, error: fastapi.Response(status_code=500))
        return app

    def effects(self) -> list[str]:
        async def read() -> list[str]:
            async with connected() as connection:
                sql = "select id from effects where inbox = $1 order by position"
                return [row[0] for row in await connection.fetch(sql, self.name)]

        return asyncio.run(read())


@pytest.fixture
def railpost(tmp_path: Path) -> Iterator[Railpost]:
    server = Railpost(tmp_path / "railpost")
    yield server
    if server.process.poll() is None:
        server.stop()


class Publisher:
    """Publishes numbered events: `key n` is the payload."""

    def __init__(self, railpost: Railpost) -> None:
        self.railpost, self.last, self.ids = railpost, Counter[str](), list[str]()

    def publish(self, count: int) -> list[str]:
        ids = []
        for _ in range(count):
            for key in KEYS:
                self.last[key] += 1
                event = {"type": "order.paid", "key": key, "payload": f"{key} {self.last[key]}"}
                ids.append(self.railpost.tenant("POST", "events", event)["id"])
        self.ids += ids
        return ids


def create_endpoint(railpost: Railpost, port: int, **settings: str) -> str:
    endpoint = {"url": f"http://127.0.0.1:{port}/hook", "policy": POLICY, **settings}
    created: str = railpost.tenant("POST", "endpoints", endpoint)["id"]
    return created


@pytest.mark.parametrize("shop_type", [SqliteShop, PostgresShop])
def test_every_effect_happens_once_and_in_order_whatever_happens_to_the_sender(
    shop_type: Any, railpost: Railpost, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shop, publisher = shop_type(tmp_path), Publisher(railpost)
    with asgi_server(shop.app()) as port:
        endpoint = create_endpoint(railpost, port, secret=SECRET)
        first = publisher.publish(5)
        railpost.wait_until_all_is_delivered()

        # Redelivery: known ids under new seqs, and new events behind them.
        for event_id in first[:4]:
            railpost.tenant("POST", f"events/{event_id}/redeliver", {"endpoint": endpoint})
        publisher.publish(2)
        railpost.wait_until_all_is_delivered()

        # A backup with open deliveries, which are then delivered; the restored sender sends them again in new lines.
        railpost.tenant("POST", f"endpoints/{endpoint}/pause")
        publisher.publish(2)
        railpost.call("POST", "/v1/backup", {"path": "whole-run.db"})
        railpost.tenant("POST", f"endpoints/{endpoint}/resume")
        railpost.wait_until_all_is_delivered()
        railpost.stop()
        before_restore = shop.happened["duplicate"]
        railpost.restore("whole-run.db")
        railpost.start()
        railpost.tenant("POST", f"endpoints/{endpoint}/resume")
        railpost.wait_until_all_is_delivered()
        assert shop.happened["duplicate"] - before_restore >= 2 * len(KEYS)
        publisher.publish(2)
        railpost.wait_until_all_is_delivered()

        # The endpoint is made again: its lines begin with 1. Of its two signatures only that of the key is trusted.
        railpost.tenant("DELETE", f"endpoints/{endpoint}")
        again = create_endpoint(railpost, port)
        signing = {"kind": "signing", "value": SIGNING_KEY.canonical}
        railpost.tenant("POST", f"endpoints/{again}/secrets", signing)
        publisher.publish(3)
        railpost.wait_until_all_is_delivered()

    effects = shop.effects()
    for key in KEYS:
        wanted = [f"{key} {n}" for n in range(1, publisher.last[key] + 1)]
        assert [one for one in effects if one.startswith(f"{key} ")] == wanted
    assert len(effects) == sum(publisher.last.values())
    assert shop.happened["refuse attempts"] and shop.happened["fail attempts"] and shop.happened["lose attempts"]
    assert shop.receiver.counters.counts()["rejected"] == 0
    assert len(shop.requests) == sum(count for what, count in shop.happened.items() if what.endswith("attempts"))
    verify_with_the_packages_of_others(shop.requests)
    with capsys.disabled():
        print(f"\n   whole run, {shop_type.__name__}: {len(shop.requests)} requests, {len(effects)} effects,", end=" ")
        print(", ".join(f"{count} {what}" for what, count in sorted(shop.happened.items())))


@pytest.mark.parametrize("envelope", ["cloudevents-structured", "cloudevents-binary", "event", "thin"])
def test_what_the_server_wraps_is_read(envelope: str, railpost: Railpost) -> None:
    app, receiver, seen = fastapi.FastAPI(), Receiver(SECRET), list[Any]()

    @app.post("/hook")
    def hook(delivery: Annotated[Delivery, fastapi.Depends(Verified(receiver))]) -> Any:
        readers = {"thin": delivery.thin, "event": delivery.event}
        seen.append(readers.get(envelope, delivery.cloud_event)())
        assert (delivery.event_type, delivery.is_thin) == ("order.paid", envelope == "thin")

    with asgi_server(app) as port:
        create_endpoint(railpost, port, secret=SECRET, envelope=envelope)
        published = {"type": "order.paid", "id": "order-1", "key": "café 1", "payload": {"total": 12}}
        railpost.tenant("POST", "events", published)
        cloud_event = {"specversion": "1.0", "id": "1", "source": "/s", "type": "order.paid", "data": {"total": 13}}
        railpost.tenant("POST", "events", cloud_event, "application/cloudevents+json")
        railpost.wait_until_all_is_delivered()
    assert {one.type for one in seen} == {"order.paid"}
    if envelope == "thin":
        assert [one.key for one in seen if one.id == "order-1"] == ["café 1"]
        assert {one.url_at(f"http://127.0.0.1:{railpost.port}") for one in seen} == {one.url for one in seen}
    elif envelope == "event":
        assert {(one.key, one.data["total"]) for one in seen} == {("café 1", 12), (None, 13)}
    else:
        assert {(one.id, one.subject, one.data["total"]) for one in seen} == {
            ("order-1", "café 1", 12),
            ("1", None, 13),
        }


def verify_with_the_packages_of_others(requests: list[tuple[dict[str, str], bytes]]) -> None:
    """What the server sends is right in the eyes of packages that nobody here wrote."""
    verified = 0
    for headers, body in requests:
        if "v1a," in headers["webhook-signature"]:
            continue
        standardwebhooks.Webhook(SECRET).verify(body, headers)
        svix.Webhook(SECRET).verify(body, headers)
        stripe.WebhookSignature.verify_header(body.decode(), headers["x-webhook-signature"], SECRET, tolerance=300)
        verified += 1
    assert verified > 0
