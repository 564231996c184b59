"""What schemathesis has to be told about Railpost: how a stream of events is written, and whole numbers in
CloudEvents."""

import json

import schemathesis


@schemathesis.serializer("application/x-ndjson")
def json_lines(_context, value):
    return value if isinstance(value, bytes) else json.dumps(value).encode() + b"\n"


@schemathesis.hook
def map_body(_context, body):
    """To JSON Schema, 3 and 3.0 are one number. The JSON format of CloudEvents takes whole numbers as digits alone,
    which no schema can say."""
    for event in body if isinstance(body, list) else [body]:
        if isinstance(event, dict) and "specversion" in event:
            event.update((name, as_digits(value)) for name, value in list(event.items()))
    return body


def as_digits(value):
    return int(value) if isinstance(value, float) and value.is_integer() else value
