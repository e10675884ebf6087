"""docs/tutorials/kubernetes.md: its manifests are valid, its program and its probe do what it says.

``bench/rollout.py`` plays the rollouts; the slow tests run it and hold it to what the page says.
"""

from __future__ import annotations

import copy
import inspect
import json
import os
import re
import signal
import subprocess
import sys
from itertools import product
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from bench import rollout
from confluent_kafka import ConsumerGroupTopicPartitions
from tests.live.crew import Topic, admin_of, fresh
from tests.live.waiting import until
from tests.suites import further
from tools.measured import kept
from tools.pages.rollouts import COMMAND

from holdfast import Consumer

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tutorials" / "kubernetes.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r'^```\w+ title="([\w.]+)"\n(.*?)^```$', PAGE, re.M | re.S))
MANIFESTS = {name: yaml.safe_load(text) for name, text in FILES.items() if name.endswith(".yaml")}
OWN = sorted(set(MANIFESTS) - {"scale.yaml"})  # of Kubernetes itself
VERSIONS = ("1.29", "1.37")
PODS = ("deployment.yaml", "statefulset.yaml")
CODES = {"pod.py": 128 + signal.SIGTERM, "drop_in.py": 0}
"""Program -> what it exits with at SIGTERM."""


def refused(manifest, version):
    """Why the API server would refuse a manifest; "" where it takes it."""
    try:
        kubernetes_validate.validate(manifest, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", OWN)
def test_a_manifest_is_what_kubernetes_takes(name, version):
    assert refused(MANIFESTS[name], version) == ""


@pytest.mark.parametrize("name", OWN)
def test_a_wrong_manifest_is_refused(name):
    unknown, wrong = copy.deepcopy(MANIFESTS[name]), copy.deepcopy(MANIFESTS[name])
    unknown["spec"]["terminationGracePeriod"] = 60
    assert "terminationGracePeriod" in refused(unknown, VERSIONS[-1])
    wrong["spec"] = "three"
    assert refused(wrong, VERSIONS[-1])


def container(name):
    return MANIFESTS[name]["spec"]["template"]["spec"]["containers"][0]


@pytest.mark.parametrize("program", CODES)
@pytest.mark.parametrize("name", PODS)
def test_a_pod_has_what_its_program_reads(name, program):
    given = {one["name"] for one in container(name)["env"]}
    needed = set(re.findall(r'os\.environ\["(\w+)"\]', FILES[program]))
    assert needed
    assert needed - {"INSTANCE_ID"} <= given
    assert ("INSTANCE_ID" in given) == (name == "statefulset.yaml")
    template = MANIFESTS[name]["spec"]
    assert template["selector"]["matchLabels"] == template["template"]["metadata"]["labels"]
    assert container(name)["command"] == ["python", "pod.py"]


@pytest.mark.parametrize("name", PODS)
def test_the_grace_period_is_longer_than_a_hand_over(name):
    grace = MANIFESTS[name]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    hand_over_s = inspect.signature(Consumer.close).parameters["timeout"].default
    assert grace > hand_over_s + 25


def test_the_metric_of_the_autoscalers_is_one_that_is_served():
    query = MANIFESTS["scale.yaml"]["spec"]["triggers"][0]["metadata"]["query"]
    metric = MANIFESTS["autoscaler.yaml"]["spec"]["metrics"][0]["external"]["metric"]["name"]
    assert f"sum({metric}{{" in query
    assert f"| `{metric}` | consumergroup" in (ROOT / "docs/cli.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_keda_takes_its_manifest(tmp_path):
    """Its model drops what it does not know, so what is left must be all of it."""
    home, uv = tmp_path / "env", str(Path(sys.executable).parent / "uv")
    subprocess.run([uv, "venv", "-q", str(home)], check=True)
    install = [uv, "pip", "install", "-q", "--python", str(home), "cloudcoil-models-keda"]
    subprocess.run(install, check=True)
    show = (
        "import json, sys\nfrom cloudcoil.models.keda.v1alpha1 import ScaledObject\n"
        "made = ScaledObject.model_validate(json.load(sys.stdin))\n"
        "print(json.dumps(made.model_dump(exclude_none=True, by_alias=True, mode='json')))"
    )

    def left(manifest):
        command = [str(home / "bin" / "python"), "-c", show]
        given = json.dumps(manifest)
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else done.stderr

    manifest = MANIFESTS["scale.yaml"]
    assert left(manifest) == manifest
    wrong = copy.deepcopy(manifest)
    wrong["spec"]["maxReplicas"] = 3
    assert left(wrong) != wrong


@pytest.mark.broker
@pytest.mark.parametrize(
    ("name", "program"),
    further(product(PODS, CODES), [(PODS[0], "pod.py"), (PODS[1], "drop_in.py")]),
)
def test_a_program_runs_as_its_manifest_says(broker, tmp_path, name, program):
    """And what it has read when SIGTERM comes is committed."""
    topic, group, ready = Topic(broker.bootstrap, 3), fresh("g"), tmp_path / "ready"
    text = FILES[program].replace('"orders"', repr(topic.name)).replace('"etl"', repr(group))
    (tmp_path / program).write_text(text, encoding="utf-8")
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    for one in container(name)["env"]:
        env[one["name"]] = one.get("value", "etl-0")
    env |= {"BROKERS": broker.bootstrap, "READY_FILE": str(ready)}
    probe = container(name)["readinessProbe"]["exec"]["command"]
    probe = [word.replace("/tmp/ready", str(ready)) for word in probe]

    def is_ready():
        return subprocess.run(probe, capture_output=True, check=False).returncode == 0

    assert not is_ready()
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(
            [sys.executable, program], cwd=tmp_path, env=env, stdout=log, stderr=log
        ) as pod,
    ):
        try:
            until(lambda: is_ready() or pod.poll() is not None, "the pod is ready")
            topic.produce(5)
            until(lambda: "record" in (tmp_path / "log").read_text(), "the pod reads")
            os.utime(ready, (1, 1))  # a member that hangs
            assert not is_ready() or ready.stat().st_mtime > 1
            pod.send_signal(signal.SIGTERM)
            assert pod.wait(120) == CODES[program]
        finally:
            pod.kill()
    assert not ready.exists()
    assert sum(committed_of(broker.bootstrap, group)) > 0


def committed_of(bootstrap, group):
    """The committed offsets of a group."""
    asked = admin_of(bootstrap).list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    return [at.offset for at in asked[group].result(60).topic_partitions]


def sound(line):
    """What a rollout promises, whatever the machine."""
    assert line["lost"] == 0
    assert line["killed"] == (1 if line["scenario"].startswith("hang") else 0)
    if not line["scenario"].startswith("hang"):
        assert line["twice"] == 0
    if line["scenario"].startswith("static"):
        assert line["changes"] == 0
    if line["scenario"] == "swap-deferred":
        assert line["changes"] == 12


def test_the_kept_figures_are_sound():
    assert sorted(line["scenario"] for line in kept(COMMAND)) == sorted(rollout.SCENARIOS)
    for line in kept(COMMAND):
        sound(line)


@pytest.mark.slow
@pytest.mark.broker
@pytest.mark.parametrize("scenario", rollout.SCENARIOS)
def test_a_rollout_is_played(scenario, broker):
    """Each lasts one to two minutes."""
    sound(rollout.run(broker.bootstrap, scenario))
