"""The deployment files name existing commands, settings, ports and paths, and grant minimal permissions."""

import re
import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from flask import Flask

from placement_svc.cli import main
from placement_svc.commands import PORT
from placement_svc.config import CLIENT_VARIABLES, Settings, variable
from placement_svc.http import proxy

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
NGINX = (ROOT / "deploy/nginx/placement.conf").read_text()
KUBERNETES = ROOT / "deploy/kubernetes"

SETTINGS = {variable(setting.name) for setting in fields(Settings)}


class _Loader(yaml.SafeLoader):
    """A YAML loader that knows the Compose tag `!reset`."""


_Loader.add_constructor("!reset", lambda loader, node: loader.construct_sequence(node))


def read(path: str) -> Any:
    return yaml.load((ROOT / path).read_text(), _Loader)


COMPOSE = read("docker-compose.yml")
REPLICAS = read("docker-compose.replicas.yml")
OBJECTS = {
    found["kind"]: found
    for name in read("deploy/kubernetes/kustomization.yaml")["resources"]
    for found in [read(f"deploy/kubernetes/{name}")]
}
PODS = {kind: OBJECTS[kind]["spec"]["template"]["spec"] for kind in ("Deployment", "Job")}
[API] = PODS["Deployment"]["containers"]


def instruction(name: str) -> str:
    """Return the arguments of the last instruction with this name in the Dockerfile."""
    return re.findall(rf"^{name} (.*)$", DOCKERFILE, re.M)[-1]


def commands() -> Iterator[list[str]]:
    """Yield each `placement-svc` command in the deployment files and in the documentation."""
    yield yaml.safe_load(re.findall(r"^CMD (\[.*\])$", DOCKERFILE, re.M)[-1])
    for service in COMPOSE["services"].values():
        for word in service.get("command", []):
            yield from (
                shlex.split(line) for line in re.findall(r"^ *(placement-svc .*?)(?: >.*)?$", word, re.M)
            )
        if service.get("command", ["sh"])[0] != "sh":
            yield service["command"]
    for pod in PODS.values():
        yield from (container["command"] for container in pod["containers"])
    for page in ("README.md", "docs/operations.md"):
        for line in re.findall(
            r"^ *(?:\$ )?(?:\S*/)?(placement-svc [a-z].*)$", (ROOT / page).read_text(), re.M
        ):
            yield shlex.split(line, comments=True)


def is_command(words: list[str]) -> bool:
    """Return whether the command exists and has these options."""
    program, *arguments = words
    return program == "placement-svc" and CliRunner().invoke(main, [*arguments, "--help"]).exit_code == 0


@pytest.mark.parametrize("words", list(commands()), ids=shlex.join)
def test_commands_exist(words: list[str]) -> None:
    assert is_command(words)


def test_is_command_detects_unknown_commands_and_options() -> None:
    assert not is_command(["placement-svc", "db", "upgarde"])
    assert not is_command(["placement-svc", "serve", "--prot", "1"])


@pytest.mark.parametrize(
    "path",
    [
        "Dockerfile",
        "docker-compose.yml",
        "docker-compose.replicas.yml",
        ".env.example",
        "deploy/nginx/placement.conf",
        *(f"deploy/kubernetes/{path.name}" for path in sorted(KUBERNETES.glob("*.yaml"))),
        "README.md",
        "docs/operations.md",
    ],
)
def test_settings_exist(path: str) -> None:
    named = re.findall(r"\bPLACEMENT_[A-Z_]*[A-Z]\b(?!_)", (ROOT / path).read_text())
    assert set(named) <= SETTINGS | CLIENT_VARIABLES


def test_variables_of_compose_are_in_the_example() -> None:
    used = re.findall(r"\$\{(\w+):-([^}]*)\}", (ROOT / "docker-compose.yml").read_text())
    used += re.findall(r"\$\{(\w+):-([^}]*)\}", (ROOT / "docker-compose.replicas.yml").read_text())
    shown = re.findall(r"^(\w+)=(.*)$", (ROOT / ".env.example").read_text(), re.M)
    assert set(used) == set(shown)


def test_every_file_of_kubernetes_is_applied() -> None:
    listed = read("deploy/kubernetes/kustomization.yaml")["resources"]
    assert {path.name for path in KUBERNETES.iterdir()} == {*listed, "kustomization.yaml"}
    assert set(OBJECTS) == {
        "Deployment",
        "Job",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "Service",
        "ServiceMonitor",
    }


def probes() -> dict[str, str]:
    """Return the path that each probe requests."""
    return {
        "image": re.search(r"127\.0\.0\.1:\d+(/\w+)", instruction("    CMD"))[1],  # type: ignore[index]
        "startup": API["startupProbe"]["httpGet"]["path"],
        "liveness": API["livenessProbe"]["httpGet"]["path"],
        "readiness": API["readinessProbe"]["httpGet"]["path"],
        "monitor": OBJECTS["ServiceMonitor"]["spec"]["endpoints"][0]["path"],
    }


