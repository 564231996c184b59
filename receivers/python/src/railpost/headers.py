"""The names of the headers, how an endpoint may change them, and how their values are read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any, Union
from urllib.parse import unquote_to_bytes

from .limits import EVENT_TYPE_LEN_MAX, HEADER_NAME_LEN_MAX, ID_LEN_MAX, KEY_LEN_MAX, LINE_LEN_MAX, SEQ_MAX, U32_MAX
from .rejection import Malformed, MissingHeader

#: Headers as frameworks hand them out: a mapping, or pairs of names and values.
HeadersLike = Union[Mapping[str, str], Iterable[tuple[Union[str, bytes], Union[str, bytes]]]]

#: The default names, in the order in which they are sent.
DEFAULT_NAMES: dict[str, str] = {
    "webhook_id": "webhook-id",
    "webhook_timestamp": "webhook-timestamp",
    "webhook_signature": "webhook-signature",
    "x_webhook_signature": "X-Webhook-Signature",
    "idempotency_key": "Idempotency-Key",
    "x_event_type": "X-Event-Type",
    "x_event_time": "X-Event-Time",
    "x_schema_version": "X-Schema-Version",
    "x_key": "X-Key",
    "x_lane": "X-Lane",
    "x_seq": "X-Seq",
    "x_after": "X-After",
    "x_attempt": "X-Attempt",
    "x_replay": "X-Replay",
    "x_thin": "X-Thin",
}

_RESERVED = frozenset(
    (
        *("authorization", "connection", "content-encoding", "content-length", "content-type", "cookie", "date"),
        *("expect", "forwarded", "host", "keep-alive", "te", "traceparent", "tracestate", "trailer"),
        *("transfer-encoding", "upgrade", "user-agent", "via"),
    )
)
_RESERVED_PREFIXES = ("proxy-", "ce-")
_TOKEN = re.compile(rf"[A-Za-z0-9!#$%&'*+.^_`|~-]{{1,{HEADER_NAME_LEN_MAX}}}")


class BadHeaderName(ValueError):
    """A name that a header cannot have."""

    def __init__(self, header: str, expected: str, got: str) -> None:
        super().__init__(f"name of `{header}`: expected {expected}; got `{got[:HEADER_NAME_LEN_MAX]}`")
        self.header = header


class HeaderNames:
    """The names that an endpoint gives the headers: `HeaderNames({"x_key": "X-Order"})`."""

    __slots__ = ("_names", "_lower")

    def __init__(self, renamed: Mapping[str, str] | None = None) -> None:
        for header, name in (renamed or {}).items():
            _check_name(header, name)
        self._names = {**DEFAULT_NAMES, **(renamed or {})}
        self._lower = {header: name.lower() for header, name in self._names.items()}
        seen: set[str] = set()
        for header, lower in self._lower.items():
            if lower in seen:
                raise BadHeaderName(header, "a name that no other header has", self._names[header])
            seen.add(lower)

    def name(self, header: str) -> str:
        """The name of a header, such as `x_key`, as it is written."""
        return self._names[header]

    def lower(self, header: str) -> str:
        """The name of a header as it is looked up."""
        return self._lower[header]


def _check_name(header: str, name: str) -> None:
    if header not in DEFAULT_NAMES:
        raise BadHeaderName(header, f"one of {', '.join(DEFAULT_NAMES)}", header)
    if not _TOKEN.fullmatch(name):
        raise BadHeaderName(header, "a header name of 1 to 64 letters, digits, `-` and the like", name)
    lower = name.lower()
    if lower in _RESERVED or lower.startswith(_RESERVED_PREFIXES):
        raise BadHeaderName(header, "a header name that the request does not need itself", name)


class IncomingHeaders:
    """The headers of one request, by lower-case name. Of several with one name, the first counts."""

    __slots__ = ("values",)

    def __init__(self, headers: HeadersLike) -> None:
        items: Any = getattr(headers, "items", None)
        values: dict[str, str] = {}
        pairs: Any = items() if callable(items) else headers
        for name, value in pairs:
            if not isinstance(name, str):
                name = name.decode("latin-1")
            if not isinstance(value, str):
                value = _text_of(name, value)
            values.setdefault(name.lower(), value)
        self.values = values

    def require(self, names: HeaderNames, header: str) -> str:
        """The value of a header that must be there."""
        value = self.values.get(names.lower(header))
        if value is None:
            raise MissingHeader(names.name(header))
        return value


def _text_of(name: str, value: object) -> str:
    if isinstance(value, (bytes, bytearray)):
        return value.decode("latin-1")
    raise TypeError(f"header `{name}`: expected its value as str or bytes; got {type(value).__name__}")


_EVENT_ID = re.compile(rf"[A-Za-z0-9_:-]{{1,{ID_LEN_MAX}}}")
_LINE = re.compile(rf"[!-~]{{1,{LINE_LEN_MAX}}}")
_EVENT_TYPE = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_OTHER_TYPE = re.compile(rf"[!-~]{{1,{EVENT_TYPE_LEN_MAX}}}")
_KEY = re.compile(r"(?:[!#$&-~]|%[0-9a-fA-F]{2})+")
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII)
_I64_MAX = 2**63 - 1


def parse_event_id(name: str, value: str) -> str:
    if not _EVENT_ID.fullmatch(value):
        raise Malformed(name, "an event id of 1 to 64 ASCII letters, digits, `_`, `-` and `:`", value)
    return value


def parse_timestamp(name: str, value: str) -> int:
    return _digits(name, value, "a timestamp in seconds since 1970, in digits", 0, _I64_MAX)


def parse_key(name: str, value: str) -> str:
    """A key: visible ASCII stands for itself, every other byte of its UTF-8 is `%XX`."""
    if _KEY.fullmatch(value):
        decoded = unquote_to_bytes(value)
        if len(decoded) <= KEY_LEN_MAX:
            try:
                return decoded.decode()
            except UnicodeDecodeError:
                pass
    raise Malformed(name, "a key of 1 to 256 bytes of UTF-8, percent-encoded", value)


def encode_key(key: str) -> str:
    """A key as it stands in its header."""
    return "".join(chr(b) if 0x21 <= b <= 0x7E and b not in b'%"' else f"%{b:02X}" for b in key.encode())


def parse_line(name: str, value: str) -> str:
    if not _LINE.fullmatch(value):
        raise Malformed(name, "the id of a line: 1 to 64 visible ASCII characters", value)
    return value


def parse_seq(name: str, value: str) -> int:
    return _digits(name, value, "a seq from 1 to 9223372036854775807", 1, SEQ_MAX)


def parse_after(name: str, value: str) -> int:
    return _digits(name, value, "a seq, or 0", 0, SEQ_MAX)


def parse_attempt(name: str, value: str) -> int:
    return _digits(name, value, "an attempt's number from 1", 1, U32_MAX)


def parse_truth(name: str, value: str) -> bool:
    if value not in ("true", "false"):
        raise Malformed(name, "`true` or `false`", value)
    return value == "true"


def parse_event_type(name: str, value: str) -> str:
    if len(value) > EVENT_TYPE_LEN_MAX or not _EVENT_TYPE.fullmatch(value):
        raise Malformed(name, "an event type of 1 to 128 characters such as `order.paid`", value)
    return value


def parse_other_type(name: str, value: str) -> str:
    """An event type of another sender."""
    if not _OTHER_TYPE.fullmatch(value):
        raise Malformed(name, "an event type: 1 to 128 visible ASCII characters", value)
    return value


def parse_event_time(name: str, value: str) -> datetime:
    found = _TIME.fullmatch(value)
    try:
        if found is None:
            raise ValueError(value)
        whole, fraction, sign, hours, minutes = found.groups()
        time = datetime.fromisoformat(whole) + timedelta(microseconds=int(((fraction or "") + "000000")[:6]))
        offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
        time = time + offset if sign == "-" else time - offset
    except (ValueError, OverflowError):
        raise Malformed(name, "a time of RFC 3339, such as 2026-01-01T00:00:00Z", value) from None
    return time.replace(tzinfo=timezone.utc)


def format_time(time: datetime) -> str:
    """A time in UTC to the millisecond, as it stands in its header: no zeros at the end of the fraction."""
    utc = time.astimezone(timezone.utc)
    fraction = f"{utc.microsecond // 1000:03}".rstrip("0")
    return f"{utc:%Y-%m-%dT%H:%M:%S}" + (f".{fraction}" if fraction else "") + "Z"


def parse_schema_version(name: str, value: str) -> int:
    return _digits(name, value, "a schema version: a whole number of 32 bits", 0, U32_MAX)


def _digits(name: str, value: str, expected: str, least: int, most: int) -> int:
    # Python reads texts of any length, so that length is bounded first.
    if value.isascii() and value.isdigit() and len(value) <= 64:
        number = int(value)
        if least <= number <= most:
            return number
    raise Malformed(name, expected, value)
