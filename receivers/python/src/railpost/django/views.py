"""A decorator for views that receive webhooks."""

from __future__ import annotations


def webhook() -> None: ...
