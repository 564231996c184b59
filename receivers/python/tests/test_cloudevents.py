"""CloudEvents and thin events: `vectors/cloudevents.json` and `vectors/envelopes.json`."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from vectors import body_of, load

from railpost import Delivery, Unreadable
from railpost.cloudevents import (
    BadCloudEvent,
    CloudEvent,
    Thin,
    hashed_id,
    is_json,
    mode_of,
    read_binary,
    read_structured,
)

CASES = load("cloudevents")
NAMED = ("id", "source", "type", "subject", "time", "datacontenttype", "dataschema")


def attributes_of(event: CloudEvent) -> dict[str, Any]:
    named = {name: getattr(event, name) for name in NAMED}
    return {
        "specversion": "1.0",
        **{name: value for name, value in named.items() if value is not None},
        **event.extensions,
    }


def check_data(event: CloudEvent, data: dict[str, Any]) -> None:
    assert event.data_kind == data["kind"]
    if data["kind"] == "json":
        assert event.data == json.loads(data["text"])
    elif data["kind"] == "text":
        assert event.data == data["text"]
    elif data["kind"] == "binary":
        encoded = data.get("bytes_base64", data.get("base64", data.get("text_base64")))
        assert event.data == (base64.b64decode(encoded) if encoded is not None else data["text"].encode())


@pytest.mark.parametrize("case", CASES["modes"], ids=lambda case: case["content_type"])
def test_a_content_type_announces_a_mode(case: dict[str, Any]) -> None:
    assert mode_of(case["content_type"]) == case["mode"]


@pytest.mark.parametrize("case", CASES["structured"], ids=lambda case: case["name"])
def test_a_structured_event_is_read(case: dict[str, Any]) -> None:
    event = read_structured(body_of(case))
    assert attributes_of(event) == case["attributes"]
    check_data(event, case["data"])


@pytest.mark.parametrize("case", CASES["structured_refused"], ids=lambda case: case["name"])
def test_what_is_no_structured_event_is_refused_by_attribute(case: dict[str, Any]) -> None:
    with pytest.raises(BadCloudEvent) as caught:
        read_structured(body_of(case))
    assert caught.value.attribute == case["attribute"]


@pytest.mark.parametrize("case", CASES["binary"], ids=lambda case: case["name"])
def test_a_binary_event_is_read(case: dict[str, Any]) -> None:
    event = read_binary(case["headers"].items(), body_of(case))
    assert attributes_of(event) == case["attributes"]
    check_data(event, case["data"])


@pytest.mark.parametrize("case", CASES["binary_refused"], ids=lambda case: case["name"])
def test_what_is_no_binary_event_is_refused_by_attribute(case: dict[str, Any]) -> None:
    headers = case["headers"] if isinstance(case["headers"], list) else case["headers"].items()
    with pytest.raises(BadCloudEvent) as caught:
        read_binary(headers, b"")
    assert caught.value.attribute == case["attribute"]


@pytest.mark.parametrize("case", load("envelopes")["cases"], ids=lambda case: case["name"])
def test_every_envelope_is_read_back(case: dict[str, Any]) -> None:
    told = case["event"]

    def delivered(envelope: str) -> Delivery:
        wrapped = case["envelopes"][envelope]
        headers = tuple((name, value) for name, value in wrapped["headers"])
        return Delivery(told["id"], 0, body_of(wrapped), headers=headers)

    for envelope in ("cloudevents-structured", "cloudevents-binary"):
        event = delivered(envelope).cloud_event()
        origin = told.get("cloudevent", {})
        identity = (origin.get("id", told["id"]), origin.get("source", told["source"]))
        assert (event.id, event.source, event.type) == (*identity, told["type"])
        extensions = dict(origin.get("extensions", {}))
        if told["schema_version"] is not None:
            extensions.setdefault("schemaversion", str(told["schema_version"]))
        if envelope == "cloudevents-binary":
            extensions = {name: as_text(value) for name, value in extensions.items()}
        assert (event.extensions, event.dataschema) == (extensions, origin.get("dataschema"))
        # A partition key is the key instead of the subject; a key with control characters is no subject.
        subject = origin.get("subject") if "partitionkey" in extensions else told["key"]
        assert event.subject == (subject if (subject or "").isprintable() else None)
        assert event.data_kind != "none" or not body_of(told, "payload")
    wrapped = delivered("event").event()
    assert (wrapped.id, wrapped.type, wrapped.key) == (told["id"], told["type"], told["key"])
    assert wrapped.version == told["schema_version"]
    if wrapped.data_kind == "binary":
        assert wrapped.data == body_of(told, "payload")
    elif wrapped.data_kind == "json":
        assert wrapped.data == json.loads(body_of(told, "payload"))
    else:
        assert told["cloudevent"]["no_data"]
    assert delivered("thin").thin() == Thin(told["id"], told["type"], told["url"], told["key"])


def as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.parametrize("case", CASES["event_ids"], ids=lambda case: case["event_id"])
def test_the_id_of_an_event_is_made_of_source_and_id(case: dict[str, Any]) -> None:
    assert hashed_id(case["source"], case["id"]) == case["event_id"]


def test_a_reference_is_not_read_as_the_payload_and_is_whole_once_it_is_fetched() -> None:
    body = b'{"id": "1", "type": "t", "url": "https://a.example/x"}'
    delivery = Delivery("1", 0, body, is_thin=True)
    assert delivery.thin().url_at("https://a.example") == "https://a.example/x"
    for read in (delivery.json, delivery.cloud_event, delivery.event):
        with pytest.raises(Unreadable, match="a reference to the event"):
            read()
    assert delivery.with_payload(b"[1]", "application/json").json() == [1]


@pytest.mark.parametrize(
    "body",
    [
        "[]",
        '{"type": "a", "data": 1}',
        '{"id": "1", "data": 1}',
        '{"id": "1", "type": "a", "version": "3", "data": 1}',
        '{"id": "1", "type": "a", "version": true, "data": 1}',
        '{"id": "1", "type": "a", "data": 1, "data_base64": ""}',
        '{"id": "1", "type": "a", "data_base64": "%"}',
        '{"id": "2", "type": "a", "data": 1}',
        "{",
    ],
)
def test_what_is_no_event_envelope_is_refused(body: str) -> None:
    with pytest.raises(Unreadable):
        Delivery("1", 0, body.encode()).event()


def test_a_body_with_another_id_than_the_signed_one_is_unreadable() -> None:
    body = b'{"specversion":"1.0","id":"2","source":"/s","type":"t"}'
    headers = (("content-type", "application/cloudevents+json"),)
    with pytest.raises(Unreadable, match="another event id"):
        Delivery("1", 0, body, headers=headers).cloud_event()
    with pytest.raises(Unreadable, match="another event id"):
        Delivery("1", 0, b'{"id": "2", "type": "t", "url": "https://a.example/x"}').thin()
    for content_type in ("application/cloudevents-batch+json", "application/cloudevents+avro"):
        with pytest.raises(Unreadable, match="expected one CloudEvent"):
            Delivery("1", 0, b"[]", headers=(("content-type", content_type),)).cloud_event()


def test_an_event_that_was_published_as_a_cloudevent_is_known_by_source_and_id() -> None:
    signed = "ce_cee1e2e6e41ad231d7c5e299a68fb49a87a783dd9008507f"
    assert hashed_id("/shop", "order-1") == signed
    headers = (("content-type", "application/cloudevents+json"),)
    body = b'{"specversion":"1.0","id":"order-1","source":"%s","type":"t"}'
    assert Delivery(signed, 0, body % b"/shop", headers=headers).cloud_event().id == "order-1"
    with pytest.raises(Unreadable, match="another event id"):
        Delivery(signed, 0, body % b"/other", headers=headers).cloud_event()


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b'{"id": "1"}', b'{"id": 1, "type": "t", "url": "u"}'])
def test_what_is_no_thin_event_is_unreadable(body: bytes) -> None:
    with pytest.raises(Unreadable, match="no thin event"):
        Delivery("1", 0, body).thin()


def test_credentials_go_to_the_named_origin_alone() -> None:
    thin = Thin("1", "t", "https://railpost.example/v1/thin/x")
    assert thin.url_at("https://railpost.example/") == thin.url
    for origin in ("https://railpost.example.evil.example", "https://railpost", "http://railpost.example"):
        with pytest.raises(Unreadable, match="is not one of"):
            thin.url_at(origin)


def test_content_types_declare_json_as_the_vectors_say() -> None:
    for case in load("names")["content_types"]:
        if case["accepted"]:
            assert is_json(case["text"]) == case["json"], case["text"]
