"""Why a request is not believed. The reasons are for the receiver's log; the answers say less."""

from __future__ import annotations

from . import answer
from .answer import Answer
from .limits import SHOWN_CHARS_MAX


class Rejection(Exception):
    """A request that is not believed, or cannot be read."""

    answer: Answer = answer.NOT_READABLE


class MissingHeader(Rejection):
    """A header that every request has is not there."""

    def __init__(self, header: str) -> None:
        super().__init__(f"expected a header `{header}`; got none")
        self.header = header


class Unsigned(MissingHeader):
    """There is no signature that counts here."""

    answer = answer.NOT_AUTHENTIC

    def __init__(self, header: str) -> None:
        super().__init__(header)
        self.args = (f"no `{header}` header: the request is unsigned, or a proxy took it away",)


class Malformed(Rejection):
    """A header has a value that it cannot have."""

    def __init__(self, header: str, expected: str, got: str) -> None:
        super().__init__(f"header `{header}`: expected {expected}; got `{shown(got)}`")
        self.header = header


class TimestampStale(Rejection):
    """The timestamp is too old, by so many seconds more than tolerated."""

    answer = answer.NOT_AUTHENTIC

    def __init__(self, by: int) -> None:
        super().__init__(
            f"the timestamp is too old by {by} s: an old request sent again, or one of the clocks is wrong"
        )
        self.by = by


class TimestampFuture(Rejection):
    """The timestamp is too far ahead, by so many seconds more than tolerated."""

    answer = answer.NOT_AUTHENTIC

    def __init__(self, by: int) -> None:
        super().__init__(f"the timestamp is too far ahead by {by} s: one of the clocks is wrong")
        self.by = by


class NoMatch(Rejection):
    """No signature is right."""

    answer = answer.NOT_AUTHENTIC

    def __init__(self) -> None:
        super().__init__(
            "no signature matches a trusted secret or key: check that the secret is this endpoint's,"
            " and that the body reaches the verifier byte for byte"
        )


class Unreadable(Rejection):
    """It is authentic, but its body is not what this receiver takes."""


class TooLarge(Rejection):
    """The body is longer than it may be."""

    answer = answer.TOO_LARGE

    def __init__(self, limit: int) -> None:
        super().__init__(f"the body is longer than {limit} bytes")
        self.limit = limit


class Interrupted(Rejection):
    """The connection ended within the body."""

    answer = answer.INTERRUPTED

    def __init__(self) -> None:
        super().__init__("the connection ended within the body")


def shown(value: str) -> str:
    """A value as an error shows it: cut, and without control characters."""
    text = value[:SHOWN_CHARS_MAX]
    text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return text + "…" if len(value) > SHOWN_CHARS_MAX else text