@pytest.mark.parametrize("path", probes().values(), ids=probes())
def test_probe_paths_exist(app: Flask, path: str) -> None:
    assert app.test_client().get(path).status_code == 200


def test_readiness_decides_about_requests() -> None:
    assert probes() == {
        "image": "/healthz",
        "startup": "/healthz",
        "liveness": "/healthz",
        "readiness": "/readyz",
        "monitor": "/metrics",
    }


def test_proxy_hides_the_probes() -> None:
    [hidden] = re.findall(r"location ~ (\S+) \{\s+return 404;", NGINX)
    assert all(re.match(hidden, path) for path in probes().values())
    assert not re.match(hidden, "/resource_providers")


def test_ports_agree() -> None:
    assert instruction("EXPOSE") == str(PORT)
    assert f"127.0.0.1:{PORT}/" in instruction("    CMD")
    assert COMPOSE["services"]["api"]["ports"] == [f"${{API_ADDRESS:-127.0.0.1:{PORT}}}:{PORT}"]
    assert re.findall(r"server (\w+):(\d+) ", NGINX) == [("api", str(PORT))]
    [listened] = re.findall(r"listen (\d+);", NGINX)
    assert REPLICAS["services"]["proxy"]["ports"] == [f"${{API_ADDRESS:-127.0.0.1:{PORT}}}:{listened}"]
    [scraped] = read("deploy/prometheus/prometheus.yml")["scrape_configs"]
    assert scraped["dns_sd_configs"][0]["port"] == PORT
    [port] = API["ports"]
    assert port["containerPort"] == PORT
    [published] = OBJECTS["Service"]["spec"]["ports"]
    assert (published["port"], published["targetPort"]) == (PORT, port["name"])
    assert OBJECTS["ServiceMonitor"]["spec"]["endpoints"][0]["port"] == published["name"]
    assert OBJECTS["NetworkPolicy"]["spec"]["ingress"][0]["ports"] == [{"port": PORT}]
    for words in commands():
        if "--port" in words:
            assert words[words.index("--port") + 1] == str(PORT)


@pytest.mark.parametrize("services", [COMPOSE["services"], REPLICAS["services"]])
def test_compose_publishes_on_loopback_only(services: dict[str, Any]) -> None:
    for service in services.values():
        for port in service.get("ports", []):
            address = re.sub(r"\$\{\w+:-(.*)\}", r"\1", port).split(":")[0]
            assert ip_address(address).is_loopback


def test_replicas_are_reached_through_the_proxy_only() -> None:
    assert REPLICAS["services"]["api"]["ports"] == []
    assert REPLICAS["services"]["api"]["deploy"]["replicas"] == 2


def test_proxy_overwrites_every_header_that_the_service_trusts() -> None:
    assert REPLICAS["services"]["api"]["environment"]["PLACEMENT_PROXY_HEADERS"] == "1"
    written = set(re.findall(r"proxy_set_header (\S+)", NGINX))
    assert written >= {"Host", "Forwarded", *(f"X-Forwarded-{name.title()}" for name in proxy.PATTERNS)}


def test_proxy_notices_responses_that_were_cut() -> None:
    """By default, nginx may speak HTTP/1.0, in which the end of the connection ends a response."""
    location = NGINX[NGINX.index("proxy_pass") :]
    assert re.findall(r"^ *proxy_http_version (\S+);", location, re.M) == ["1.1"]
    assert re.findall(r"^ *proxy_set_header Connection (\S+);", location, re.M) == ['""']


