"""The inbox in Redis: shared by several processes, with a time to live.

Redis cannot commit with the application's database. An event is claimed, applied, then noted; a crash between the
last two lets it be applied again once the claim's lease has run out. Effects must bear that. If a SQL database is at
hand, keep the inbox there.

| key | value | lives |
|---|---|---|
| `NAME:id:ID` | `1`: the event was applied | as long as the retention |
| `NAME:line:LINE` | the last seq of the line that was applied | twelve times as long |
| `NAME:gap:LINE` | `applied since`: an open gap of the line, and when it was first seen | three days |
| `NAME:noted_gaps` | a list of accepted gaps: `applied seq noted_at line key` | as long as the retention |
| `NAME:claim:…` | a token: being applied | until it is done with, or a minute |

Names of inboxes that share a Redis must not begin alike up to a colon.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Generator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, Union

from .delivery import Delivery
from .inbox.policy import IN_PROGRESS, InboxConfig, Kind, Known, NotedGap, Policy, Verdict
from .inbox.sql import seconds
from .limits import CLAIM_LEASE, GAP_SIGHT_RETENTION, GAPS_LISTED_MAX, RETENTION_DEFAULT
from .secrets import MissingExtra

try:
    import redis as driver
    import redis.asyncio as async_driver
except ImportError as error:
    raise MissingExtra("railpost.redis", "redis") from error

__all__ = ["AsyncRedisInbox", "RedisInbox", "RedisTicket"]

T = TypeVar("T")

# Claims, unless somebody else has, and says whether the id is known, how far the line is, and whether it has an
# open gap.
_BEGIN = """
if redis.call('exists', KEYS[1], KEYS[2]) > 0 then return nil end
redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[2])
redis.call('set', KEYS[2], ARGV[1], 'px', ARGV[2])
return {redis.call('exists', KEYS[3]), redis.call('get', KEYS[4]), redis.call('get', KEYS[5])}"""

# The id is noted in any case, for the effect has happened. The line moves only if the claim held.
_DONE = """
redis.call('set', KEYS[3], 1, 'ex', ARGV[2])
if ARGV[5] ~= '' then
    redis.call('lpush', KEYS[5], ARGV[5])
    redis.call('ltrim', KEYS[5], 0, ARGV[6] - 1)
    redis.call('expire', KEYS[5], ARGV[2])
end
if redis.call('get', KEYS[2]) ~= ARGV[1] then return end
if ARGV[3] ~= '0' then redis.call('set', KEYS[4], ARGV[3], 'ex', ARGV[4]) end
redis.call('del', KEYS[1], KEYS[2])"""

# While the claim holds, the line moves on, and the first sight of its gap is kept.
_RELEASE = """
if redis.call('get', KEYS[2]) == ARGV[1] then
    if ARGV[2] ~= '0' then redis.call('set', KEYS[3], ARGV[2], 'ex', ARGV[3]) end
    if ARGV[4] ~= '' then redis.call('set', KEYS[4], ARGV[4], 'ex', ARGV[5]) end
end
for at = 1, 2 do
    if redis.call('get', KEYS[at]) == ARGV[1] then redis.call('del', KEYS[at]) end
end"""


@dataclass(frozen=True)
class _Names:
    """The Redis keys of an event. One without a line has its own claim for the line's."""

    id: str
    line: str
    gap: str
    id_claim: str
    line_claim: str


@dataclass(frozen=True)
class RedisTicket:
    """The right to apply one event, or the verdict that says why there is none.

    Without `done` or `undo` it holds its line off until its lease of a minute has run out.
    """

    verdict: Verdict
    _names: _Names | None = None
    _token: str = ""
    _delivery: Delivery | None = None
    _then_applied: int = 0


Command = tuple[Any, ...]
#: Work that yields commands and is sent their answers.
Steps = Generator[Command, Any, T]


class _Core:
    """The steps of the inbox, without a connection."""

    def __init__(self, name: str, policy: Policy | None, retention: int) -> None:
        self.config = InboxConfig(name, policy or Policy(), retention)

    def begin(self, delivery: Delivery, now: int) -> Steps[RedisTicket]:
        names, token = self._names(delivery), secrets.token_hex(16)
        found = yield _eval(
            _BEGIN, [names.id_claim, names.line_claim, names.id, names.line, names.gap], [token, CLAIM_LEASE * 1000]
        )
        if found is None:
            return RedisTicket(IN_PROGRESS)
        known = _read_known(*found)
        verdict = self.config.policy.judge(delivery, known, now)
        # A replay or a duplicate may be older than what was applied.
        then_applied = max(delivery.place[1], known.applied or 0) if delivery.place else 0
        if verdict.applies:
            return RedisTicket(verdict, names, token, delivery, then_applied)
        new_gap = verdict.kind is Kind.GAP and known.gap_since is None
        sight = f"{known.applied or 0} {now}" if new_gap else ""
        yield self._release(names, token, then_applied if verdict.moves_line else 0, sight)
        return RedisTicket(verdict)

    def done(self, ticket: RedisTicket, now: int) -> Steps[None]:
        names, delivery = ticket._names, ticket._delivery
        if names is None or delivery is None:
            return
        gap = ""
        if ticket.verdict.kind is Kind.GAP and delivery.place:
            line, seq, _ = delivery.place
            gap = f"{ticket.verdict.applied or 0} {seq} {now} {line} {delivery.key or ''}"
        yield _eval(
            _DONE,
            [names.id_claim, names.line_claim, names.id, names.line, f"{self.config.name}:noted_gaps"],
            [
                ticket._token,
                self.config.retention,
                ticket._then_applied,
                self.config.line_retention,
                gap,
                GAPS_LISTED_MAX,
            ],
        )

    def undo(self, ticket: RedisTicket) -> Steps[None]:
        if ticket._names is not None:
            yield self._release(ticket._names, ticket._token, 0, "")

    def applied(self, line: str) -> Steps[int | None]:
        found = yield "GET", f"{self.config.name}:line:{line}"
        return None if found is None else int(found)

    def gaps(self) -> Steps[list[NotedGap]]:
        found = yield "LRANGE", f"{self.config.name}:noted_gaps", 0, -1
        return [_read_gap(_text(entry)) for entry in found]

    def _release(self, names: _Names, token: str, moved: int, sight: str) -> Command:
        keys = [names.id_claim, names.line_claim, names.line, names.gap]
        return _eval(_RELEASE, keys, [token, moved, self.config.line_retention, sight, GAP_SIGHT_RETENTION])

    def _names(self, delivery: Delivery) -> _Names:
        name, event_id, place = self.config.name, delivery.event_id, delivery.place
        id_key, id_claim = f"{name}:id:{event_id}", f"{name}:claim:id:{event_id}"
        if place is None:
            return _Names(id_key, f"{name}:line", f"{name}:gap", id_claim, id_claim)
        line = place[0]
        return _Names(id_key, f"{name}:line:{line}", f"{name}:gap:{line}", id_claim, f"{name}:claim:line:{line}")


