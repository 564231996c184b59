"""`vectors/*.json`: what sender and receiver agree on, good and bad cases."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from vectors import body_of, load

from railpost import (
    BadHeaderName,
    BadSecret,
    HeaderNames,
    Malformed,
    MissingHeader,
    NoMatch,
    Receiver,
    Rejection,
    Secret,
    TimestampFuture,
    TimestampStale,
    VerifyingKey,
)
from railpost.delivery import read_delivery
from railpost.headers import (
    IncomingHeaders,
    encode_key,
    parse_event_id,
    parse_event_time,
    parse_key,
    parse_line,
    parse_seq,
)
from railpost.profiles import StandardProfile
from railpost.secrets import SigningKey
from railpost.testing import Sender, parse_signer, sign_standard, sign_timestamped

OUTCOMES = {
    "missing_header": MissingHeader,
    "malformed": Malformed,
    "stale": TimestampStale,
    "future": TimestampFuture,
    "no_match": NoMatch,
}


def name_of(case: dict[str, Any]) -> str:
    return str(case.get("name") or case.get("why") or case.get("text"))


def receiver_of(case: dict[str, Any]) -> Receiver:
    secrets, keys = [Secret(text) for text in case["secrets"]], [VerifyingKey(text) for text in case["keys"]]
    names, timestamped = HeaderNames(case.get("names")), not case.get("standard_only", False)
    return Receiver.of_profile(StandardProfile(secrets, keys, case["tolerance"], names, timestamped))


@pytest.mark.parametrize("case", load("verification")["cases"], ids=name_of)
def test_a_request_is_believed_or_refused_as_the_vectors_say(case: dict[str, Any]) -> None:
    # The wire's verifier looks at signatures alone; a receiver needs id and time of the standard form too.
    headers, body = dict(case["headers"]), body_of(case)
    if case["outcome"] == "timestamped":
        headers = {"webhook-id": "a", "webhook-timestamp": "5", **headers}
    if case["outcome"] in ("standard", "timestamped"):
        assert receiver_of(case).verify(headers, body, case["now"]).body == body
        return
    with pytest.raises(OUTCOMES[case["outcome"]]) as caught:
        receiver_of(case).verify(headers, body, case["now"])
    assert getattr(caught.value, "header", None) == case.get("header")
    assert getattr(caught.value, "by", None) == case.get("by")
    assert caught.value.answer.status in (400, 401)


@pytest.mark.parametrize("case", load("signatures")["cases"], ids=name_of)
def test_signatures_are_those_of_the_vectors(case: dict[str, Any]) -> None:
    signers, body = [parse_signer(text) for text in case["signers"]], body_of(case)
    timestamp = int(case["timestamp"])
    assert sign_standard(signers, case["id"], timestamp, body) == case["webhook_signature"]
    assert sign_timestamped(signers, timestamp, body) == case["x_webhook_signature"]


@pytest.mark.parametrize("case", load("headers")["attempts"], ids=name_of)
def test_an_attempt_carries_these_headers_and_is_read_back(case: dict[str, Any]) -> None:
    body, names = body_of(case), HeaderNames(case["names"])
    sender = Sender(case["signers"], names=case["names"])
    event = sender.event(
        body,
        event_id=case["event_id"],
        key=case["key"],
        line=case["line"],
        seq=_number(case["seq"]),
        after=_number(case["after"]),
    )
    told = {
        "event_type": case["event_type"],
        "event_time": _time(case["event_unix_ms"]),
        "schema_version": case["schema_version"],
        "is_thin": case["thin"],
    }
    event = replace(event, **told)
    request = sender.request(event, case["attempt"], int(case["timestamp"]), replay=case["replay"])
    assert [list(pair) for pair in request.headers] == case["headers"]
    delivery = read_delivery(names, IncomingHeaders(request.headers), body)
    for field in ("event_id", "key", "line", "attempt", "replay"):
        assert getattr(delivery, field) == case[field]
    assert (delivery.seq, delivery.after) == (_number(case["seq"]), _number(case["after"]))
    assert delivery.timestamp == int(case["timestamp"])
    assert {name: getattr(delivery, name) for name in told} == told


def _time(unix_ms: int) -> datetime | None:
    """An instant; None beyond the year 9999, which has no form."""
    try:
        return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=unix_ms)
    except OverflowError:
        return None


@pytest.mark.parametrize("case", load("headers")["event_times"], ids=lambda case: case["value"])
def test_the_time_of_an_event_is_read_as_the_vectors_say(case: dict[str, Any]) -> None:
    read = parse_event_time("X-Event-Time", case["value"]) - datetime(1970, 1, 1, tzinfo=timezone.utc)
    assert read // timedelta(milliseconds=1) == case["unix_ms"]


def _number(value: Any) -> int | None:
    return None if value is None else int(value)


@pytest.mark.parametrize("case", load("headers")["refused"], ids=name_of)
def test_headers_that_cannot_be_read_are_refused_by_name(case: dict[str, Any]) -> None:
    with pytest.raises(OUTCOMES[case["outcome"]]) as caught:
        read_delivery(HeaderNames(), IncomingHeaders(case["headers"]), b"")
    assert caught.value.header == case["header"]
    assert caught.value.answer.status == 400


@pytest.mark.parametrize("case", load("headers")["names"], ids=lambda case: str(case["renamed"])[:60])
def test_headers_may_be_renamed_within_the_rules(case: dict[str, Any]) -> None:
    if case["accepted"]:
        for header, name in case["renamed"].items():
            assert HeaderNames(case["renamed"]).name(header) == name
        return
    with pytest.raises(BadHeaderName) as caught:
        HeaderNames(case["renamed"])
    assert caught.value.header == case["header"]


def test_keys_are_written_and_read_as_the_vectors_say() -> None:
    keys = load("keys")
    for case in keys["encoded"]:
        assert encode_key(case["key"]) == case["header"]
    for case in keys["encoded"] + keys["decoded"]:
        assert parse_key("X-Key", case["header"]) == case["key"]


@pytest.mark.parametrize("case", load("keys")["refused"], ids=name_of)
def test_a_header_that_means_no_key_is_refused(case: dict[str, Any]) -> None:
    with pytest.raises(Rejection):
        parse_key("X-Key", body_of(case, "header").decode("latin-1"))


def test_secrets_and_keys_are_read_as_the_vectors_say() -> None:
    secrets = load("secrets")
    for case in secrets["secrets"]:
        assert Secret(case["text"]).key.hex() == case["bytes"]
        assert case["text"] not in repr(Secret(case["text"]))
    for case in secrets["signing_keys"]:
        key = SigningKey(case["text"])
        assert (key.canonical, key.public) == (case["canonical"], case["public"])
        assert repr(VerifyingKey(case["public"])) == f"VerifyingKey({case['public']!r})"


@pytest.mark.parametrize("case", load("secrets")["refused"], ids=name_of)
def test_a_text_that_is_no_secret_is_refused_without_showing_it(case: dict[str, Any]) -> None:
    kinds = {"secret": Secret, "signing_key": SigningKey, "verifying_key": VerifyingKey}
    with pytest.raises(BadSecret) as caught:
        kinds[case["kind"]](case["text"])
    behind = case["text"].partition("_")[2]
    assert not behind or behind not in str(caught.value)


def test_ids_of_events_and_lines_and_seqs_are_those_of_the_vectors() -> None:
    parse = {"event": parse_event_id, "line": parse_line}
    for case in load("ids")["chosen"]:
        if case["kind"] in parse:
            assert parse[case["kind"]]("header", case["text"]) == case["text"]
    for case in load("ids")["refused"]:
        if case["kind"] in parse:
            with pytest.raises(Malformed):
                parse[case["kind"]]("header", case["text"])
    for case in load("ids")["seqs"]:
        if case["accepted"]:
            assert parse_seq("X-Seq", case["number"]) == int(case["number"])
        else:
            with pytest.raises(Malformed):
                parse_seq("X-Seq", case["number"])
