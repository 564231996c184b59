"""Checks the manifests of deploy/: Kubernetes objects by the schemas of several versions, and what both kinds must say."""

import sys
from pathlib import Path

import kubernetes_validate
import yaml

# The oldest and the newest version whose schemas the pinned package has and that are worth support.
VERSIONS = ["1.28", "1.33"]


def main(deploy: Path) -> None:
    objects = list(yaml.safe_load_all((deploy / "kubernetes/railpost.yaml").read_text()))
    for each in objects:
        for version in VERSIONS:
            kubernetes_validate.validate(each, version, strict=True)
    kinds = [each["kind"] for each in objects]
    assert kinds == ["ConfigMap", "Service", "StatefulSet"], kinds

    pod = objects[2]["spec"]["template"]["spec"]
    server = pod["containers"][0]
    assert pod["securityContext"]["runAsNonRoot"]
    assert server["readinessProbe"]["httpGet"]["path"] == "/health/ready"
    assert server["livenessProbe"]["httpGet"]["path"] == "/health/live"
    for container in pod["containers"]:
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"] and security["capabilities"] == {"drop": ["ALL"]}

    compose = yaml.safe_load((deploy / "docker/compose.yaml").read_text())
    services = compose["services"]
    assert set(services) == {"postgres", "railpost", "backup"}, services
    for name in ["railpost", "backup"]:
        assert services[name]["read_only"] and services[name]["cap_drop"] == ["ALL"], name
    named = {volume.split(":")[0] for each in services.values() for volume in each.get("volumes", [])}
    assert named == set(compose["volumes"]), named
    print(f"   {len(objects)} Kubernetes objects fit {' and '.join(VERSIONS)}; {len(services)} Compose services")


main(Path(sys.argv[1]))
