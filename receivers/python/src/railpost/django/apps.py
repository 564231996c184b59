"""The application that brings the tables."""

from __future__ import annotations

from django.apps import AppConfig


class RailpostConfig(AppConfig):  # type: ignore[misc]
    """Its label is `railpost`."""

    name = "railpost.django"
    label = "railpost"
    verbose_name = "Railpost inbox"
