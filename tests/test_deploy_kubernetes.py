"""The Kubernetes manifests: each is valid, all fit together, and the pods' settings are ours.

There is no cluster here, so the manifests are read as kustomize would gather them, and validated against the
schemas of Kubernetes itself. Where kubectl is installed, what it builds is compared.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from balancer import BINARY
from test_monitoring import have_a_call, missing, series_of
from visavis.settings import load

DEPLOY = Path(__file__).parents[1] / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
BASE = KUBERNETES / "base"
OVERLAYS = ("base", "monitored", "hpa", "keda")
VERSIONS = ("1.28.0", kubernetes_validate.latest_version())
NOT_OF_KUBERNETES = ("monitoring.coreos.com/", "keda.sh/")
"Groups of others, of which no schemas are packaged."

Manifest = dict[str, Any]  # Any: values of YAML


@dataclass
class Built:
    """What kustomize gathers, names as they are written."""

    manifests: list[Manifest] = field(default_factory=list)
    keys: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    "Of each generated ConfigMap and Secret, by kind and name."

    def of(self, *kinds: str) -> list[Manifest]:
        return [manifest for manifest in self.manifests if manifest["kind"] in kinds]

    def get(self, kind: str, name: str) -> Manifest:
        (found,) = (m for m in self.of(kind) if m["metadata"]["name"] == name)
        return found


def gather(folder: Path) -> Built:
    settings = yaml.safe_load((folder / "kustomization.yaml").read_text())
    known = {
        *("apiVersion", "kind", "namespace", "resources", "images", "configurations"),
        *("configMapGenerator", "secretGenerator"),
    }
    assert set(settings) <= known
    built = Built()
    for name in settings.get("resources", ()):
        if (folder / name).is_dir():
            inner = gather((folder / name).resolve())
            built.manifests += inner.manifests
            built.keys |= inner.keys
        else:
            built.manifests += yaml.safe_load_all((folder / name).read_text())
    for kind in ("ConfigMap", "Secret"):
        for generated in settings.get(f"{kind[0].lower()}{kind[1:]}Generator", ()):
            files = generated.get("files", [])
            assert all((folder / file).is_file() for file in files)
            built.keys[kind, generated["name"]] = {*files} | {
                line.partition("=")[0]
                for env in generated.get("envs", ())
                for line in (folder / f"{env}.example").read_text().splitlines()
                if line and not line.startswith("#")
            }
    return built


@pytest.fixture(params=OVERLAYS)
def built(request: pytest.FixtureRequest) -> Built:
    return gather(KUBERNETES / request.param)


@pytest.fixture
def everything() -> Built:
    """All manifests there are, also those of which only one is used."""
    keda, hpa = gather(KUBERNETES / "keda"), gather(KUBERNETES / "hpa")
    return Built([*keda.manifests, *hpa.of("HorizontalPodAutoscaler")], keda.keys)


def pods(built: Built) -> Iterator[tuple[str, Manifest]]:
    for manifest in built.of("StatefulSet", "Deployment"):
        yield manifest["metadata"]["name"], manifest["spec"]["template"]


def containers(pod: Manifest) -> list[Manifest]:
    return [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]


def ports(pod: Manifest) -> set[tuple[str, str]]:
    """Return name and protocol of each port of a pod."""
    return {
        (port["name"], port.get("protocol", "TCP"))
        for container in containers(pod)
        for port in container.get("ports", ())
    }


def selected(built: Built, selector: Manifest) -> list[Manifest]:
    """Return the pods that labels select."""
    return [
        pod
        for _, pod in pods(built)
        if selector.items() <= {**pod["metadata"]["labels"]}.items() and selector
    ]


def find(value: Any, name: str) -> Iterator[Any]:
    """Give what stands under this name, anywhere below."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == name:
                yield inner
            yield from find(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from find(inner, name)


# Each by itself.


def test_every_file_is_used_and_every_manifest_there_once(everything: Built) -> None:
    used = set()
    for folder in KUBERNETES.iterdir():
        settings = yaml.safe_load((folder / "kustomization.yaml").read_text())
        names = [*settings["resources"], *settings.get("configurations", ()), "kustomization.yaml"]
        for generated in (*settings.get("configMapGenerator", ()), *settings.get("secretGenerator", ())):
            names += generated.get("files", []) + [f"{env}.example" for env in generated.get("envs", ())]
        used |= {(folder / name).resolve() for name in names}
    assert {path for path in KUBERNETES.rglob("*") if path.is_file() and path.name != "secrets.env"} <= used
    images = {image["name"] for image in yaml.safe_load((BASE / "kustomization.yaml").read_text())["images"]}
    assert images <= {c["image"] for _, pod in pods(everything) for c in containers(pod)}
    names = [(m["kind"], m["metadata"]["name"]) for m in everything.manifests]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_manifest_is_what_kubernetes_takes(everything: Built, version: str) -> None:
    checked = 0
    for manifest in everything.manifests:
        if not manifest["apiVersion"].startswith(NOT_OF_KUBERNETES):
            kubernetes_validate.validate(manifest, version, strict=True)
            checked += 1
    assert checked > 15


@pytest.mark.parametrize("version", VERSIONS)
def test_the_schemas_find_a_misspelt_field(everything: Built, version: str) -> None:
    manifest = everything.get("StatefulSet", "visavis")
    manifest["spec"]["template"]["spec"]["terminationGracePeriod"] = 630
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(manifest, version, strict=True)


def test_containers_are_confined(everything: Built) -> None:
    for name, pod in pods(everything):
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"], name
        assert spec["securityContext"]["runAsUser"] > 0, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert spec["automountServiceAccountToken"] is False, name
        # Else a service named visavis would become VISAVIS_… settings, which stop the start.
        assert spec["enableServiceLinks"] is False, name
        for container in containers(pod):
            confined = container["securityContext"]
            assert confined["allowPrivilegeEscalation"] is False, name
            assert confined["readOnlyRootFilesystem"] is True, name
            assert confined["capabilities"]["drop"] == ["ALL"], name
            assert {"cpu", "memory"} <= set(container["resources"]["requests"]), name
            assert "memory" in container["resources"]["limits"], name
        for container in spec["containers"]:
            assert {"readinessProbe", "livenessProbe"} <= set(container), name


# Together.


def test_labels_services_and_ports_fit(built: Built) -> None:
    for manifest in built.of("StatefulSet", "Deployment"):
        selector = manifest["spec"]["selector"]["matchLabels"]
        assert len(selected(built, selector)) == 1, manifest["metadata"]["name"]
    for service in built.of("Service"):
        (pod,) = selected(built, service["spec"]["selector"])
        for port in service["spec"]["ports"]:
            assert (port["targetPort"], port.get("protocol", "TCP")) in ports(pod)
    for budget in built.of("PodDisruptionBudget"):
        assert len(selected(built, budget["spec"]["selector"]["matchLabels"])) == 1
    for monitor in built.of("PodMonitor"):
        (pod,) = selected(built, monitor["spec"]["selector"]["matchLabels"])
        assert monitor["spec"]["jobLabel"] in pod["metadata"]["labels"]
        for endpoint in monitor["spec"]["podMetricsEndpoints"]:
            assert (endpoint["port"], "TCP") in ports(pod)
            credentials = endpoint["authorization"]["credentials"]
            assert credentials["key"] in built.keys["Secret", credentials["name"]]
    server = built.get("StatefulSet", "visavis")
    assert built.get("Service", server["spec"]["serviceName"])["spec"]["clusterIP"] == "None"


def test_policies_select_pods_and_name_their_ports(built: Built) -> None:
    for policy in built.of("NetworkPolicy"):
        (pod,) = selected(built, policy["spec"]["podSelector"]["matchLabels"])
        for rule in policy["spec"]["ingress"]:
            assert {(p["port"], p.get("protocol", "TCP")) for p in rule["ports"]} <= ports(pod)
            for peer in rule.get("from", ()):
                if "podSelector" in peer:
                    assert selected(built, peer["podSelector"]["matchLabels"])


def test_probes_name_ports_and_paths_that_there_are(built: Built) -> None:
    for name, pod in pods(built):
        for probe in find(pod, "httpGet"):
            assert (probe["port"], "TCP") in ports(pod)
            assert probe["path"] in {"engine": ("/health",)}.get(name, ("/healthz", "/readyz"))
        for probe in find(pod, "tcpSocket"):
            assert (probe["port"], "TCP") in ports(pod)


def test_what_pods_mount_and_read_is_there(built: Built) -> None:
    for name, pod in pods(built):
        templates = find(built.of("StatefulSet"), "volumeClaimTemplates") if name == "visavis" else ()
        volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
        volumes |= {claim["metadata"]["name"] for claims in templates for claim in claims}
        mounted = {m["name"] for c in containers(pod) for m in c["volumeMounts"]}
        assert mounted == volumes, name
        for reference in find(pod["spec"]["volumes"], "configMap"):
            assert built.keys["ConfigMap", reference["name"]]
        for reference in find(pod["spec"]["volumes"], "persistentVolumeClaim"):
            assert built.get("PersistentVolumeClaim", reference["claimName"])
        for reference in find(pod, "secretKeyRef"):
            assert reference["key"] in built.keys["Secret", reference["name"]], name
        # $(NAME) is put in only where the variable stands before.
        for container in containers(pod):
            known: set[str] = set()
            for variable in container.get("env", ()):
                assert {*re.findall(r"\$\((\w+)\)", variable.get("value", ""))} <= known, name
                known.add(variable["name"])
            for argument in (*container.get("args", ()), *container.get("command", ())):
                assert {*re.findall(r"\$\((\w+)\)", argument)} <= known, name


def environment(pod: Manifest, **fields: str) -> dict[str, str]:
    """Return the variables that a pod's first container has; secrets are their own names."""
    values: dict[str, str] = {}
    for variable in pod["spec"]["containers"][0]["env"]:
        match variable:
            case {"valueFrom": {"fieldRef": {"fieldPath": str(path)}}}:
                value = fields[path.replace(".", "_")]
            case {"valueFrom": {"secretKeyRef": {"key": str(key)}}}:
                value = f"the-{key}"
            case {"value": str(value)}:
                pass
        values[variable["name"]] = re.sub(r"\$\((\w+)\)", lambda match: values[match[1]], value)
    return values


def test_the_servers_settings_are_ours(everything: Built) -> None:
    pod = everything.get("StatefulSet", "visavis")["spec"]["template"]
    config = load(
        BASE / "visavis.toml", environment(pod, metadata_name="visavis-1", status_hostIP="203.0.113.5")
    )
    assert (config.server.node, config.rtc.advertise) == ("visavis-1", ("203.0.113.5",))
    assert config.server.keys == ("the-SERVER_KEYS",)
    assert config.engine.api_key == "the-ENGINE_API_KEY"
    assert config.resume.redis == "redis://:the-REDIS_PASSWORD@redis:6379/0"
    (relay,) = config.rtc.ice_servers
    assert (relay.urls, relay.secret) == (("turn:relay:3478",), "the-TURN_SECRET")

    # The ports of the settings are those of the pod, and each of media is one of the machine.
    (server,) = pod["spec"]["containers"]
    numbers = {(port["name"], port["containerPort"], port.get("hostPort")) for port in server["ports"]}
    media = {("media", config.rtc.udp_port, config.rtc.udp_port)}
    assert numbers == {("http", config.server.port, None), ("agent", config.server.agent_port, None)} | media
    assert config.server.workers == 1

    # Kubernetes waits until the calls have had their time.
    (pause,) = find(server["lifecycle"], "command")
    assert pause[0] == "sleep"
    assert pod["spec"]["terminationGracePeriodSeconds"] > config.server.drain_s + int(pause[1]) + 10

    # Services by the names and ports that the settings have.
    for kind, name, port in (("engine", "engine", 8000), ("redis", "redis", 6379), ("turn", "relay", 3478)):
        service = everything.get("Service", name)
        assert {p["port"] for p in service["spec"]["ports"]} == {port}, kind
    assert config.engine.url == "http://engine:8000"


def test_the_engines_settings_are_ours(everything: Built) -> None:
    pod = everything.get("Deployment", "engine")["spec"]["template"]
    config = load(BASE / "visavis.toml", environment(pod))
    (port,) = find(pod["spec"]["containers"], "containerPort")
    assert (config.deploy.host, config.deploy.port) == ("0.0.0.0", port)
    assert config.engine.api_key == "the-ENGINE_API_KEY"
    gpus = pod["spec"]["containers"][0]["resources"]
    assert gpus["limits"]["nvidia.com/gpu"] == gpus["requests"]["nvidia.com/gpu"] == "2"


# The balancer.


def test_the_balancer_knows_every_server_that_there_may_ever_be(everything: Built) -> None:
    servers = re.findall(r"(?m)^    server (\S+) (\S+)$", (BASE / "nodes.cfg").read_text())
    (most,) = {
        *(m["spec"]["maxReplicas"] for m in everything.of("HorizontalPodAutoscaler")),
        *(
            m["spec"]["maxReplicaCount"]
            for m in everything.of("ScaledObject")
            if m["metadata"]["name"] == "visavis"
        ),
    }
    names = [f"visavis-{number}" for number in range(most)]
    domain = "visavis.visavis.svc.cluster.local:8080"
    assert servers == [(name, f"{name}.{domain}") for name in names]
    settings = load(BASE / "visavis.toml", {})
    rules = (DEPLOY / "haproxy" / "haproxy.cfg").read_text()
    assert f"agent-port {settings.server.agent_port} " in rules


def certificate() -> dict[str, bytes]:
    """Make what a Secret of type kubernetes.io/tls holds."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    form = (Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    return {"tls.crt": made.public_bytes(Encoding.PEM), "tls.key": key.private_bytes(*form)}


@pytest.mark.haproxy
@pytest.mark.parametrize(
    "nodes", [BASE / "nodes.cfg", DEPLOY / "haproxy" / "nodes.cfg"], ids=lambda p: p.parent.name
)
def test_haproxy_takes_the_configuration(everything: Built, nodes: Path, tmp_path: Path) -> None:
    assert BINARY is not None
    pod = everything.get("Deployment", "balancer")["spec"]["template"]
    (items,) = find(pod["spec"]["volumes"], "items")
    content = certificate()
    for item in items:
        (tmp_path / item["path"]).write_bytes(content[item["key"]])
    bind = environment(pod)["BIND"].replace("/tls/", f"{tmp_path}/")
    rules = DEPLOY / "haproxy" / "haproxy.cfg"
    done = subprocess.run(
        [BINARY, "-c", "-f", rules, "-f", nodes], env={"BIND": bind}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr


# Scaling.


def test_scalers_scale_what_there_is(everything: Built) -> None:
    scalers = everything.of("HorizontalPodAutoscaler", "ScaledObject")
    assert len(scalers) == 3
    for scaler in scalers:
        spec = scaler["spec"]
        target = spec["scaleTargetRef"]
        scaled = everything.get(target["kind"], target["name"])
        assert scaled["apiVersion"] == target["apiVersion"]
        least = spec.get("minReplicas") or spec["minReplicaCount"]
        assert least == scaled["spec"]["replicas"]


async def test_scalers_ask_for_what_servers_count(
    everything: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    series = series_of(await have_a_call(tmp_path, monkeypatch))
    queries = [metric["name"] for metric in find(everything.of("HorizontalPodAutoscaler"), "metric")]
    for scaler in everything.of("ScaledObject"):
        for trigger in scaler["spec"]["triggers"]:
            assert trigger["type"] == "prometheus"
            assert {"serverAddress", "query", "threshold"} <= set(trigger["metadata"])
            assert all(isinstance(value, str) for value in trigger["metadata"].values())
            queries.append(trigger["metadata"]["query"])
    assert len(queries) == 3
    assert [fault for query in queries for fault in missing(query, series)] == []


def test_servers_are_added_before_they_are_full(everything: Built) -> None:
    most = load(BASE / "visavis.toml", {}).server.max_calls
    (wanted,) = find(everything.of("HorizontalPodAutoscaler"), "averageValue")
    (calls, _) = find(everything.of("ScaledObject"), "threshold")
    assert int(wanted) == int(calls) == 0.7 * most


# With kustomize itself.


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl")
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_kustomize_builds_the_same(tmp_path: Path, overlay: str) -> None:
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    base = tmp_path / "deploy" / "kubernetes" / "base"
    shutil.copy(base / "secrets.env.example", base / "secrets.env")
    done = subprocess.run(
        ["kubectl", "kustomize", base.parent / overlay], capture_output=True, text=True, check=True
    )
    found = list(yaml.safe_load_all(done.stdout))
    ours = gather(KUBERNETES / overlay)
    names = {(m["kind"], m["metadata"]["name"]) for m in ours.manifests}
    generated = {(m["kind"], re.sub(r"-[a-z0-9]{10}$", "", m["metadata"]["name"])) for m in found} - names
    assert generated == set(ours.keys)
    assert names <= {(m["kind"], m["metadata"]["name"]) for m in found}
    assert {m["metadata"].get("namespace") for m in found if m["kind"] != "Namespace"} == {"visavis"}
    text = json.dumps(found)
    for kind, name in ours.keys:
        # Every reference has the digest.
        assert not re.search(rf'"{name}"', text), (kind, name)
