"""How senders sign. Each profile turns headers and body into a delivery, or says why not."""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from .delivery import Delivery, kept_headers, read_delivery, read_order
from .headers import HeaderNames, IncomingHeaders, parse_event_id, parse_other_type, parse_timestamp
from .limits import FOREIGN_ID_LEN_MAX, SIGNATURES_MAX
from .rejection import Malformed, MissingHeader, NoMatch, TimestampFuture, TimestampStale, Unreadable, Unsigned
from .secrets import Secret, VerifyingKey, decode_base64, tag

_SPACE = " \t\r\n\f"
_HEX = re.compile(r"[0-9a-fA-F]+")
_FOREIGN_ID = re.compile(rf"[!-~]{{1,{FOREIGN_ID_LEN_MAX}}}")


class Profile(Protocol):
    """A way of signing."""

    def read(self, headers: IncomingHeaders, body: bytes, now: int) -> Delivery:
        """The delivery, if it is authentic and recent; otherwise a `Rejection` is raised."""


class StandardProfile:
    """Standard Webhooks, `webhook-signature` over id, timestamp and body.

    With `timestamped`, `X-Webhook-Signature: t=…,v1=…` counts too where the first is absent. It does not cover
    the event id: a captured request can be sent again under another id until its timestamp is too old.
    """

    def __init__(
        self,
        secrets: Sequence[Secret],
        keys: Sequence[VerifyingKey],
        tolerance: int,
        names: HeaderNames,
        timestamped: bool,
    ) -> None:
        self._secrets, self._keys, self._tolerance = tuple(secrets), tuple(keys), tolerance
        self._names, self._timestamped = names, timestamped

    def read(self, headers: IncomingHeaders, body: bytes, now: int) -> Delivery:
        names = self._names
        signature = headers.values.get(names.lower("webhook_signature"))
        if signature is not None:
            self._check_standard(headers, signature, body, now)
            return read_delivery(names, headers, body)
        signature = headers.values.get(names.lower("x_webhook_signature"))
        if signature is None or not self._timestamped:
            raise Unsigned(names.name("webhook_signature"))
        keys = [secret.text for secret in self._secrets]
        check_timestamped(names.name("x_webhook_signature"), signature, keys, body, self._tolerance, now)
        return read_delivery(names, headers, body)

    def _check_standard(self, headers: IncomingHeaders, signature: str, body: bytes, now: int) -> None:
        names = self._names
        event_id = parse_event_id(names.name("webhook_id"), headers.require(names, "webhook_id"))
        sent_at = headers.require(names, "webhook_timestamp")
        timestamp = parse_timestamp(names.name("webhook_timestamp"), sent_at)
        shared, public = _standard_entries(names.name("webhook_signature"), signature)
        check_recent(timestamp, self._tolerance, now)
        message = b"%s.%s.%s" % (event_id.encode(), sent_at.encode(), body)
        if any_tag_matches((secret.key for secret in self._secrets), shared, message):
            return
        if public and any(key.verifies(message, one) for key in self._keys for one in public):
            return
        raise NoMatch


class SvixProfile:
    """Svix: Standard Webhooks under the names `svix-id`, `svix-timestamp`, `svix-signature`, or the standard ones."""

    def __init__(self, secrets: Sequence[Secret], keys: Sequence[VerifyingKey], tolerance: int) -> None:
        svix = {f"webhook_{part}": f"svix-{part}" for part in ("id", "timestamp", "signature")}
        self._svix = StandardProfile(secrets, keys, tolerance, HeaderNames(svix), False)
        self._standard = StandardProfile(secrets, keys, tolerance, HeaderNames(), False)

    def read(self, headers: IncomingHeaders, body: bytes, now: int) -> Delivery:
        standard = "svix-signature" not in headers.values and "webhook-signature" in headers.values
        return (self._standard if standard else self._svix).read(headers, body, now)


class StripeProfile:
    """Stripe: `Stripe-Signature: t=…,v1=…` over timestamp and body, keyed by the secret's text.

    The id is the body's `id`, which is signed, and the type is its `type`. Stripe numbers nothing: events are
    only deduplicated.
    """

    _HEADER = "Stripe-Signature"

    def __init__(self, secrets: Sequence[str], tolerance: int) -> None:
        self._keys = text_keys(secrets)
        self._tolerance = tolerance

    def read(self, headers: IncomingHeaders, body: bytes, now: int) -> Delivery:
        signature = headers.values.get(self._HEADER.lower())
        if signature is None:
            raise Unsigned(self._HEADER)
        timestamp = check_timestamped(self._HEADER, signature, self._keys, body, self._tolerance, now)
        try:
            event = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise Unreadable(f"the body is not JSON: {error}") from error
        event_id = event.get("id") if isinstance(event, dict) else None
        if not isinstance(event_id, str) or not _FOREIGN_ID.fullmatch(event_id):
            raise Unreadable("the body has no `id` of 1 to 256 visible ASCII characters")
        event_type = event.get("type")
        event_type = event_type if isinstance(event_type, str) else None
        return Delivery(event_id, timestamp, body, event_type=event_type, headers=kept_headers(headers))


