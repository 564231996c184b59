"""Bodies, read up to a limit whatever the server hands out."""

from __future__ import annotations

from collections.abc import Callable

from .limits import DISCARD_LEN_MAX
from .rejection import TooLarge

#: Bytes that are read at once.
CHUNK_LEN = 64 * 1024


class LimitedBody:
    """Collects a body. What is too large is dropped, but read on for a while, so that the sender sees the 413."""

    def __init__(self, limit: int) -> None:
        self._limit, self._length = limit, 0
        self._chunks: list[bytes] = []

    def add(self, chunk: bytes) -> bool:
        """Says whether it is worth reading on."""
        self._length += len(chunk)
        if self._length <= self._limit:
            self._chunks.append(chunk)
        else:
            self._chunks.clear()
        return self._length <= max(self._limit, DISCARD_LEN_MAX)

    def whole(self) -> bytes:
        """All of it, once it has ended."""
        if self._length > self._limit:
            raise TooLarge(self._limit)
        return b"".join(self._chunks)


def discard(read: Callable[[int], bytes], limit: int) -> None:
    """Reads a body that is too large, or what is left of it, for the sender's sake."""
    body = LimitedBody(limit)
    while (chunk := read(CHUNK_LEN)) and body.add(chunk):
        pass


def announced_len(content_length: str | None) -> int | None:
    """The length that a request announces."""
    if not content_length or not content_length.isascii() or not content_length.isdigit():
        return None
    # Python reads texts of any length.
    return int(content_length[:19])
