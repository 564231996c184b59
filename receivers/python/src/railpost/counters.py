"""What became of the requests, for the application's own metrics."""

from __future__ import annotations

import threading
from collections import Counter

#: Every count that there is: five verdicts, then what never came to one.
NAMES = ("fresh", "duplicate", "stale", "gap", "busy", "rejected", "full", "trouble")


class Counters:
    """Counts what became of requests, since the start. Threads may share it.

    `fresh`: applied or queued. `duplicate`: applied before. `stale`: too late. `gap`: too early, held off or
    accepted. `busy`: came while its line was being applied. `rejected`: not believed. `full`: found the queue
    full. `trouble`: the store or the effect failed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def count(self, name: str) -> None:
        """Adds one. The kind of a verdict is such a name."""
        if name not in NAMES:
            raise ValueError(f"expected one of {', '.join(NAMES)}; got `{name}`")
        with self._lock:
            # A kind equals its word, but has another hash.
            self._counts[NAMES[NAMES.index(name)]] += 1

    def counts(self) -> dict[str, int]:
        """The counts so far, by name."""
        with self._lock:
            return {name: self._counts[name] for name in NAMES}