class HubProfile:
    """GitHub and WebSub: `method=hex`, an HMAC of the body alone, keyed by the secret's text.

    Neither id nor time is signed: a captured request can be sent again under another id. So use TLS.
    """

    def __init__(
        self,
        secrets: Sequence[str],
        *,
        signature_header: str,
        id_header: str,
        type_header: str | None,
        methods: Iterable[str],
        names: HeaderNames | None,
    ) -> None:
        self._keys, self._methods = text_keys(secrets), tuple(methods)
        self._signature_header, self._id_header, self._type_header = signature_header, id_header, type_header
        self._names = names

    def read(self, headers: IncomingHeaders, body: bytes, now: int) -> Delivery:
        signature = headers.values.get(self._signature_header.lower())
        if signature is None:
            raise Unsigned(self._signature_header)
        method, given = self._parse(signature)
        if not any_tag_matches(self._keys, [given], body, method):
            raise NoMatch
        event_id = headers.values.get(self._id_header.lower())
        if event_id is None:
            raise MissingHeader(self._id_header)
        if not _FOREIGN_ID.fullmatch(event_id):
            raise Malformed(self._id_header, "an id of 1 to 256 visible ASCII characters", event_id)
        fields = read_order(self._names, headers) if self._names else {}
        event_type = headers.values.get(self._type_header.lower()) if self._type_header else None
        if event_type is not None:
            fields["event_type"] = parse_other_type(str(self._type_header), event_type)
        return Delivery(event_id, now, body, headers=kept_headers(headers), **fields)

    def _parse(self, signature: str) -> tuple[str, bytes]:
        method, _, digits = signature.partition("=")
        lengths = {"sha1": 40, "sha256": 64, "sha384": 96, "sha512": 128}
        if method in self._methods and len(digits) == lengths[method] and _HEX.fullmatch(digits):
            return method, bytes.fromhex(digits)
        expected = f"`method=signature` in hex, with one of the methods {', '.join(self._methods)}"
        raise Malformed(self._signature_header, expected, signature)


def text_keys(secrets: Sequence[str]) -> list[bytes]:
    """Secrets that are keys as they stand."""
    if not secrets or not all(isinstance(secret, str) and secret for secret in secrets):
        raise ValueError("secrets: expected one or more texts that are not empty")
    return [secret.encode() for secret in secrets]


def check_timestamped(header: str, signature: str, keys: Iterable[bytes], body: bytes, tolerance: int, now: int) -> int:
    """Checks `t=…,v1=…`, and returns the timestamp."""
    sent_at, given = _timestamped_entries(header, signature)
    timestamp = parse_timestamp(header, sent_at)
    check_recent(timestamp, tolerance, now)
    if not any_tag_matches(keys, given, b"%s.%s" % (sent_at.encode(), body)):
        raise NoMatch
    return timestamp


def check_recent(timestamp: int, tolerance: int, now: int) -> None:
    by = abs(now - timestamp) - tolerance
    if by > 0:
        raise TimestampStale(by) if timestamp < now else TimestampFuture(by)


def any_tag_matches(keys: Iterable[bytes], given: Sequence[bytes], message: bytes, algorithm: str = "sha256") -> bool:
    """Whether one of the keys made one of the signatures. The message is hashed once for each key."""
    if not given:
        return False
    for key in keys:
        made = tag(key, message, algorithm)
        if any(hmac.compare_digest(made, one) for one in given):
            return True
    return False


def _standard_entries(header: str, value: str) -> tuple[list[bytes], list[bytes]]:
    shared: list[bytes] = []
    public: list[bytes] = []
    for entry in _entries(header, value, " "):
        version, comma, signature = entry.partition(",")
        if not comma:
            raise Malformed(header, "entries `version,signature` with spaces between them", entry)
        if version == "v1":
            shared.append(_base64_of(header, signature, 32))
        elif version == "v1a":
            public.append(_base64_of(header, signature, 64))
    return shared, public


def _timestamped_entries(header: str, value: str) -> tuple[str, list[bytes]]:
    timestamps: list[str] = []
    given: list[bytes] = []
    read: dict[str, Callable[[str], None]] = {
        "t": timestamps.append,
        "v1": lambda signature: given.append(_hex_of_32(header, signature)),
    }
    for entry in _entries(header, value, ","):
        name, equals, text = entry.partition("=")
        if not equals:
            raise Malformed(header, "`t=timestamp,v1=signature`, with one `t`", value)
        if name in read:
            read[name](text)
    if len(timestamps) != 1:
        raise Malformed(header, "`t=timestamp,v1=signature`, with one `t`", value)
    return timestamps[0], given


def _entries(header: str, value: str, separator: str) -> list[str]:
    entries = [entry for part in value.split(separator) if (entry := part.strip(_SPACE))]
    if not 1 <= len(entries) <= SIGNATURES_MAX:
        raise Malformed(header, f"1 to {SIGNATURES_MAX} entries", value)
    return entries


def _base64_of(header: str, text: str, length: int) -> bytes:
    # Four characters make three bytes: anything longer is refused before it is decoded.
    decoded = decode_base64(text) if len(text) == (length + 2) // 3 * 4 else None
    if decoded is None or len(decoded) != length:
        raise Malformed(header, f"the base64 of {length} bytes", text)
    return decoded


def _hex_of_32(header: str, text: str) -> bytes:
    if len(text) != 64 or not _HEX.fullmatch(text):
        raise Malformed(header, "64 hex digits", text)
    return bytes.fromhex(text)
