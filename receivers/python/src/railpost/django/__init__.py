"""For Django: the inbox and the queue in the ORM's transactions, and a decorator for views.

Add `"railpost.django"` to `INSTALLED_APPS`, and `manage.py migrate` creates the tables.
"""

from __future__ import annotations

from ..secrets import MissingExtra

try:
    import django as _django
except ImportError as error:
    raise MissingExtra("railpost.django", "django") from error

from .store import DjangoInbox, DjangoQueue
from .views import webhook

__all__ = ["DjangoInbox", "DjangoQueue", "webhook"]

del _django
