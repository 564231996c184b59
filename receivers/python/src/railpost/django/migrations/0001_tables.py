"""Creates the tables of inbox and queue. They have no models: every statement on them is the inbox's."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import migrations

from railpost.django.store import dialect_of


def create(apps: Any, editor: Any) -> None:
    for statement in dialect_of(editor.connection).tables():
        editor.execute(statement, params=None)


def drop(apps: Any, editor: Any) -> None:
    for table in ("railpost_work", "railpost_gaps", "railpost_lines", "railpost_inbox"):
        editor.execute(f"drop table if exists {table}", params=None)


class Migration(migrations.Migration):  # type: ignore[misc]
    initial = True
    dependencies: ClassVar[list[Any]] = []
    operations: ClassVar[list[Any]] = [migrations.RunPython(create, drop)]
