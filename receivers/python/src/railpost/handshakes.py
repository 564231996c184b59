"""The questions that senders ask before they send: CloudEvents' OPTIONS, and WebSub's verification of intent.

Both keep a sender from being used against somebody who never asked for its requests. Neither authenticates anything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Union
from urllib.parse import parse_qsl

from .limits import CHALLENGE_LEN_MAX


@dataclass(frozen=True)
class HandshakeAnswer:
    """An answer for any HTTP library."""

    status: int
    text: str = ""
    extra: tuple[tuple[str, str], ...] = ()

    @property
    def headers(self) -> list[tuple[str, str]]:
        """The headers that belong to it. The text is never taken for a page, whatever the sender made us echo."""
        fixed = [("content-type", "text/plain; charset=utf-8"), ("x-content-type-options", "nosniff")]
        return [*fixed, ("content-length", str(len(self.text.encode()))), *self.extra]


@dataclass(frozen=True)
class CloudEventsConsent:
    """Who may send CloudEvents here (`WebHook-Request-Origin`), and how many requests a minute.

    `origins` are DNS names, compared as a whole, or `"*"` for all. No `rate` means no limit.
    """

    origins: Union[str, Collection[str]]
    rate: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.origins, str) and self.origins != "*":
            raise ValueError(f'origins: expected "*" or a collection of DNS names; got {self.origins!r}')
        if self.rate is not None and self.rate < 1:
            raise ValueError(f"rate: expected at least 1 request a minute; got {self.rate}")

    def answer(self, origin: str, requested_rate: str | None) -> HandshakeAnswer:
        """Consent is the header `WebHook-Allowed-Origin`; a refusal leaves it out."""
        names = () if isinstance(self.origins, str) else {name.lower() for name in self.origins}
        if self.origins != "*" and origin.lower() not in names:
            return HandshakeAnswer(403, "origin not allowed", (("Allow", "POST"),))
        granted = (("WebHook-Allowed-Origin", origin), ("WebHook-Allowed-Rate", self._rate(requested_rate)))
        return HandshakeAnswer(200, "", (("Allow", "POST"), *granted))

    def _rate(self, requested: str | None) -> str:
        if self.rate is None:
            return "*"
        asked = (
            int(requested) if requested and requested.isascii() and requested.isdigit() and len(requested) < 10 else 0
        )
        return str(min(asked, self.rate) if asked else self.rate)


@dataclass(frozen=True)
class WebSubIntent:
    """What a hub asks: did you want this?"""

    #: `subscribe` or `unsubscribe`.
    mode: str
    topic: str
    #: How long the subscription will last, in seconds; None with `unsubscribe`.
    lease_seconds: int | None


@dataclass(frozen=True)
class WebSubConsent:
    """Which topics are wanted here.

    A subscription to one of `topics` is confirmed, and so is the end of any other; everything else is answered 404.
    In place of the topics, a function may decide about each `WebSubIntent`. `on_denied` is told topic and reason when
    a hub refuses or ends a subscription.
    """

    topics: Union[Collection[str], Callable[[WebSubIntent], bool]]
    on_denied: Callable[[str, str], object] | None = None

    def answer(self, query: Mapping[str, str]) -> HandshakeAnswer:
        """What the hub is answered. Only the challenge itself confirms."""
        mode, topic = query["hub.mode"], query.get("hub.topic", "")
        if mode == "denied":
            if self.on_denied:
                self.on_denied(topic, query.get("hub.reason", ""))
            return HandshakeAnswer(200)
        challenge, lease = query.get("hub.challenge", ""), query.get("hub.lease_seconds", "")
        if mode not in ("subscribe", "unsubscribe"):
            return HandshakeAnswer(400, "hub.mode: expected subscribe, unsubscribe or denied")
        if not topic or not 1 <= len(challenge) <= CHALLENGE_LEN_MAX:
            return HandshakeAnswer(400, f"expected hub.topic, and hub.challenge of 1 to {CHALLENGE_LEN_MAX} characters")
        seconds = int(lease) if lease.isascii() and lease.isdigit() and len(lease) < 19 else None
        if not self._wants(WebSubIntent(mode, topic, seconds)):
            return HandshakeAnswer(404, "not wanted")
        return HandshakeAnswer(200, challenge)

    def _wants(self, intent: WebSubIntent) -> bool:
        if callable(self.topics):
            return bool(self.topics(intent))
        return (intent.topic in self.topics) == (intent.mode == "subscribe")


@dataclass(frozen=True)
class Handshakes:
    """The handshakes that a receiver answers."""

    cloudevents: CloudEventsConsent | None = None
    websub: WebSubConsent | None = field(default=None)

    def answer(self, method: str, headers: Mapping[str, str], query: str) -> HandshakeAnswer | None:
        """The answer to a handshake, or None for any other request. Names of headers are lower-case."""
        origin = headers.get("webhook-request-origin")
        if method == "OPTIONS" and self.cloudevents and origin:
            return self.cloudevents.answer(origin, headers.get("webhook-request-rate"))
        if method == "GET" and self.websub:
            # A hub appends its parameters to those of the callback: of several with one name, the last is the hub's.
            given = dict(parse_qsl(query, keep_blank_values=True))
            return self.websub.answer(given) if "hub.mode" in given else None
        return None
