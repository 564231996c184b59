"""The envelope `event`: id, type, time, schema version, key and payload in one JSON object."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from .rejection import Unreadable, shown
from .secrets import decode_base64


@dataclass(frozen=True)
class EventBody:
    """What an `event` envelope holds."""

    id: str
    type: str
    #: When it happened, by RFC 3339.
    created_at: str | None = None
    #: The version of its type's schema, if it has one.
    version: int | None = None
    key: str | None = None
    #: `none`, `json` or `binary`.
    data_kind: str = "none"
    #: Its payload: a value of JSON, bytes, or None.
    data: Any = None


_MEMBERS = {"id": str, "type": str, "created_at": str, "version": int, "key": str, "data_base64": str}
_REQUIRED = ("id", "type")


def read_event(body: bytes) -> EventBody:
    """Reads an `event` envelope."""
    try:
        members = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"no event envelope: {error}") from error
    if not isinstance(members, dict):
        raise Unreadable("no event envelope: expected a JSON object")
    for name, kind in _MEMBERS.items():
        value = members.get(name)
        absent = value is None and name not in _REQUIRED
        if not absent and (isinstance(value, bool) or not isinstance(value, kind)):
            raise Unreadable(f"no event envelope: {name}: unexpected value `{shown(str(value))}`")
    known: dict[str, Any] = {name: members.get(name) for name in _MEMBERS if name != "data_base64"}
    return EventBody(**known, **_data(members))


def _data(members: dict[str, Any]) -> dict[str, Any]:
    encoded = members.get("data_base64")
    if encoded is None:
        return {"data_kind": "json", "data": members["data"]} if "data" in members else {}
    if "data" in members:
        raise Unreadable("no event envelope: both `data` and `data_base64`")
    data = decode_base64(encoded)
    if data is None:
        raise Unreadable("no event envelope: data_base64: expected base64")
    return {"data_kind": "binary", "data": data}