def _eval(script: str, keys: Sequence[str], args: Sequence[str | int]) -> Command:
    return ("EVAL", script, len(keys), *keys, *args)


def _text(value: Union[str, bytes]) -> str:
    # A client may decode its answers or not.
    return value if isinstance(value, str) else value.decode()


def _read_known(known_id: int, applied: Any, sight: Any) -> Known:
    last = None if applied is None else int(applied)
    if sight is None:
        return Known(bool(known_id), last)
    seen_after, since = map(int, _text(sight).split(" "))
    # A sight of another place is that of another gap, which is closed.
    return Known(bool(known_id), last, since if seen_after == (last or 0) else None)


def _read_gap(text: str) -> NotedGap:
    applied, seq, noted_at, line, key = text.split(" ", 4)
    return NotedGap(line, key or None, int(applied), int(seq), int(noted_at))


class RedisInbox:
    """An inbox in Redis, on a blocking client. Threads may share it."""

    def __init__(
        self,
        client: driver.Redis,
        name: str,
        policy: Policy | None = None,
        retention: int = RETENTION_DEFAULT,
    ) -> None:
        self._client: Any = client
        self._core = _Core(name, policy, retention)

    def begin(self, delivery: Delivery, now: float | None = None) -> RedisTicket:
        """Judges an event, and claims it if it is to be applied: then end with `done` or `undo`."""
        return self._run(self._core.begin(delivery, seconds(now)))

    def done(self, ticket: RedisTicket, now: float | None = None) -> None:
        """The effect has happened: remember the event."""
        self._run(self._core.done(ticket, seconds(now)))

    def undo(self, ticket: RedisTicket) -> None:
        """The effect has failed: leave the event to the sender's next attempt."""
        self._run(self._core.undo(ticket))

    @contextmanager
    def claim(self, delivery: Delivery, now: float | None = None) -> Iterator[Verdict]:
        """Judges an event, remembers it at the end, and leaves it to the next attempt on an error."""
        ticket = self.begin(delivery, now)
        try:
            yield ticket.verdict
        except BaseException:
            self.undo(ticket)
            raise
        self.done(ticket, now)

    def applied(self, line: str) -> int | None:
        """The last seq of a line that was applied, if the line is known."""
        return self._run(self._core.applied(line))

    def gaps(self) -> list[NotedGap]:
        """The latest gaps that were accepted, latest first."""
        return self._run(self._core.gaps())

    def _run(self, steps: Steps[T]) -> T:
        try:
            command = next(steps)
            while True:
                command = steps.send(self._client.execute_command(*command))
        except StopIteration as end:
            result: T = end.value
            return result


class AsyncRedisInbox:
    """An inbox in Redis, on an asyncio client. Tasks may share it."""

    def __init__(
        self,
        client: async_driver.Redis,
        name: str,
        policy: Policy | None = None,
        retention: int = RETENTION_DEFAULT,
    ) -> None:
        self._client: Any = client
        self._core = _Core(name, policy, retention)

    async def begin(self, delivery: Delivery, now: float | None = None) -> RedisTicket:
        """Judges an event, and claims it if it is to be applied: then end with `done` or `undo`."""
        return await self._run(self._core.begin(delivery, seconds(now)))

    async def done(self, ticket: RedisTicket, now: float | None = None) -> None:
        """The effect has happened: remember the event."""
        await self._run(self._core.done(ticket, seconds(now)))

    async def undo(self, ticket: RedisTicket) -> None:
        """The effect has failed: leave the event to the sender's next attempt."""
        await self._run(self._core.undo(ticket))

    @asynccontextmanager
    async def claim(self, delivery: Delivery, now: float | None = None) -> AsyncIterator[Verdict]:
        """Judges an event, remembers it at the end, and leaves it to the next attempt on an error."""
        ticket = await self.begin(delivery, now)
        try:
            yield ticket.verdict
        except BaseException:
            await self.undo(ticket)
            raise
        await self.done(ticket, now)

    async def applied(self, line: str) -> int | None:
        """The last seq of a line that was applied, if the line is known."""
        return await self._run(self._core.applied(line))

    async def gaps(self) -> list[NotedGap]:
        """The latest gaps that were accepted, latest first."""
        return await self._run(self._core.gaps())

    async def _run(self, steps: Steps[T]) -> T:
        try:
            command = next(steps)
            while True:
                command = steps.send(await self._client.execute_command(*command))
        except StopIteration as end:
            result: T = end.value
            return result
