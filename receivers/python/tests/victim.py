"""The process that is killed: it says where it is, and waits there for its death if it was told to.

It imports little, because many of them are started.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from typing import Any

from railpost import Delivery, SqliteInbox, SqliteQueue

NOW = 1_767_225_600


def connect(name: str, path: str, inbox: str) -> tuple[Any, Any, str]:
    """Connection, queue, and the statement of the effect."""
    effect = f"insert into effects (inbox, id) values ('{inbox}', '1')"
    if name == "sqlite3":
        return sqlite3.connect(path), SqliteQueue(SqliteInbox(inbox)), effect
    import psycopg

    from railpost.psycopg import PsycopgInbox, PsycopgQueue

    # The name tells the test when the server has noticed the death of this process.
    connection = psycopg.connect(os.environ["RAILPOST_TEST_POSTGRES"], application_name=inbox)
    return connection, PsycopgQueue(PsycopgInbox(inbox)), effect


def main(what: str, name: str, path: str, inbox: str, kill_at: str) -> None:
    def reached(point: str) -> None:
        print(f"reached {point}", flush=True)
        if point == kill_at:
            sys.stdin.read()
            raise AssertionError("it should be dead")

    connection, queue, effect = connect(name, path, inbox)
    if what == "work":

        def apply(connection: Any, _: Any) -> None:
            connection.execute(effect)
            reached("effect")

        worked = queue.work_one(connection, apply, NOW)
        reached("committed")
        print(f"answered {worked.kind}", flush=True)
        return
    delivery = Delivery("1", NOW, b"", key="A", line="A", seq=1)
    with queue.inbox.transaction(connection, delivery, NOW) as verdict:
        reached("admitted")
        if verdict.applies:
            connection.execute(effect)
        reached("effect")
    reached("committed")
    print(f"answered {verdict.kind.value}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
