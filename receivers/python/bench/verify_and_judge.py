"""How many events a second one core verifies and judges: `python bench/verify_and_judge.py`.

1 KiB bodies, ten lines, SQLite in memory, one transaction for each event, no effect. Best of five rounds, by the CPU
time of the process: nothing here waits, so that it is the time on a core that nobody else uses.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable

from railpost import Delivery, MemoryInbox, Receiver, SqliteInbox
from railpost.testing import Request, Sender

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
EVENTS, ROUNDS, LINES = 10_000, 5, 10
BODY = (b'{"order": 17, "note": "' + b"x" * 1024)[:1022] + b'"}'


def requests(round_number: int) -> list[Request]:
    """The attempts of new events, in order."""
    sender = Sender(SECRET)
    events = [
        sender.event(
            BODY,
            key=f"key-{n % LINES}",
            event_id=f"evt_{round_number}_{n}",
            line=f"{round_number}-{n % LINES}",
            seq=n // LINES + 1,
        )
        for n in range(EVENTS)
    ]
    return [sender.request(event) for event in events]


def measure(name: str, run: Callable[[Request], object]) -> None:
    """Prints the best of several rounds."""
    best = 0.0
    for number in range(ROUNDS):
        todo = requests(number)
        begun = time.process_time()
        for request in todo:
            run(request)
        best = max(best, EVENTS / (time.process_time() - begun))
    print(f"{name:<48} {best:>10,.0f}/s")


def main() -> None:
    receiver, inbox, memory = Receiver(SECRET), SqliteInbox("bench"), MemoryInbox()
    database = sqlite3.connect(":memory:", isolation_level=None)
    inbox.create_tables(database)

    def verify(request: Request) -> Delivery:
        return receiver.verify(request.headers, request.body)

    def judge(request: Request) -> None:
        with inbox.transaction(database, verify(request)) as verdict:
            assert verdict.applies

    def judge_again(request: Request) -> None:
        with inbox.transaction(database, verify(request)) as verdict:
            assert not verdict.applies

    measure("verify", verify)
    measure("verify and judge, SQLite in memory", judge)
    measure("verify and judge duplicates, SQLite in memory", judge_again)
    measure("verify and judge, memory", lambda request: memory.apply(verify(request), lambda: None))


if __name__ == "__main__":
    main()
