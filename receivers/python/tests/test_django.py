"""Django: the decorator behind a real server, in the ORM's transaction, and the migration."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator
from typing import Any

import django_urls as site
import pytest
from django.core.asgi import get_asgi_application
from django.core.management import call_command
from django.core.wsgi import get_wsgi_application
from django.db import connection, connections, transaction
from django.test import RequestFactory
from servers import http_handler, send, wsgi_server
from stores import NOW, SQLITE_EFFECTS, event

import railpost.django
from railpost import NoTransaction
from railpost.testing import Request, Sender, asgi_handler, ordeal


@pytest.fixture(scope="module", autouse=True)
def tables() -> Iterator[None]:
    call_command("migrate", "railpost", verbosity=0)
    call_command("migrate", "railpost", database="postgres", verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute(SQLITE_EFFECTS)
    yield
    connections.close_all()


@pytest.fixture
def port() -> Iterator[int]:
    with wsgi_server(get_wsgi_application()) as port:
        yield port


def effects() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("select id from effects where inbox = 'django' order by position")
        return [row[0] for row in cursor.fetchall()]


def test_every_event_takes_effect_once_and_in_order_in_the_transaction_of_the_view(port: int) -> None:
    report = ordeal(http_handler(port), site.SECRET, applied=effects)
    assert report.problems == []
    assert site.RECEIVER.counters.counts()["fresh"] == 5


def test_a_view_that_fails_leaves_neither_effect_nor_row(port: int) -> None:
    sender, before = Sender(site.SECRET), effects()
    for body, status in ((b"fail", 503), (b"raise", 500), (b"unreadable", 400), (b"{}", 201), (b"{}", 200)):
        one = sender.event(body, event_id="failing", line="failing", seq=1)
        assert send(port, sender.request(one)).status == status, body
    assert effects() == [*before, "failing"]


def test_a_body_that_is_too_large_is_refused(port: int) -> None:
    sender = Sender(site.SECRET)
    assert send(port, sender.request(sender.event(b"x" * 5_000_000))).status == 413


def test_a_view_behind_an_inbox_in_memory_is_called_once(port: int) -> None:
    report = ordeal(http_handler(port, "/remembered"), site.SECRET, applied=lambda: site.SEEN)
    assert report.problems == []


def test_handshakes_are_answered_by_the_view(port: int) -> None:
    asked = Request((("WebHook-Request-Origin", "events.example.com"), ("WebHook-Request-Rate", "120")), b"")
    answer = send(port, asked, method="OPTIONS")
    assert answer.getheader("WebHook-Allowed-Origin") == "events.example.com"
    assert answer.getheader("WebHook-Allowed-Rate") == "100"
    query = "/hook?hub.mode=subscribe&hub.topic=https%3A%2F%2Fa.example%2Ffeed&hub.challenge=abc&hub.lease_seconds=60"
    assert send(port, Request((), b""), query, "GET").text == "abc"  # type: ignore[attr-defined]


def test_a_view_of_asyncio_is_verified_too_and_takes_no_inbox() -> None:
    handle = asgi_handler(get_asgi_application(), "/async")
    sender = Sender(site.SECRET)
    request = sender.request(sender.event())
    assert asyncio.run(handle(request)) == 200
    assert asyncio.run(handle(request.without("webhook-signature"))) == 401

    async def view(request: Any, delivery: Any) -> None: ...

    with pytest.raises(TypeError, match="inbox: expected None"):
        railpost.django.webhook(site.RECEIVER, inbox=site.INBOX)(view)


def test_a_body_that_was_read_first_is_an_error_that_says_what_to_do() -> None:
    sender = Sender(site.SECRET)
    headers = dict(sender.request(sender.event()).headers)
    request = RequestFactory().post("/hook", b"{}", content_type="application/json", headers=headers)
    request.read(1)
    with pytest.raises(RuntimeError, match="let no middleware read"):
        site.hook(request)


def test_the_inbox_insists_on_an_atomic_block() -> None:
    with pytest.raises(NoTransaction, match="atomic"):
        site.INBOX.admit(event("1"), NOW)
    with transaction.atomic():
        assert site.INBOX.admit(event("in-a-block"), NOW).applies


def test_the_migration_goes_both_ways_and_misses_nothing() -> None:
    call_command("makemigrations", "railpost", check=True, dry_run=True, stdout=io.StringIO())
    call_command("migrate", "railpost", "zero", verbosity=0)
    assert "railpost_inbox" not in connection.introspection.table_names()
    call_command("migrate", "railpost", verbosity=0)
    assert "railpost_inbox" in connection.introspection.table_names()
