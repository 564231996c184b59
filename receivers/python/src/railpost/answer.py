"""What the sender is answered: every status code of the package, in one place.

The sender retries 408, 409, 425, 429 and 5xx; 400, 401 and 413 end the delivery.
"""

from __future__ import annotations

from dataclasses import dataclass

from .limits import FULL_RETRY_AFTER


@dataclass(frozen=True)
class Answer:
    """An answer for any HTTP library. Its text tells an outsider nothing."""

    status: int
    text: str
    retry_after: int | None = None

    @property
    def headers(self) -> list[tuple[str, str]]:
        """The headers that belong to it."""
        headers = [("content-type", "text/plain; charset=utf-8"), ("content-length", str(len(self.text)))]
        if self.retry_after is not None:
            headers.append(("retry-after", str(self.retry_after)))
        return headers


#: The event was taken, just now or before.
TAKEN = Answer(200, "taken")
#: The event before it is unknown here: the sender shall try again.
EARLY = Answer(425, "the event before it is unknown here")
#: It, or another event of its line, is being applied: the sender shall try again.
BUSY = Answer(409, "being processed")
#: The queue is full.
FULL = Answer(429, "try again later", FULL_RETRY_AFTER)
#: The store or the effect failed: the next attempt may succeed.
TROUBLE = Answer(503, "try again")

#: No trusted secret signed it, or not recently.
NOT_AUTHENTIC = Answer(401, "not authentic")
#: A header or the body cannot be read.
NOT_READABLE = Answer(400, "not readable")
#: The body is longer than it may be.
TOO_LARGE = Answer(413, "too large")
#: The connection ended within the body.
INTERRUPTED = Answer(408, "the body did not arrive")
