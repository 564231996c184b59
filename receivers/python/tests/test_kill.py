"""A process is killed between the inbox's row and the application's effect, and at every other point of the way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from stores import NOW, PsycopgStore, Sqlite3Store, SqlStore, event, postgres_url, unique

VICTIM = Path(__file__).with_name("victim.py")
POINTS = ["admitted", "effect", "committed"]


def open_store(name: str, path: str, inbox: str) -> SqlStore:
    if name == "psycopg":
        return PsycopgStore(name=inbox)
    Sqlite3Store.path = path
    try:
        return Sqlite3Store(name=inbox)
    finally:
        Sqlite3Store.path = ":memory:"


def live(what: str, name: str, path: str, inbox: str, kill_at: str) -> str | None:
    """Runs a process until it dies where it should, or ends: what it said last, if it lived to."""
    command = [sys.executable, str(VICTIM), what, name, path, inbox, kill_at]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        for line in child.stdout:
            if line == f"reached {kill_at}\n":
                child.kill()
                break
            last = line.strip()
    wait_until_gone(inbox)
    return None if child.returncode < 0 else last


def wait_until_gone(inbox: str) -> None:
    """PostgreSQL notices the death of a client a moment later; until then its locks are held."""
    with psycopg.connect(postgres_url(), autocommit=True) as watcher:
        while watcher.execute("select 1 from pg_stat_activity where application_name = %s", [inbox]).fetchone():
            pass


@pytest.mark.parametrize("kill_at", POINTS)
@pytest.mark.parametrize("name", ["sqlite3", "psycopg"])
def test_an_event_takes_effect_once_wherever_its_process_dies(
    name: str, kill_at: str, tmp_path: Path, closing: Any
) -> None:
    inbox, path = unique(), str(tmp_path / "orders.db")
    store: SqlStore = closing(open_store(name, path, inbox))
    assert live("receive", name, path, inbox, kill_at) is None
    assert store.effects() == (["1"] if kill_at == "committed" else [])
    again = "answered duplicate" if kill_at == "committed" else "answered fresh"
    assert live("receive", name, path, inbox, "nowhere") == again
    assert live("receive", name, path, inbox, "nowhere") == "answered duplicate"
    assert store.effects() == ["1"]


@pytest.mark.parametrize("kill_at", ["effect", "committed"])
@pytest.mark.parametrize("name", ["sqlite3", "psycopg"])
def test_a_job_takes_effect_once_wherever_its_worker_dies(
    name: str, kill_at: str, tmp_path: Path, closing: Any
) -> None:
    inbox, path = unique(), str(tmp_path / "orders.db")
    store: SqlStore = closing(open_store(name, path, inbox))
    store.accept(event("1", ("A", 1)), NOW)
    assert live("work", name, path, inbox, kill_at) is None
    again = "answered idle" if kill_at == "committed" else "answered done"
    assert live("work", name, path, inbox, "nowhere") == again
    assert live("work", name, path, inbox, "nowhere") == "answered idle"
    assert store.effects() == ["1"]
