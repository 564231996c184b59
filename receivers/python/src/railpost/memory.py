"""The inbox in memory: fast, bounded, and gone with the process.

After a restart every event and every line is unknown. What the sender sends again then is applied again, so this
inbox suits effects that are harmless twice, and tests. By default it takes an unknown line from anywhere, because
every line is unknown after a restart.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType

from .delivery import Delivery
from .inbox.gap_timers import GapTimers
from .inbox.policy import IN_PROGRESS, InboxConfig, Kind, Known, NotedGap, Policy, Start, Verdict
from .inbox.sql import seconds
from .limits import GAPS_LISTED_MAX, MEMORY_IDS_MAX, RETENTION_DEFAULT

__all__ = ["MemoryInbox", "MemoryTicket"]


class MemoryTicket(AbstractContextManager["MemoryTicket"]):
    """The right to apply one event, or the verdict that says why there is none.

    As a context manager it remembers the event at the end, and leaves it to the next attempt on an error. One that is
    neither done nor undone holds its line off.
    """

    def __init__(self, inbox: MemoryInbox, delivery: Delivery, verdict: Verdict) -> None:
        self.verdict = verdict
        self._inbox, self._delivery, self._open = inbox, delivery, verdict.applies

    def done(self, now: float | None = None) -> None:
        """The effect has happened: remember the event."""
        if self._open:
            self._open = False
            self._inbox._finish(self._delivery, self.verdict, seconds(now))

    def undo(self) -> None:
        """The effect has failed: leave the event to the sender's next attempt."""
        if self._open:
            self._open = False
            self._inbox._release(self._delivery)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.done()
        else:
            self.undo()


class MemoryInbox:
    """An inbox in memory. Threads may share it."""

    def __init__(self, policy: Policy | None = None, retention: int = RETENTION_DEFAULT) -> None:
        self.config = InboxConfig("memory", policy or Policy(start=Start.ANYWHERE), retention)
        self.timers = GapTimers()
        self._lock = threading.Lock()
        #: Applied ids and when, oldest first.
        self._ids: OrderedDict[str, int] = OrderedDict()
        #: Lines: the last seq and when it changed, longest unchanged first.
        self._lines: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._open_ids: set[str] = set()
        self._open_lines: set[str] = set()
        self._gaps: deque[NotedGap] = deque(maxlen=GAPS_LISTED_MAX)

    def begin(self, delivery: Delivery, now: float | None = None) -> MemoryTicket:
        """Judges an event, and claims it if it is to be applied."""
        at = seconds(now)
        with self._lock:
            self._forget(at)
            verdict = self._judge(delivery, at)
            place = delivery.place
            if verdict.applies:
                self._open_ids.add(delivery.event_id)
                if place is not None:
                    self._open_lines.add(place[0])
            elif place is not None and verdict.moves_line:
                self._move_on(place[0], place[1], at)
            return MemoryTicket(self, delivery, verdict)

    def done(self, ticket: MemoryTicket, now: float | None = None) -> None:
        """The effect has happened: remember the event."""
        ticket.done(now)

    def undo(self, ticket: MemoryTicket) -> None:
        """The effect has failed: leave the event to the sender's next attempt."""
        ticket.undo()

    def apply(self, delivery: Delivery, effect: Callable[[], object], now: float | None = None) -> Verdict:
        """Judges an event, applies it if it is to be applied, and remembers it if that went well."""
        ticket = self.begin(delivery, now)
        try:
            if ticket.verdict.applies:
                effect()
        except BaseException:
            ticket.undo()
            raise
        ticket.done(now)
        return ticket.verdict

    def applied(self, line: str) -> int | None:
        """The last seq of a line that was applied, if the line is known."""
        place = self._lines.get(line)
        return place[0] if place else None

    def gaps(self) -> list[NotedGap]:
        """The latest gaps that were accepted, latest first."""
        with self._lock:
            return list(reversed(self._gaps))

    def _judge(self, delivery: Delivery, now: int) -> Verdict:
        """What comes while its line is busy is not judged: what it waits for may be on its way."""
        place = delivery.place
        if delivery.event_id in self._open_ids or (place is not None and place[0] in self._open_lines):
            return IN_PROGRESS
        last = self.applied(place[0]) if place is not None else None
        return self.timers.judge(self.config.policy, delivery, Known(delivery.event_id in self._ids, last), now)

    def _finish(self, delivery: Delivery, verdict: Verdict, now: int) -> None:
        place = delivery.place
        with self._lock:
            self._close(delivery)
            self._ids[delivery.event_id] = now
            if place is None:
                return
            self._move_on(place[0], place[1], now)
            if verdict.kind is Kind.GAP:
                self._gaps.append(NotedGap(place[0], delivery.key, verdict.applied or 0, place[1], now))

    def _release(self, delivery: Delivery) -> None:
        with self._lock:
            self._close(delivery)

    def _close(self, delivery: Delivery) -> None:
        self._open_ids.discard(delivery.event_id)
        if delivery.place is not None:
            self._open_lines.discard(delivery.place[0])

    def _move_on(self, line: str, seq: int, now: int) -> None:
        """A replay or a duplicate may be older than what was applied."""
        last, _ = self._lines.get(line, (0, 0))
        self._lines[line] = (max(last, seq), now)
        self._lines.move_to_end(line)

    def _forget(self, now: int) -> None:
        """Forgets what is old or too much: at most two of each kind, so that no call pays for many."""
        for _ in range(2):
            oldest = next(iter(self._ids.items()), None)
            if oldest and (oldest[1] < now - self.config.retention or len(self._ids) >= MEMORY_IDS_MAX):
                del self._ids[oldest[0]]
            line = next(iter(self._lines.items()), None)
            if line and line[1][1] < now - self.config.line_retention and line[0] not in self._open_lines:
                del self._lines[line[0]]
