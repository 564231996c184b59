"""Senders other than Railpost: their own packages sign, we verify; and what nobody signed is refused."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from datetime import datetime, timezone
from typing import Any

import pytest
import standardwebhooks
import stripe
import svix

from railpost import Malformed, MissingHeader, NoMatch, Receiver, TimestampStale, Unreadable, Unsigned
from railpost.testing import Sender, sign_timestamped

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BODY = '{"id": "evt_1NG8Du2eZvKYlo2CUI79vXWy", "object": "event", "type": "charge.paid", "name": "café"}'
NOW = int(time.time())


def stripe_header(secret: str, body: str, timestamp: int = NOW) -> str:
    """Made by Stripe's own package."""
    signature = stripe.WebhookSignature._compute_signature(f"{timestamp}.{body}", secret)
    return f"t={timestamp},v1={signature},v0=ignored"


def github_headers(body: bytes, secret: str = "It's a Secret to Everybody") -> dict[str, str]:
    digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return {
        "X-GitHub-Delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958",
        "X-GitHub-Event": "issues",
        "X-Hub-Signature-256": f"sha256={digest}",
    }


def test_what_the_package_of_standard_webhooks_signs_is_verified() -> None:
    at = datetime.fromtimestamp(NOW, timezone.utc)
    signature = standardwebhooks.Webhook(SECRET).sign("msg_1", at, BODY)
    headers = {"Webhook-Id": "msg_1", "Webhook-Timestamp": str(NOW), "Webhook-Signature": signature}
    delivery = Receiver([SECRET]).verify(headers, BODY.encode())
    assert (delivery.event_id, delivery.timestamp, delivery.json()["name"]) == ("msg_1", NOW, "café")


def test_what_the_package_of_svix_signs_is_verified() -> None:
    at = datetime.fromtimestamp(NOW, timezone.utc)
    signature = svix.Webhook(SECRET).sign("msg_2", at, BODY)
    headers = {"svix-id": "msg_2", "svix-timestamp": str(NOW), "svix-signature": signature}
    assert Receiver.svix(SECRET).verify(headers, BODY.encode()).event_id == "msg_2"
    renamed = {name.replace("svix", "webhook"): value for name, value in headers.items()}
    assert Receiver.svix(SECRET).verify(renamed, BODY.encode()).event_id == "msg_2"
    with pytest.raises(NoMatch):
        Receiver.svix(SECRET).verify(headers, BODY.encode() + b" ")
    with pytest.raises(Unsigned, match="svix-signature"):
        Receiver.svix(SECRET).verify({}, BODY.encode())


def test_what_the_package_of_stripe_signs_is_verified_and_the_id_is_the_signed_one() -> None:
    secret = "whsec_not-base64-at-all!"
    headers = {"Stripe-Signature": stripe_header(secret, BODY)}
    delivery = Receiver.stripe(["another", secret]).verify(headers, BODY.encode())
    assert (delivery.event_id, delivery.event_type) == ("evt_1NG8Du2eZvKYlo2CUI79vXWy", "charge.paid")
    assert (delivery.timestamp, delivery.place) == (NOW, None)


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        ({}, BODY, Unsigned),
        ({"Stripe-Signature": stripe_header("s", BODY)}, BODY + " ", NoMatch),
        ({"Stripe-Signature": stripe_header("t", BODY)}, BODY, NoMatch),
        ({"Stripe-Signature": stripe_header("s", BODY, NOW - 400)}, BODY, TimestampStale),
        ({"Stripe-Signature": f"t={NOW}"}, BODY, NoMatch),
        ({"Stripe-Signature": "v1=00"}, BODY, Malformed),
        ({"Stripe-Signature": f"t={NOW},t={NOW}"}, BODY, Malformed),
        ({"Stripe-Signature": "garbage"}, BODY, Malformed),
        ({"Stripe-Signature": stripe_header("s", "[]")}, "[]", Unreadable),
        ({"Stripe-Signature": stripe_header("s", "no JSON")}, "no JSON", Unreadable),
        ({"Stripe-Signature": stripe_header("s", '{"id": 5}')}, '{"id": 5}', Unreadable),
    ],
)
def test_what_stripe_did_not_sign_is_refused(headers: dict[str, str], body: str, expected: type[Exception]) -> None:
    with pytest.raises(expected):
        Receiver.stripe("s").verify(headers, body.encode(), NOW)


