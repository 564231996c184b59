"""SQL statements that any driver can run.

A statement is written once, with `:name` where a value stands, and translated to the placeholders of the driver.
A step of work yields statements with their values and is sent the rows: it does no I/O itself, so that blocking
and asyncio drivers run the same steps.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Generator, Sequence
from functools import cached_property
from importlib import resources
from typing import Any, TypeVar, Union

Row = Sequence[Any]
Value = Union[str, int, bytes, None]
T = TypeVar("T")

_PLACEHOLDER = re.compile(r":([a-z_]+)")


class Statement:
    """A statement, and the names of its values in the order in which they are given."""

    def __init__(self, sql: str) -> None:
        #: With `:name` placeholders.
        self.named = sql
        found = _PLACEHOLDER.findall(sql)
        #: The names, each once, in order of appearance.
        self.names: tuple[str, ...] = tuple(dict.fromkeys(found))
        self._positions = [self.names.index(name) for name in found]

    @cached_property
    def qmark(self) -> str:
        """With `?` placeholders, as sqlite3 has them."""
        return _PLACEHOLDER.sub("?", self.named)

    @cached_property
    def pyformat(self) -> str:
        """With `%(name)s` placeholders, as psycopg and Django have them."""
        return _PLACEHOLDER.sub(r"%(\1)s", self.named)

    @cached_property
    def numbered(self) -> str:
        """With `$1` placeholders, as asyncpg has them."""
        return _PLACEHOLDER.sub(lambda match: f"${self.names.index(match[1]) + 1}", self.named)

    @cached_property
    def _in_order(self) -> bool:
        return self._positions == list(range(len(self.names)))

    def spread(self, values: Sequence[Value]) -> Sequence[Value]:
        """The values for `qmark`, one for each placeholder."""
        return values if self._in_order else [values[at] for at in self._positions]

    def mapping(self, values: Sequence[Value]) -> dict[str, Value]:
        """The values by name."""
        return dict(zip(self.names, values, strict=True))


Query = tuple[Statement, Sequence[Value]]
#: Work that yields queries and is sent their rows.
Steps = Generator[Query, list[Row], T]


def run(steps: Steps[T], execute: Callable[[Statement, Sequence[Value]], list[Row]]) -> T:
    """Runs the steps on a blocking driver."""
    try:
        statement, values = next(steps)
        while True:
            statement, values = steps.send(execute(statement, values))
    except StopIteration as end:
        result: T = end.value
        return result


async def run_async(steps: Steps[T], execute: Callable[[Statement, Sequence[Value]], Awaitable[list[Row]]]) -> T:
    """Runs the steps on an asyncio driver."""
    try:
        statement, values = next(steps)
        while True:
            statement, values = steps.send(await execute(statement, values))
    except StopIteration as end:
        result: T = end.value
        return result


def schema(dialect: str) -> str:
    """The tables as plain SQL, for migrations. `dialect` is `sqlite` or `postgres`."""
    if dialect not in ("sqlite", "postgres"):
        raise ValueError(f"dialect: expected `sqlite` or `postgres`; got `{dialect}`")
    return resources.files("railpost").joinpath("schema").joinpath(f"{dialect}.sql").read_text("utf-8")


def split(script: str) -> list[str]:
    """The statements of a script, one by one: some drivers take no more at once."""
    text = re.sub(r"^\s*--.*\n", "", script, flags=re.MULTILINE)
    parts, quoted = [""], False
    for piece in re.split(r"(\$\$|;)", text):
        quoted ^= piece == "$$"
        if piece == ";" and not quoted:
            parts.append("")
        else:
            parts[-1] += piece
    return [part.strip() for part in parts if part.strip()]
