"""The views of the Django tests."""

from __future__ import annotations

from typing import Any

from django.db import connection
from django.http import HttpResponse
from django.urls import path
from stores import unique

from railpost import Delivery, MemoryInbox, Policy, Receiver
from railpost.django import DjangoInbox, webhook
from railpost.handshakes import CloudEventsConsent, Handshakes, WebSubConsent

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
RECEIVER = Receiver(SECRET)
INBOX = DjangoInbox(unique(), Policy(on_gap="hold"))
MEMORY = MemoryInbox(Policy(on_gap="hold"))
HANDSHAKES = Handshakes(CloudEventsConsent(["events.example.com"], 100), WebSubConsent(["https://a.example/feed"]))
SEEN: list[str] = []


@webhook(RECEIVER, inbox=INBOX, handshakes=HANDSHAKES)
def hook(request: Any, delivery: Delivery) -> HttpResponse:
    with connection.cursor() as cursor:
        cursor.execute("insert into effects (inbox, id) values (%s, %s)", ["django", delivery.event_id])
    if delivery.body == b"unreadable":
        delivery.json()
    if delivery.body == b"raise":
        raise RuntimeError("the effect fails")
    return HttpResponse("applied", status=503 if delivery.body == b"fail" else 201)


@webhook(RECEIVER, inbox=MEMORY)
def remembered(request: Any, delivery: Delivery) -> HttpResponse:
    SEEN.append(delivery.event_id)
    return HttpResponse("applied")


@webhook(RECEIVER)
async def async_hook(request: Any, delivery: Delivery) -> HttpResponse:
    return HttpResponse(delivery.body)


urlpatterns = [path("hook", hook), path("remembered", remembered), path("async", async_hook)]
