"""The inbox's rule: what an authentic event is to a receiver that has seen others.

Every inbox asks the same question here, so that all of them answer alike. An inbox keeps its place by line
(`X-Lane`): the last seq that was applied of each. The cases are in `vectors/inbox.json`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Literal, Union

from ..answer import BUSY, EARLY, FULL, TAKEN, Answer
from ..delivery import Delivery
from ..limits import GAP_TIMEOUT_DEFAULT, LINE_RETENTION_FACTOR, RETENTION_DEFAULT


class Kind(str, Enum):
    """What an event is to this receiver."""

    #: It was never applied, and it is its turn: apply it.
    FRESH = "fresh"
    #: Its id was applied before: acknowledge it, do nothing. Its line moves on to its seq.
    DUPLICATE = "duplicate"
    #: Its id is unknown, but its seq is at or below what was applied: acknowledge it, do nothing.
    STALE = "stale"
    #: What must be applied before it is not known here: this receiver forgot it, or joined late.
    GAP = "gap"
    #: It, or another event of its line, is being applied: the sender shall try again.
    BUSY = "busy"


@dataclass(frozen=True)
class Verdict:
    """What an event is, and what follows from that."""

    kind: Kind
    #: The last seq of its line that was applied, with a stale event or a gap; None if there is none.
    applied: int | None = None
    #: Whether a gap is taken all the same.
    accepted: bool = False

    @property
    def applies(self) -> bool:
        """Whether the effect is to happen."""
        return self.kind is Kind.FRESH or self.accepted

    @property
    def moves_line(self) -> bool:
        """Whether the place of its line moves on to its seq, unless it is further already."""
        return self.applies or self.kind is Kind.DUPLICATE

    @property
    def answer(self) -> Answer:
        """What the sender is answered, once what follows from the verdict is committed."""
        if self.kind is Kind.BUSY:
            return BUSY
        return EARLY if self.kind is Kind.GAP and not self.accepted else TAKEN


FRESH = Verdict(Kind.FRESH)
DUPLICATE = Verdict(Kind.DUPLICATE)
IN_PROGRESS = Verdict(Kind.BUSY)


class QueueFull(Exception):
    """There is no room: roll back, and answer 429. What waits must be worked off first."""

    answer: Answer = FULL

    def __init__(self, most: int) -> None:
        super().__init__(f"the queue holds {most} jobs, which is all it may")


class Start(str, Enum):
    """Where the seqs of a line begin for this receiver."""

    #: With 1. Anything else in an unknown line is a gap, unless the sender says `X-After: 0`.
    AT_ONE = "at_one"
    #: With the seq that comes first: for inboxes that forget, and receivers that join late.
    ANYWHERE = "anywhere"


class OnGap(str, Enum):
    """What happens to an event whose predecessor is not known here."""

    #: It is answered 425 until its line's gap has been seen for `gap_timeout` seconds, then accepted and noted.
    WAIT = "wait"
    #: It is answered 425 for ever: the sender makes it a dead letter in the end, and a person decides.
    HOLD = "hold"
    #: It is accepted at once, and noted.
    ACCEPT = "accept"


class Replays(str, Enum):
    """What happens to a replay (`X-Replay: true`) below what was applied whose id was never applied."""

    #: It is stale, as any other: an old state must not overwrite a newer one.
    KEEP_ORDER = "keep_order"
    #: It is fresh, out of order, because a person asked for it: for effects that add up.
    APPLY = "apply"


@dataclass(frozen=True)
class Policy:
    """What a receiver does about order. `gap_timeout` is in seconds."""

    start: Union[Start, Literal["at_one", "anywhere"]] = Start.AT_ONE
    on_gap: Union[OnGap, Literal["wait", "hold", "accept"]] = OnGap.WAIT
    gap_timeout: int = GAP_TIMEOUT_DEFAULT
    replays: Union[Replays, Literal["keep_order", "apply"]] = Replays.KEEP_ORDER

    def __post_init__(self) -> None:
        # Words are taken too: Policy(on_gap="hold").
        object.__setattr__(self, "start", Start(self.start))
        object.__setattr__(self, "on_gap", OnGap(self.on_gap))
        object.__setattr__(self, "replays", Replays(self.replays))
        if self.gap_timeout < 0:
            raise ValueError(f"gap_timeout: expected seconds from 0; got {self.gap_timeout}")

    def judge(self, delivery: Delivery, known: Known, now: int) -> Verdict:
        """The rule."""
        if known.id:
            return DUPLICATE
        place = delivery.place
        if place is None:
            return FRESH
        _, seq, follows = place
        applied = known.applied
        if applied is not None and seq <= applied:
            if delivery.replay and self.replays is Replays.APPLY:
                return FRESH
            return Verdict(Kind.STALE, applied)
        if applied is None and self.start is Start.ANYWHERE:
            return FRESH
        if (applied or 0) >= follows:
            return FRESH
        return Verdict(Kind.GAP, applied, self._accepts_gap(known.gap_since, now))

    def _accepts_gap(self, since: int | None, now: int) -> bool:
        if self.on_gap is OnGap.WAIT:
            return now - (now if since is None else since) >= self.gap_timeout
        return self.on_gap is OnGap.ACCEPT


@dataclass(frozen=True)
class Known:
    """What an inbox knows of an event and its line before it is judged."""

    #: Whether the event's id was applied before.
    id: bool = False
    #: The last seq of the line that was applied, if the line is known.
    applied: int | None = None
    #: When a gap after that seq was first seen, in seconds since 1970.
    gap_since: int | None = None

    def seen_since(self, since: int) -> Known:
        """The same, with the first sight of its gap."""
        return replace(self, gap_since=since)


@dataclass(frozen=True)
class NotedGap:
    """A gap that was accepted: what lies between was not applied."""

    line: str
    #: The key of the event that was accepted, if it has one.
    key: str | None
    #: The last seq of the line that had been applied; 0 if none had.
    applied: int
    #: The seq that was accepted.
    seq: int
    #: When, in seconds since 1970.
    noted_at: int


@dataclass(frozen=True)
class InboxConfig:
    """What tells inboxes apart that share a database, and what each does.

    Two senders, or two endpoints with secrets of their own, need two names: otherwise one could use up the
    other's ids. `retention` is in seconds, and must be longer than the sender can still send an event.
    """

    name: str
    policy: Policy = field(default_factory=Policy)
    retention: int = RETENTION_DEFAULT

    def __post_init__(self) -> None:
        if not self.name or "\0" in self.name:
            raise ValueError(f"name: expected a text without NUL that is not empty; got {self.name!r}")
        if self.retention <= 0:
            raise ValueError(f"retention: expected seconds above 0; got {self.retention}")

    @property
    def line_retention(self) -> int:
        """How long the places of lines are remembered."""
        return self.retention * LINE_RETENTION_FACTOR
