"""Answers questions with PyPI's standardwebhooks and cloudevents: JSON in, JSON out."""

import base64
import datetime
import json
import sys

from cloudevents.v1.http import from_http
from standardwebhooks import Webhook


def verify(question):
    try:
        body = base64.b64decode(question["body"])
        Webhook(question["secret"]).verify(body, question["headers"], json_parse=False)
        return "accepted"
    except Exception as refusal:
        return "refused: %s" % refusal


def sign(question):
    at = datetime.datetime.fromtimestamp(question["timestamp"], datetime.timezone.utc)
    body = base64.b64decode(question["body"]).decode()
    return Webhook(question["secret"]).sign(question["id"], at, body)


def cloud_event(question):
    event = from_http(question["headers"], base64.b64decode(question["body"]))
    return {**event.get_attributes(), "data": event.get_data()}


QUESTIONS = {"verify": verify, "sign": sign, "cloud_event": cloud_event}
questions = json.load(sys.stdin)
json.dump([QUESTIONS[question["ask"]](question) for question in questions], sys.stdout)
