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
        headers = tuple((name, value) for name, value in case[envelope]["headers"])
        return Delivery(told["id"], 0, body_of(case[envelope]), headers=headers)

    for envelope in ("cloudevents-structured", "cloudevents-binary"):
        event = delivered(envelope).cloud_event()
        assert (event.id, event.type, event.source) == (told["id"], told["type"], told["source"])
        # A key with control characters is no subject.
        assert event.subject == (told["key"] if (told["key"] or "").isprintable() else None)
        if told["schema_version"] is not None:
            assert event.extensions["schemaversion"] == str(told["schema_version"])
    assert delivered("thin").thin() == Thin(told["id"], told["type"], told["url"], told["key"])


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
