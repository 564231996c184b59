"""The handshakes: CloudEvents' OPTIONS and WebSub's verification of intent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import flask
import pytest
from servers import asgi_server, send, wsgi_server

import railpost.asgi
import railpost.flask
import railpost.wsgi
from railpost import Receiver
from railpost.handshakes import CloudEventsConsent, Handshakes, WebSubConsent, WebSubIntent
from railpost.testing import Request

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
TOPIC = "https://publisher.example/feed?a=1&b=ü"
DENIED: list[tuple[str, str]] = []
HANDSHAKES = Handshakes(
    CloudEventsConsent({"events.example.com"}, rate=100),
    WebSubConsent([TOPIC], on_denied=lambda topic, reason: DENIED.append((topic, reason))),
)


async def plain_asgi(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 299, "headers": []})
    await send({"type": "http.response.body", "body": b"the application"})


def plain_wsgi(environ: Any, start_response: Any) -> list[bytes]:
    start_response("299 said", [])
    return [b"the application"]


def flask_app() -> Any:
    app = flask.Flask("shop")
    app.add_url_rule(
        "/hook",
        view_func=railpost.flask.webhook(Receiver(SECRET), handshakes=HANDSHAKES)(lambda delivery: "applied"),
        endpoint="hook",
        methods=["POST", "GET", "OPTIONS"],
        provide_automatic_options=False,
    )
    return app


SERVERS: dict[str, Any] = {
    "asgi": lambda: asgi_server(railpost.asgi.ReceiverMiddleware(plain_asgi, Receiver(SECRET), handshakes=HANDSHAKES)),
    "wsgi": lambda: wsgi_server(railpost.wsgi.ReceiverMiddleware(plain_wsgi, Receiver(SECRET), handshakes=HANDSHAKES)),
    "flask": lambda: wsgi_server(flask_app()),
}


@pytest.fixture(params=SERVERS)
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    with SERVERS[request.param]() as port:
        yield port


def options(port: int, **headers: str) -> Any:
    pairs = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return send(port, Request(pairs, b""), method="OPTIONS")


@pytest.mark.parametrize(
    ("asked", "granted"), [("120", "100"), ("60", "60"), (None, "100"), ("0", "100"), ("x", "100")]
)
def test_an_origin_that_may_send_is_told_so_and_how_often(port: int, asked: str | None, granted: str) -> None:
    rate = {} if asked is None else {"WebHook_Request_Rate": asked}
    answer = options(port, WebHook_Request_Origin="Events.example.com", **rate)
    assert answer.status == 200
    assert answer.getheader("WebHook-Allowed-Origin") == "Events.example.com"
    assert answer.getheader("WebHook-Allowed-Rate") == granted
    assert answer.getheader("Allow") == "POST"


@pytest.mark.parametrize("origin", ["evil.example", "events.example.com.evil.example", "example.com", "*", "x" * 2000])
def test_any_other_origin_gets_no_consent(port: int, origin: str) -> None:
    answer = options(port, WebHook_Request_Origin=origin)
    assert answer.getheader("WebHook-Allowed-Origin") is None
    assert answer.status == 403


def test_everybody_may_send_without_a_limit_if_the_receiver_says_so() -> None:
    answer = Handshakes(CloudEventsConsent("*")).answer("OPTIONS", {"webhook-request-origin": "a.example"}, "")
    assert answer is not None
    assert dict(answer.headers)["WebHook-Allowed-Origin"] == "a.example"
    assert dict(answer.headers)["WebHook-Allowed-Rate"] == "*"


def ask(port: int, **query: str) -> Any:
    text = urlencode({name.replace("_", ".", 1): value for name, value in query.items()})
    return send(port, Request((), b""), f"/hook?hub.topic=mine&{text}", "GET")


def test_a_wanted_subscription_is_confirmed_by_the_challenge_alone(port: int) -> None:
    answer = ask(port, hub_mode="subscribe", hub_topic=TOPIC, hub_challenge="<b>1</b>", hub_lease_seconds="864000")
    assert (answer.status, answer.text) == (200, "<b>1</b>")
    assert answer.getheader("content-type") == "text/plain; charset=utf-8"
    assert answer.getheader("x-content-type-options") == "nosniff"
    ended = ask(port, hub_mode="unsubscribe", hub_topic="https://publisher.example/old", hub_challenge="2")
    assert (ended.status, ended.text) == (200, "2")


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"hub_mode": "subscribe", "hub_topic": TOPIC + "x", "hub_challenge": "1"}, 404),
        ({"hub_mode": "unsubscribe", "hub_topic": TOPIC, "hub_challenge": "1"}, 404),
        ({"hub_mode": "subscribe", "hub_topic": TOPIC}, 400),
        ({"hub_mode": "subscribe", "hub_topic": TOPIC, "hub_challenge": "x" * 1025}, 400),
        ({"hub_mode": "SUBSCRIBE", "hub_topic": TOPIC, "hub_challenge": "1"}, 400),
    ],
)
def test_what_was_not_wanted_is_not_confirmed(port: int, query: dict[str, str], status: int) -> None:
    answer = ask(port, **query)
    assert answer.status == status
    assert query.get("hub_challenge", "?") != answer.text


def test_a_denial_is_told_to_the_application(port: int) -> None:
    DENIED.clear()
    assert ask(port, hub_mode="denied", hub_topic=TOPIC, hub_reason="no such feed").status == 200
    assert DENIED == [(TOPIC, "no such feed")]


def test_the_application_may_decide_about_each_intent() -> None:
    seen: list[WebSubIntent] = []
    consent = WebSubConsent(lambda intent: not seen.append(intent))
    answer = consent.answer({"hub.mode": "subscribe", "hub.topic": "t", "hub.challenge": "c", "hub.lease_seconds": "9"})
    assert (answer.status, seen) == (200, [WebSubIntent("subscribe", "t", 9)])


@pytest.mark.parametrize("name", ["asgi", "wsgi"])
def test_any_other_get_and_options_goes_to_the_application(name: str) -> None:
    with SERVERS[name]() as port:
        assert send(port, Request((), b""), method="GET").status == 299
        assert options(port, Origin="https://a.example").status == 299
        assert send(port, Request((), b""), method="PUT").status == 401


def test_settings_that_cannot_be_meant_are_refused() -> None:
    with pytest.raises(ValueError, match="origins: expected"):
        CloudEventsConsent("events.example.com")
    with pytest.raises(ValueError, match="rate: expected"):
        CloudEventsConsent("*", 0)
