"""The manifests for CloudNativePG agree with each other, and with those of `deploy/kubernetes`."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from placement_svc.db.connections.urls import check_options, parse_url
from tests.test_deploy import OBJECTS

OVERLAY = Path(__file__).parents[2] / "deploy/cloudnative-pg"


def read(name: str) -> Any:
    return yaml.safe_load((OVERLAY / name).read_text())


CLUSTER = read("cluster.yaml")
NAME = CLUSTER["metadata"]["name"]
PATCHES = {"Deployment": read("service-patch.yaml"), "Job": read("migration-patch.yaml")}


def urls(kind: str) -> dict[str, str]:
    """Return the database URLs of a patch by setting."""
    values = [step["value"] for step in PATCHES[kind] if isinstance(step["value"], dict)]
    return {value["name"]: value["value"] for value in values if value["name"].endswith("_URL")}


def test_every_file_is_listed() -> None:
    kustomization = read("kustomization.yaml")
    listed = {*kustomization["resources"], *(patch["path"] for patch in kustomization["patches"])}
    files = {path.name for path in OVERLAY.iterdir()} - {"kustomization.yaml", "pooler.yaml"}
    assert listed == files | {"../kubernetes"}
    assert "# - pooler.yaml" in (OVERLAY / "kustomization.yaml").read_text()


def test_patched_objects_exist() -> None:
    for patch in read("kustomization.yaml")["patches"]:
        assert OBJECTS[patch["target"]["kind"]]["metadata"]["name"] == patch["target"]["name"]


@pytest.mark.parametrize("kind", PATCHES)
def test_patches_replace_what_they_mean_to(kind: str) -> None:
    pod = OBJECTS[kind]["spec"]["template"]["spec"]
    first, *_ = pod["containers"][0]["env"]
    assert first["name"] == "PLACEMENT_DATABASE_URL"
    assert [step["op"] for step in PATCHES[kind]][:2] == ["replace", "add"]
    [tested] = [step for step in PATCHES[kind] if step["op"] == "test"]
    index = int(tested["path"].split("/")[-2])
    assert pod["volumes"][index]["name"] == tested["value"] == "database-ca"
    [(path, secret)] = [
        (step["path"], step["value"]) for step in PATCHES[kind] if step["path"].endswith("secretName")
    ]
    assert path == f"/spec/template/spec/volumes/{index}/secret/secretName"
    assert secret == f"{NAME}-ca"


@pytest.mark.parametrize("kind", PATCHES)
def test_urls_reach_the_cluster_with_verified_certificates(kind: str) -> None:
    initdb = CLUSTER["spec"]["bootstrap"]["initdb"]
    [container] = OBJECTS[kind]["spec"]["template"]["spec"]["containers"]
    directories = [
        mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == "database-ca"
    ]
    for setting, text in urls(kind).items():
        url = parse_url(text)
        check_options(url)
        assert (url.username, url.database) == (initdb["owner"], initdb["database"])
        assert url.password == "$(DATABASE_PASSWORD)"
        assert url.host == (f"{NAME}-ro" if setting == "PLACEMENT_READ_URL" else f"{NAME}-rw")
        assert url.query["sslmode"] == "verify-full"
        assert [url.query["sslrootcert"]] == [f"{directory}/ca.crt" for directory in directories]


@pytest.mark.parametrize("kind", PATCHES)
def test_the_password_is_defined_before_the_urls(kind: str) -> None:
    password = PATCHES[kind][0]["value"]
    assert password["name"] == "DATABASE_PASSWORD"
    assert password["valueFrom"]["secretKeyRef"] == {"name": f"{NAME}-app", "key": "password"}


def test_certificate_has_the_names_of_the_pooler() -> None:
    name = read("pooler.yaml")["metadata"]["name"]
    service = f"{name}.{read('kustomization.yaml')['namespace']}.svc"
    names = CLUSTER["spec"]["certificates"]["serverAltDNSNames"]
    assert names == [name, service.removesuffix(".svc"), service, f"{service}.cluster.local"]


def test_a_commit_waits_for_a_standby() -> None:
    assert CLUSTER["spec"]["instances"] == 3
    synchronous = CLUSTER["spec"]["postgresql"]["synchronous"]
    assert synchronous == {"method": "any", "number": 1, "dataDurability": "required"}


def test_backups_go_to_the_archive_of_the_cluster() -> None:
    [plugin] = CLUSTER["spec"]["plugins"]
    backup = read("scheduled-backup.yaml")["spec"]
    assert plugin["isWALArchiver"]
    assert plugin["parameters"]["barmanObjectName"] == read("object-store.yaml")["metadata"]["name"]
    assert backup["cluster"]["name"] == read("pooler.yaml")["spec"]["cluster"]["name"] == NAME
    assert backup["pluginConfiguration"]["name"] == plugin["name"]
    assert len(backup["schedule"].split()) == 6
