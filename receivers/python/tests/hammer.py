"""A process that delivers all events in an order of its own, again and again until all are acknowledged.

Two of them at once, on one inbox, must leave every effect once and in order.
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path

import stores

from railpost import Policy

LINES, SEQS = 3, 15
ROUNDS_MAX = 1_000


def main(name: str, path: str, inbox: str, seed: str) -> None:
    stores.Sqlite3Store.path = path
    if name.startswith("django"):
        stores.configure_django(Path(tempfile.mkdtemp()))
    store = stores.SQL_STORES[name](Policy(on_gap="hold"), name=inbox)
    events = [stores.event(f"{line}-{seq}", (f"L{line}", seq)) for line in range(LINES) for seq in range(1, SEQS + 1)]
    waiting = random.Random(seed).sample(events, len(events))
    for _ in range(ROUNDS_MAX):
        waiting = [one for one in waiting if store.offer(one, stores.NOW).answer.status != 200]
        if not waiting:
            break
    store.close()
    sys.exit(len(waiting))


if __name__ == "__main__":
    main(*sys.argv[1:])
