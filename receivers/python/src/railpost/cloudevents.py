"""CloudEvents 1.0, structured and binary, and thin events: what a delivery's body holds if its endpoint says so."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Union
from urllib.parse import unquote_to_bytes

from .headers import parse_event_time
from .limits import ATTRIBUTE_LEN_MAX, ATTRIBUTE_NAME_LEN_MAX, CONTENT_TYPE_LEN_MAX, EXTENSIONS_MAX
from .rejection import Malformed, Unreadable, shown
from .secrets import decode_base64

__all__ = ["BadCloudEvent", "CloudEvent", "Thin", "hashed_id", "mode_of", "read_binary", "read_structured", "read_thin"]

Value = Union[str, int, bool]

_JSON = "application/json"
_NAME = re.compile(rf"[a-z0-9]{{1,{ATTRIBUTE_NAME_LEN_MAX}}}")
_TOKEN = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
_CONTENT_TYPE = re.compile(rf"{_TOKEN}/{_TOKEN} *(;[ -~]*)?")
_URI_CHARACTERS = re.compile(r"(?:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
# Control characters, noncharacters, and halves of surrogate pairs.
_NOT_A_STRING = re.compile(
    "[\\x00-\\x1f\\x7f-\\x9f\\ud800-\\udfff\\ufdd0-\\ufdef"
    + "".join(f"{chr(plane * 0x10000 + 0xFFFE)}{chr(plane * 0x10000 + 0xFFFF)}" for plane in range(17))
    + "]"
)


class BadCloudEvent(Unreadable):
    """Something is not a CloudEvent, because of this attribute."""

    def __init__(self, attribute: str, expected: str, got: object) -> None:
        super().__init__(f"no CloudEvent: {attribute}: expected {expected}; got `{shown(str(got))}`")
        self.attribute = attribute


@dataclass(frozen=True)
class CloudEvent:
    """An event in the words of the standard. `source` and `id` together identify it."""

    id: str
    source: str
    type: str
    #: What it happened to, within the source: the natural key.
    subject: str | None = None
    #: When it happened, by RFC 3339.
    time: str | None = None
    #: The media type of the data. Absent in structured mode, it means JSON.
    datacontenttype: str | None = None
    dataschema: str | None = None
    #: Further attributes. Binary mode has text alone.
    extensions: dict[str, Value] = field(default_factory=dict)
    #: `none`, `json`, `text` or `binary`.
    data_kind: str = "none"
    #: What it tells: a value of JSON, a text, bytes, or None.
    data: Any = None


@dataclass(frozen=True)
class Thin:
    """A thin event: what happened to what, and where the rest is."""

    id: str
    type: str
    url: str
    key: str | None = None

    def url_at(self, origin: str) -> str:
        """The URL, if it is one of this origin, such as `https://railpost.example`.

        Fetch it with your own credentials: they must never go to another host.
        """
        if not self.url.startswith(origin.rstrip("/") + "/"):
            raise Unreadable(f"the event's URL is not one of {origin}")
        return self.url


def hashed_id(source: str, event_id: str) -> str:
    """The event id of a CloudEvent that was published to Railpost as one."""
    # With its length, so that no other source and id make the same bytes.
    first = source.encode("utf-8", "surrogatepass")
    message = len(first).to_bytes(8, "big") + first + event_id.encode("utf-8", "surrogatepass")
    return "ce_" + hashlib.sha256(message).digest()[:24].hex()


def mode_of(content_type: str) -> str | None:
    """`structured`, `batched` or `binary`; None for a format that is not JSON."""
    essence = content_type.partition(";")[0].strip(" \t").lower()
    if essence == "application/cloudevents+json":
        return "structured"
    if essence == "application/cloudevents-batch+json":
        return "batched"
    return None if essence.startswith("application/cloudevents") else "binary"


def read_structured(body: bytes) -> CloudEvent:
    """Reads an event in structured mode."""
    attributes: dict[str, Value] = {}
    data: list[Any] = []
    encoded: list[Any] = []
    for name, value in _members(body):
        if name == "data":
            data.append(value)
        elif name == "data_base64":
            encoded.append(value)
        else:
            _check_name(name)
            if value is not None:
                _add(attributes, name, _attribute(name, value))
    for members, name in ((data, "data"), (encoded, "data_base64")):
        if len(members) > 1:
            raise BadCloudEvent("attribute name", "a name that came only once", name)
    return _event(attributes, *_structured_data(attributes, data, [one for one in encoded if one is not None]))


def read_binary(headers: Iterable[tuple[str, str]], body: bytes) -> CloudEvent:
    """Reads an event in binary mode: the attributes are `ce-` headers, the data is the body."""
    attributes: dict[str, Value] = {}
    for header, value in headers:
        lower = header.lower()
        if lower == "content-type":
            _add(attributes, "datacontenttype", value)
        elif lower == "ce-datacontenttype":
            raise BadCloudEvent("datacontenttype", "`Content-Type` to say it, in binary mode", header)
        elif lower.startswith("ce-"):
            _check_name(lower[3:])
            _add(attributes, lower[3:], _decode_header(lower[3:], value))
    return _event(attributes, *_binary_data(str(attributes.get("datacontenttype", "")), body))


def read_thin(body: bytes) -> Thin:
    """Reads a thin event."""
    try:
        members = json.loads(body)
        texts = {name: members[name] for name in ("id", "type", "url")}
        texts["key"] = members.get("key")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Unreadable(f"no thin event: expected a JSON object with `id`, `type` and `url`: {error}") from error
    for name, text in texts.items():
        if not isinstance(text, str) and not (name == "key" and text is None):
            raise Unreadable(f"no thin event: {name}: expected a string; got `{shown(str(text))}`")
    return Thin(**texts)


class _Pairs(list[tuple[str, Any]]):
    """The members of a JSON object in their order, duplicates and all."""


def _members(body: bytes) -> _Pairs:
    try:
        members = json.loads(body.decode(), object_pairs_hook=_Pairs, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        members = None
    most = EXTENSIONS_MAX + 10
    if not isinstance(members, _Pairs) or len(members) > most:
        raise BadCloudEvent("body", f"a JSON object of at most {most} members", body[:200].decode("utf-8", "replace"))
    return members


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _plain(value: Any) -> Any:
    """A value of JSON as Python has it."""
    if isinstance(value, _Pairs):
        return {name: _plain(member) for name, member in value}
    return [_plain(member) for member in value] if isinstance(value, list) else value


def _attribute(name: str, value: Any) -> Value:
    if isinstance(value, (bool, str)) or (isinstance(value, int) and -(2**31) <= value < 2**31):
        return value
    raise BadCloudEvent(name, "a string, a whole number of 32 bits, or true or false", value)


def _add(attributes: dict[str, Value], name: str, value: Value) -> None:
    # Readers would differ on which of two counts.
    if name in attributes:
        raise BadCloudEvent("attribute name", "a name that came only once", name)
    attributes[name] = value


def _structured_data(attributes: dict[str, Value], data: Sequence[Any], encoded: Sequence[Any]) -> tuple[str, Any]:
    if data and encoded:
        raise BadCloudEvent("data_base64", "either `data` or `data_base64`, not both", encoded[0])
    if encoded:
        decoded = decode_base64(encoded[0]) if isinstance(encoded[0], str) and encoded[0].isascii() else None
        if decoded is None:
            raise BadCloudEvent("data_base64", "a string of base64", encoded[0])
        return "binary", decoded
    if not data:
        return "none", None
    if is_json(str(attributes.get("datacontenttype", _JSON))):
        return "json", _plain(data[0])
    if not isinstance(data[0], str):
        raise BadCloudEvent("data", "a string, because its content type is not JSON", data[0])
    return "text", data[0]


def _binary_data(content_type: str, body: bytes) -> tuple[str, Any]:
    if is_json(content_type):
        try:
            return "json", json.loads(body.decode(), parse_constant=_no_constant)
        except (ValueError, RecursionError):
            pass
    return ("binary", body) if body else ("none", None)


def is_json(content_type: str) -> bool:
    """Whether a content type declares JSON: its subtype is `json` or ends in `+json`."""
    subtype = content_type.partition(";")[0].strip(" \t").partition("/")[2].lower()
    return subtype == "json" or subtype.endswith("+json")


def _decode_header(name: str, value: str) -> str:
    """Quotes of older senders are taken off, then escapes are undone."""
    unquoted = _unquote(name, value)
    whole = re.fullmatch(r"(?:[ !-$&-~]|%[0-9A-Fa-f]{2})*", unquoted)
    try:
        if whole:
            return unquote_to_bytes(unquoted).decode()
    except UnicodeDecodeError:
        pass
    raise BadCloudEvent(name, "percent-encoded UTF-8 in visible ASCII", value)


def _unquote(name: str, value: str) -> str:
    if not value.startswith('"'):
        return value
    quoted = re.fullmatch(r'"((?:[^"\\]|\\.)*)"', value, flags=re.DOTALL)
    if not quoted:
        raise BadCloudEvent(name, "a quoted string with its end", value)
    return re.sub(r"\\(.)", r"\1", quoted[1], flags=re.DOTALL)


def _event(attributes: dict[str, Value], data_kind: str, data: Any) -> CloudEvent:
    named = {name: _named(attributes, name, required=True) for name in ("specversion", "id", "source", "type")}
    for name in ("subject", "time", "datacontenttype", "dataschema"):
        named[name] = _named(attributes, name, required=False)
    for name, value in attributes.items():
        _check_extension(name, value)
    if len(attributes) > EXTENSIONS_MAX:
        raise BadCloudEvent("extensions", f"at most {EXTENSIONS_MAX} of them", len(attributes))
    del named["specversion"]
    known: dict[str, Any] = named
    return CloudEvent(**known, extensions=attributes, data_kind=data_kind, data=data)


def _named(attributes: dict[str, Value], name: str, required: bool) -> str | None:
    """Takes an attribute that the standard names out of the others, and checks it."""
    value = attributes.pop(name, None)
    if value is None:
        if required:
            raise BadCloudEvent(name, "a value, because it is required", "nothing")
        return None
    if not isinstance(value, str):
        raise BadCloudEvent(name, "a string", value)
    expected, holds = _RULES[name]
    if len(value.encode("utf-8", "surrogatepass")) > ATTRIBUTE_LEN_MAX or not holds(value):
        raise BadCloudEvent(name, expected, value)
    return value


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise BadCloudEvent("attribute name", "an attribute name of 1 to 64 lowercase letters and digits", name)


def _check_extension(name: str, value: Value) -> None:
    if name == "data":
        raise BadCloudEvent("attribute name", "an extension name that the standard does not use", name)
    if isinstance(value, str) and (
        len(value.encode("utf-8", "surrogatepass")) > ATTRIBUTE_LEN_MAX or not _is_string(value)
    ):
        raise BadCloudEvent(name, f"at most {ATTRIBUTE_LEN_MAX} bytes of text without control characters", value)


def _is_string(text: str) -> bool:
    return not _NOT_A_STRING.search(text)


def _is_time(text: str) -> bool:
    try:
        parse_event_time("time", text.upper())
    except Malformed:
        return False
    return True


def _is_content_type(text: str) -> bool:
    return len(text) <= CONTENT_TYPE_LEN_MAX and _CONTENT_TYPE.fullmatch(text) is not None


def _is_uri_reference(text: str) -> bool:
    """RFC 3986 as far as characters and delimiters go."""
    hierarchy, _, fragment = text.partition("#")
    first_segment = hierarchy.partition("?")[0].partition("/")[0]
    scheme = _SCHEME.match(text)
    if not _URI_CHARACTERS.fullmatch(text) or "#" in fragment or (":" in first_segment and not scheme):
        return False
    rest = text[scheme.end() :] if scheme else text
    if rest.startswith("//"):
        # Brackets may stand around a host alone.
        rest = re.sub(r"^//[^/?#]*", "", rest)
    return not re.search(r"[\[\]]", rest)


_TEXT = (
    f"1 to {ATTRIBUTE_LEN_MAX} bytes of text without control characters",
    lambda text: bool(text) and _is_string(text),
)
_RULES: dict[str, Any] = {
    "specversion": ("`1.0`", lambda text: text == "1.0"),
    "id": _TEXT,
    "type": _TEXT,
    "subject": _TEXT,
    "source": (
        f"a URI reference of 1 to {ATTRIBUTE_LEN_MAX} bytes",
        lambda text: bool(text) and _is_uri_reference(text),
    ),
    "time": ("a time of RFC 3339 such as `2026-01-31T12:00:00Z`", _is_time),
    "datacontenttype": (
        f"a media type of at most {CONTENT_TYPE_LEN_MAX} visible ASCII characters such as `application/json`",
        _is_content_type,
    ),
    "dataschema": (
        f"an absolute URI of at most {ATTRIBUTE_LEN_MAX} bytes",
        lambda text: _SCHEME.match(text) is not None and _is_uri_reference(text),
    ),
}