def test_the_published_example_of_github_is_verified() -> None:
    headers = github_headers(b"Hello, World!")
    published = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    assert headers["X-Hub-Signature-256"] == f"sha256={published}"
    delivery = Receiver.github("It's a Secret to Everybody").verify(headers, b"Hello, World!")
    assert (delivery.event_id, delivery.event_type) == ("72d3162e-cc78-11e3-81ab-4c9367dc0958", "issues")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"X-Hub-Signature-256": None}, Unsigned),
        ({"X-Hub-Signature-256": "sha256=" + "0" * 64}, NoMatch),
        ({"X-Hub-Signature-256": "sha1=" + "0" * 40}, Malformed),
        ({"X-Hub-Signature-256": "sha256=" + "0" * 63}, Malformed),
        ({"X-Hub-Signature-256": "sha256=" + "é" * 64}, Malformed),
        ({"X-GitHub-Delivery": None}, MissingHeader),
        ({"X-GitHub-Delivery": "a b"}, Malformed),
    ],
)
def test_what_github_did_not_sign_is_refused(changes: dict[str, Any], expected: type[Exception]) -> None:
    headers = {**github_headers(b"{}"), **changes}
    kept = {name: value for name, value in headers.items() if value is not None}
    with pytest.raises(expected):
        Receiver.github("It's a Secret to Everybody").verify(kept, b"{}")


@pytest.mark.parametrize("method", ["sha1", "sha256", "sha384", "sha512"])
def test_a_websub_hub_that_numbers_its_updates_is_verified_and_ordered(method: str) -> None:
    digest = hmac.new(b"hub secret", b"<feed/>", method).hexdigest()
    order = {"webhook-id": "evt_1", "X-Lane": "L", "X-Seq": "3", "X-After": "1"}
    headers = {"X-Hub-Signature": f"{method}={digest}", **order}
    delivery = Receiver.websub("hub secret", methods=[method]).verify(headers, b"<feed/>")
    assert (delivery.event_id, delivery.place) == ("evt_1", ("L", 3, 1))
    if method == "sha1":
        with pytest.raises(Malformed):
            Receiver.websub("hub secret").verify(headers, b"<feed/>")


def test_the_timestamped_form_counts_only_if_it_is_asked_for() -> None:
    sender = Sender(SECRET)
    sent = sender.event(b"{}")
    request = sender.request(sent).without("webhook-signature")
    with pytest.raises(Unsigned):
        Receiver(SECRET).verify(request.headers, request.body)
    assert Receiver(SECRET, timestamped=True).verify(request.headers, request.body).event_id == sent.id


def test_stripes_own_package_verifies_the_timestamped_form() -> None:
    header = sign_timestamped(Sender(SECRET).signers, NOW, BODY.encode())
    assert stripe.WebhookSignature.verify_header(BODY, header, SECRET, tolerance=300)


def test_the_type_the_time_and_the_schema_version_are_read_where_they_are_there() -> None:
    names = {"x_event_type": "X-Shop-Type"}
    sender = Sender(SECRET)
    request = sender.request(sender.event(b"{}"))
    receiver = Receiver(SECRET, names=names)
    plain = receiver.verify(request.headers, request.body)
    assert (plain.event_type, plain.event_time, plain.schema_version) == (None, None, None)
    times = {
        "2026-01-02T03:04:05Z": datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc),
        "2026-01-02T03:04:05.678901234Z": datetime(2026, 1, 2, 3, 4, 5, 678901, timezone.utc),
        "2026-01-02T03:04:05.5+01:30": datetime(2026, 1, 2, 1, 34, 5, 500_000, timezone.utc),
    }
    for text, event_time in times.items():
        extra = {"X-Shop-Type": "order.paid", "X-Event-Time": text, "X-Schema-Version": "4294967295"}
        delivery = receiver.verify([*request.headers, *extra.items()], request.body)
        assert (delivery.event_type, delivery.event_time) == ("order.paid", event_time)
        assert delivery.schema_version == 2**32 - 1
    bad = {
        "X-Shop-Type": ["", "a b", "x" * 129],
        "X-Event-Time": ["", "yesterday", "2026-13-01T00:00:00Z", "2026-01-01 00:00:00Z", "0001-01-01T00:00:00+23:00"],
        "X-Schema-Version": ["", "-1", "4294967296", "1.0"],
    }
    for name, values in bad.items():
        for value in values:
            with pytest.raises(Malformed, match=name):
                receiver.verify([*request.headers, (name, value)], request.body)


def test_json_of_the_body_is_whole_or_unreadable() -> None:
    sender = Sender(SECRET)
    for body in (b"", b"{", b"\xff", b"[" * 200_000):
        request = sender.request(sender.event(body))
        with pytest.raises(Unreadable, match="the body is not JSON"):
            Receiver(SECRET).verify(request.headers, request.body).json()
    request = sender.request(sender.event(json.dumps({"a": 1}).encode()))
    assert Receiver(SECRET).verify(request.headers, request.body).json() == {"a": 1}
