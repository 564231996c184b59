"""When each line's gap was first seen, in this process.

A SQL inbox judges in the application's transaction, and an application may well roll back one in which nothing
was applied. So the first sight of a gap is not a row: an inbox has a bounded map, and the wait starts again with
the process.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from ..delivery import Delivery
from ..limits import GAP_SIGHT_RETENTION, GAP_SIGHTS_MAX
from .policy import FRESH, Kind, Known, OnGap, Policy, Verdict


@dataclass
class _Sight:
    #: The place that the line had. If it has another one, this gap is closed.
    applied: int | None
    since: int
    #: Kept after it was accepted, while there is room: the effect may fail, and the event come again.
    accepted: bool = False


class GapTimers:
    """The open gaps of an inbox. Threads may share them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: dict[str, _Sight] = {}
        # Since when there has been no room. Lines without a sight of their own wait from here: so the bound
        # delays nobody for ever.
        self._full_since: int | None = None

    def __len__(self) -> int:
        return len(self._lines)

    def judge(self, policy: Policy, delivery: Delivery, known: Known, now: int) -> Verdict:
        """Judges by the policy, and remembers or forgets the sight of the line's gap."""
        verdict = policy.judge(delivery, known, now)
        place = delivery.place
        if place is None:
            return verdict
        line, seq, _ = place
        if verdict is FRESH and (known.applied or 0) < seq:
            self.clear(line)
        if verdict.kind is not Kind.GAP or verdict.accepted or policy.on_gap is OnGap.HOLD:
            return verdict
        with self._lock:
            verdict = policy.judge(delivery, known.seen_since(self._first(line, known.applied, now)), now)
            if line in self._lines:
                self._lines[line].accepted = verdict.accepted
        return verdict

    def clear(self, line: str) -> None:
        """The line moves on, and leaves its gap behind."""
        # Most lines have no gap: looking without the lock is safe, and spares it.
        if line in self._lines:
            with self._lock:
                self._lines.pop(line, None)

    def _first(self, line: str, applied: int | None, now: int) -> int:
        """When the gap after this place was first seen."""
        sight = self._lines.get(line)
        if sight is not None:
            if sight.applied != applied:
                sight.applied, sight.since, sight.accepted = applied, now, False
            return sight.since
        self._make_room(now)
        since = now if self._full_since is None else self._full_since
        if len(self._lines) < GAP_SIGHTS_MAX:
            self._lines[line] = _Sight(applied, since)
        return since

    def _make_room(self, now: int) -> None:
        """There is room again when half of it is free: lines that wait together do not start over one by one."""
        if self._full_since is None and len(self._lines) < GAP_SIGHTS_MAX:
            return
        oldest = now - GAP_SIGHT_RETENTION
        kept = {line: sight for line, sight in self._lines.items() if not sight.accepted and sight.since >= oldest}
        self._lines = kept
        if len(kept) <= GAP_SIGHTS_MAX // 2:
            self._full_since = None
        elif self._full_since is None:
            self._full_since = now
