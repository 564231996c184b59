"""Runs schemathesis against a throwaway server: makes something of everything there first, so that paths lead
somewhere, and tells schemathesis the ids."""

import argparse
import os
import pathlib
import sqlite3
import string
import subprocess
import sys
import time

import requests

HERE = pathlib.Path(__file__).parent
PATIENCE_S = 30
PHASES = "examples,coverage,fuzzing,stateful"


class Server:
    def __init__(self, url, key):
        self.url, self.session = url, requests.Session()
        self.session.headers["Authorization"] = f"Bearer {key}"

    def call(self, method, path, body=None):
        answer = self.session.request(method, self.url + path, json=body, timeout=PATIENCE_S)
        answer.raise_for_status()
        return answer.json()

    def wait_for(self, path, done):
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            try:
                answer = self.call("GET", path)
                if done(answer):
                    return answer
            except requests.ConnectionError:
                pass
            time.sleep(0.05)
        sys.exit(f"{path} did not become what it should be within {PATIENCE_S} s")


def furnish(server, tenant):
    """Makes a tenant with one of everything, and gives the ids by the names that paths have for them. Requests
    go nowhere: every delivery is a dead letter after its first attempt, and those with a key hold their lane."""
    root = f"/v1/tenants/{tenant}"
    server.call("POST", "/v1/tenants", {"id": tenant})
    policy = {"retry": {"max_attempts": 1}, "breaker": None, "quarantine_after": None}
    endpoint = {"url": "https://receiver.invalid/hooks", "policy": policy}
    endpoint = server.call("POST", f"{root}/endpoints", endpoint)
    # Another secret that stays valid: the last one cannot be removed.
    server.call("POST", f"{root}/endpoints/{endpoint['id']}/secrets", {})
    server.call("PUT", f"{root}/event-types/order.created", {"validation": "off"})
    for number in range(3):
        event = {"id": f"{tenant}-{number}", "type": "order.created", "key": f"k{number}", "payload": number}
        server.call("POST", f"{root}/events", event)
    lanes = server.wait_for(f"{root}/lanes", lambda page: len(page["items"]) == 3)["items"]
    key = server.call("POST", f"{root}/keys", {"name": "one", "scope": "read-only"})
    replay = server.call("POST", f"{root}/replays", {"action": "replay", "dry_run": True})
    return {
        "TENANT": tenant,
        "ENDPOINT": endpoint["id"],
        "SECRET": endpoint["secret"]["id"],
        "NAME": "order.created",
        "EVENT": f"{tenant}-0",
        "DELIVERY": lanes[0]["held_by"],
        "LANE": str(lanes[1]["lane"]),
        "KEY": key["id"],
        "REPLAY": replay["id"],
    }


def park(server, count):
    """Writes rows that are refused to the source of the configuration, and gives the numbers of the parked ones."""
    table = (HERE.parents[3] / "crates/outbox/src/sql/sqlite_table.sql").read_text()
    with sqlite3.connect("app.db") as source:
        source.executescript(table)
        insert = "INSERT INTO railpost_outbox (tenant, type, key, payload) VALUES ('nobody', 'a.b', ?, '{}')"
        source.executemany(insert, [(f"k{number}",) for number in range(count)])
    source.close()
    parked = server.wait_for("/v1/outbox/app/parked?limit=500", lambda page: len(page["items"]) == count)
    return [row["number"] for row in parked["items"]]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--examples", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    options = parser.parse_args()
    key = os.environ["RAILPOST_SERVER_ADMIN_KEY"]
    server = Server(options.url, key)
    server.wait_for("/health/ready", lambda answer: answer["ready"])
    filled_in = {"URL": options.url, "API_KEY": key}
    for role, tenant in [("OWN", "shop"), ("TYPED", "typed"), ("DOOMED", "doomed")]:
        filled_in.update((f"{role}_{name}", id) for name, id in furnish(server, tenant).items())
    filled_in["PARKED"] = ", ".join(str(number) for number in park(server, 100))
    config = pathlib.Path("schemathesis.toml")
    config.write_text(string.Template((HERE / config).read_text()).substitute(filled_in))
    environment = {**os.environ, "SCHEMATHESIS_HOOKS": "hooks", "PYTHONPATH": str(HERE)}
    program = [str(pathlib.Path(sys.executable).parent / "schemathesis"), "--config-file", str(config)]
    arguments = ["run", f"{options.url}/openapi.json", "--checks", "all", "--phases", PHASES]
    arguments += ["--max-examples", str(options.examples), "--seed", str(options.seed)]
    sys.exit(subprocess.run(program + arguments, env=environment).returncode)


if __name__ == "__main__":
    main()