def test_proxy_limits_are_not_below_those_of_the_service() -> None:
    assert re.findall(r"client_max_body_size (\d+)m", NGINX) == [str(Settings().max_body // 2**20)]
    [seconds] = re.findall(r"proxy_read_timeout (\d+)s", NGINX)
    assert int(seconds) > Settings().request_deadline


def test_proxy_skips_a_stopped_replica_and_retries_it_soon() -> None:
    """By default, nginx waits a minute for a stopped replica, and then skips it for ten seconds."""
    for limit in ("proxy_connect_timeout", "fail_timeout="):
        [seconds] = re.findall(rf"{limit} ?(\d+)s;", NGINX)
        assert int(seconds) <= 2, limit


def test_images_are_pinned() -> None:
    images = re.findall(r"^ARG PYTHON_IMAGE=(\S+)", DOCKERFILE, re.M)
    images += [s["image"] for s in (COMPOSE["services"] | REPLICAS["services"]).values() if "image" in s]
    assert len(images) == 4
    assert [image for image in images if not re.search(r":v?\d+\.\d+", image)] == []


def test_image_is_built_from_all_files_that_the_build_needs() -> None:
    copied = {
        name for words in re.findall(r"^COPY (?!--)(.*) \S+$", DOCKERFILE, re.M) for name in words.split()
    } - {"deploy/image"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {project["project"]["readme"], *project["project"]["license-files"], *wheel["packages"]}
    assert copied == needed | {*wheel["force-include"], "pyproject.toml"}
    sent = re.findall(r"^!(.*)$", (ROOT / ".dockerignore").read_text(), re.M)
    assert copied | {"deploy/image"} == set(sent)


def test_kubernetes_runs_the_image_of_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    [image] = read("deploy/kubernetes/kustomization.yaml")["images"]
    assert image == {"name": "placement-svc", "newTag": version}
    for pod in PODS.values():
        assert [container["image"] for container in pod["containers"]] == [image["name"]]


def test_image_runs_as_an_unprivileged_user() -> None:
    user, group = instruction("USER").split(":")
    assert min(int(user), int(group)) > 0
    for pod in PODS.values():
        context = pod["securityContext"]
        assert context["runAsNonRoot"]
        assert (context["runAsUser"], context["runAsGroup"]) == (int(user), int(group))


def test_containers_have_minimal_privileges() -> None:
    for pod in PODS.values():
        assert not pod["automountServiceAccountToken"]
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"]
            assert not context["allowPrivilegeEscalation"]
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert {"requests", "limits"} == set(container["resources"])
    services = COMPOSE["services"] | {k: v for k, v in REPLICAS["services"].items() if k != "api"}
    for name in set(services) - {"database"}:
        assert services[name]["read_only"], name
        assert services[name]["cap_drop"] == ["ALL"], name


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    return selector.items() <= labels.items()


def test_selectors_match_only_the_pods_of_the_api() -> None:
    common = read("deploy/kubernetes/kustomization.yaml")["labels"][0]["pairs"]
    labels = {
        kind: OBJECTS[kind]["spec"]["template"]["metadata"]["labels"] | common
        for kind in ("Deployment", "Job")
    }
    for selector in (
        OBJECTS["Deployment"]["spec"]["selector"]["matchLabels"],
        OBJECTS["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        OBJECTS["Service"]["spec"]["selector"],
    ):
        assert selects(selector, labels["Deployment"])
        assert not selects(selector, labels["Job"])
    policy = OBJECTS["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"]
    assert all(selects(policy, of_pod) for of_pod in labels.values())
    monitored = OBJECTS["ServiceMonitor"]["spec"]["selector"]["matchLabels"]
    assert selects(monitored, OBJECTS["Service"]["metadata"]["labels"])


def test_network_policy_selects_pods_of_others_without_the_labels_of_the_service() -> None:
    """Kustomize adds the common labels to each `matchLabels` of a pod selector, also in peers."""
    assert read("deploy/kubernetes/kustomization.yaml")["labels"][0]["includeSelectors"]
    policy = OBJECTS["NetworkPolicy"]["spec"]
    peers = [peer for rule in policy["ingress"] for peer in rule["from"]]
    peers += [peer for rule in policy["egress"] for peer in rule["to"]]
    selectors = [peer["podSelector"] for peer in peers if "podSelector" in peer]
    assert selectors == [{"matchExpressions": [{"key": "k8s-app", "operator": "In", "values": ["kube-dns"]}]}]


def test_terminating_pods_have_time_to_drain() -> None:
    environment = {setting["name"]: setting.get("value") for setting in API["env"]}
    drain = int(environment["PLACEMENT_DRAIN"])
    readiness = API["readinessProbe"]
    assert drain > readiness["periodSeconds"] * readiness["failureThreshold"]
    assert PODS["Deployment"]["terminationGracePeriodSeconds"] >= drain + 35


def test_replicas_share_the_key_of_the_console() -> None:
    assert OBJECTS["Deployment"]["spec"]["replicas"] > 1
    [setting] = [setting for setting in API["env"] if setting["name"] == "PLACEMENT_CONSOLE_SECRET"]
    [reference] = setting["valueFrom"].values()
    create = rf"secret generic {reference['name']} --from-literal={reference['key']}="
    documented = re.findall(create, (ROOT / "docs/operations.md").read_text())
    assert len(documented) == 2, "once for deploy/kubernetes and once for deploy/cloudnative-pg"


def test_secrets_are_references() -> None:
    for pod in PODS.values():
        for container in pod["containers"]:
            named = [s for s in container["env"] if s["name"] == "PLACEMENT_DATABASE_URL"]
            assert [set(setting) for setting in named] == [{"name", "valueFrom"}]
