"""Answers questions with PyPI's standardwebhooks, stripe and cloudevents: JSON in, JSON out."""

import base64
import datetime
import json
import sys

import stripe
from cloudevents.v1.conversion import to_binary, to_structured
from cloudevents.v1.http import CloudEvent, from_http
from plain_verifier import verify_webhook_signature
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


def verify_timestamped(question):
    try:
        body = base64.b64decode(question["body"])
        header = question["headers"].get("x-webhook-signature")
        stripe.WebhookSignature.verify_header(body, header, question["secret"], tolerance=300)
        return "accepted"
    except Exception as refusal:
        return "refused: %s" % refusal


def sign_timestamped(question):
    body = base64.b64decode(question["body"]).decode()
    signature = stripe.WebhookSignature
    return signature.generate_signature_header(body, question["secret"], question["timestamp"])


def verify_plainly(question):
    body = base64.b64decode(question["body"])
    header = question["headers"].get("x-webhook-signature")
    # The secret as it was shown: the whole text.
    accepted = verify_webhook_signature(body, header, question["secret"].encode())
    return "accepted" if accepted else "refused"


def cloud_event(question):
    event = from_http(question["headers"], base64.b64decode(question["body"]))
    return {**event.get_attributes(), "data": event.get_data()}


def wrap_cloud_event(question):
    event = CloudEvent(question["attributes"], question["data"])
    write = to_binary if question["mode"] == "binary" else to_structured
    headers, body = write(event)
    return {"headers": headers, "body": base64.b64encode(body or b"").decode()}


QUESTIONS = {
    "verify": verify,
    "sign": sign,
    "verify_timestamped": verify_timestamped,
    "sign_timestamped": sign_timestamped,
    "verify_plainly": verify_plainly,
    "cloud_event": cloud_event,
    "wrap_cloud_event": wrap_cloud_event,
}
questions = json.load(sys.stdin)
json.dump([QUESTIONS[question["ask"]](question) for question in questions], sys.stdout)
