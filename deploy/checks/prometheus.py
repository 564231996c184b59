"""Checks what promtool does not: each alert has its labels and annotations, and tests in which it fires and resolves.

The expressions of the dashboard are written to a file of rules, so that promtool reads them too.
"""

import json
import re
import sys
from pathlib import Path

import yaml

SEVERITIES = {"info", "warning", "error", "critical"}
MINUTES = {"m": 1, "s": 1 / 60}


def minutes(time: str) -> float:
    return sum(int(count) * MINUTES[unit] for count, unit in re.findall(r"(\d+)([ms])", time))


def moments(test: dict) -> list[set[str]]:
    """The alerts that fire, at each moment that a test looks at all alerts."""
    looks = [look for look in test["promql_expr_test"] if look["expr"].startswith("count by (alertname")]
    looks.sort(key=lambda look: minutes(look["eval_time"]))
    return [
        {re.search(r'alertname="(\w+)"', sample["labels"])[1] for sample in look["exp_samples"]} for look in looks
    ]


def check_alert(alert: dict, tests: list[dict]) -> None:
    name = alert["alert"]
    assert re.fullmatch(r"Railpost([A-Z][a-z]+)+", name), name
    assert alert["labels"]["severity"] in SEVERITIES, name
    assert set(alert["annotations"]) == {"summary", "description", "runbook_url"}, name
    seen = [[name in firing for firing in moments(test)] for test in tests]
    assert any(True in fires and fires[-1] is False for fires in seen), f"no test has {name} fire and resolve"


def expressions(value: object) -> list[str]:
    if isinstance(value, list):
        return [text for item in value for text in expressions(item)]
    if isinstance(value, dict):
        own = [value["expr"]] if isinstance(value.get("expr"), str) else []
        return own + [text for item in value.values() for text in expressions(item)]
    return []


def main(deploy: Path, out: Path) -> None:
    groups = yaml.safe_load((deploy / "prometheus/railpost.rules.yml").read_text())["groups"]
    alerts = [rule for group in groups for rule in group["rules"] if "alert" in rule]
    files = (deploy / "prometheus/tests").glob("*.yml")
    tests = [test for file in files for test in yaml.safe_load(file.read_text())["tests"]]
    for alert in alerts:
        check_alert(alert, tests)

    dashboard = json.loads((deploy / "grafana/railpost.json").read_text())
    plain = [re.sub(r"\$__(rate_interval|range)", "5m", text) for text in expressions(dashboard)]
    rules = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(plain)]
    out.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    print(f"   {len(alerts)} alerts fire and resolve in {len(tests)} tests; {len(plain)} expressions of the dashboard")


main(Path(sys.argv[1]), Path(sys.argv[2]))
