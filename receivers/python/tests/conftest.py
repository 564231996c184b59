"""What all tests share."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import stores


def pytest_configure(config: pytest.Config) -> None:
    # Django is configured once for a process, before anything of it is used.
    config.stash[FOLDER] = tempfile.TemporaryDirectory()
    stores.configure_django(Path(config.stash[FOLDER].name))


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[FOLDER].cleanup()


FOLDER = pytest.StashKey[Any]()


@pytest.fixture
def closing() -> Iterator[Any]:
    """Closes stores at the end of a test."""
    opened: list[stores.Store] = []

    def keep(store: Any) -> Any:
        opened.append(store)
        return store

    yield keep
    for store in opened:
        store.close()
