"""For receivers of webhooks: verify, deduplicate, keep in order.

A sender that delivers at least once sends some events twice. This package makes that harmless: `Receiver` says
whether a request is authentic, an inbox says whether its event is to be applied. It knows events by their id, and
their order by the line (`X-Lane`) and the seq that the sender gives them. With a SQL inbox, the inbox's row and the
application's effect commit in one transaction, so that the event is applied once, whenever a process dies.

It knows nothing of the sender but the wire. Start with `Receiver`, then `Policy` for the rules, then an inbox:

| inbox | module | after a crash |
|---|---|---|
| `SqliteInbox` | `railpost` | effect and row are both there, or neither |
| `PsycopgInbox`, `AsyncPsycopgInbox` | `railpost.psycopg` | the same |
| `AsyncpgInbox` | `railpost.asyncpg` | the same |
| `SqlAlchemyInbox`, `AsyncSqlAlchemyInbox` | `railpost.sqlalchemy` | the same |
| `DjangoInbox` | `railpost.django` | the same |
| `RedisInbox`, `AsyncRedisInbox` | `railpost.redis` | an effect that was not yet noted happens again |
| `MemoryInbox` | `railpost` | everything is forgotten |

Each SQL module has a queue beside its inbox. `railpost.asgi`, `railpost.wsgi`, `railpost.fastapi`, `railpost.django`
and `railpost.flask` have adapters, `railpost.handshakes` answers the questions that senders ask before they send, and
`railpost.testing` puts a handler to the test.
"""

from .answer import Answer
from .counters import Counters
from .delivery import Delivery
from .headers import BadHeaderName, HeaderNames
from .inbox.drivers import NoTransaction, OpenTransaction, UnknownDatabase
from .inbox.policy import Kind, NotedGap, OnGap, Policy, QueueFull, Replays, Start, Verdict
from .inbox.statements import schema
from .jobs import Backlog, DeadLetter, Job, WorkOutcome, WorkPolicy
from .memory import MemoryInbox, MemoryTicket
from .receiver import Receiver
from .rejection import (
    Interrupted,
    Malformed,
    MissingHeader,
    NoMatch,
    Rejection,
    TimestampFuture,
    TimestampStale,
    TooLarge,
    Unreadable,
    Unsigned,
)
from .secrets import BadSecret, MissingExtra, Secret, VerifyingKey
from .sqlite import SqliteInbox, SqliteQueue

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "Backlog",
    "BadHeaderName",
    "BadSecret",
    "Counters",
    "DeadLetter",
    "Delivery",
    "HeaderNames",
    "Interrupted",
    "Job",
    "Kind",
    "Malformed",
    "MemoryInbox",
    "MemoryTicket",
    "MissingExtra",
    "MissingHeader",
    "NoMatch",
    "NoTransaction",
    "NotedGap",
    "OnGap",
    "OpenTransaction",
    "Policy",
    "QueueFull",
    "Receiver",
    "Rejection",
    "Replays",
    "Secret",
    "SqliteInbox",
    "SqliteQueue",
    "Start",
    "TimestampFuture",
    "TimestampStale",
    "TooLarge",
    "UnknownDatabase",
    "Unreadable",
    "Unsigned",
    "Verdict",
    "VerifyingKey",
    "WorkOutcome",
    "WorkPolicy",
    "schema",
]
