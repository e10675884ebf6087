"""The install lines of docs/install.md in empty environments, and a command of each face after.

The library: assignors and state machines. Members: a consumer on the broker. The pipeline: the
``holdfast`` command on a dump, with Spark.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from tests.live.processes import create_topic
from tests.live.waiting import until
from tests.packaging.building import README, built, install_lines
from tests.stores import servers

from holdfast.local.java import find_java

pytestmark = [pytest.mark.slow, pytest.mark.broker]

LIBRARY = re.findall(r"^```python\n(.*?)^```$", README, re.M | re.S)[-1]
OUR_CONFIG = "{'bootstrap.servers': BROKER, 'group.id': GROUP, 'auto.offset.reset': 'earliest'}"
READ = "n = 0\nwhile n < 20: n += len(consumer.poll(1.0))\nconsumer.close()\nprint('read', n)\n"
CONSUMER = (
    f"from holdfast import Consumer\nconsumer = Consumer({OUR_CONFIG})\n"
    f"consumer.subscribe([TOPIC])\n{READ}"
)
CONFLUENT = (
    f"from holdfast.confluent import Consumer\nconsumer = Consumer({OUR_CONFIG})\n"
    "consumer.subscribe([TOPIC])\nn = 0\n"
    "while n < 20: n += len(consumer.consume(20, 1.0))\nconsumer.close()\nprint('read', n)\n"
)
KAFKA = (
    "from holdfast.kafka import KafkaConsumer\n"
    "consumer = KafkaConsumer(TOPIC, bootstrap_servers=BROKER, group_id=GROUP,"
    " auto_offset_reset='earliest')\nn = 0\n"
    "while n < 20: n += sum(map(len, consumer.poll(1000).values()))\n"
    "consumer.close()\nprint('read', n)\n"
)
STOCK = (
    "from kafka import KafkaConsumer\n"
    "from holdfast.kafka import CooperativeSticky\n"
    "consumer = KafkaConsumer(TOPIC, bootstrap_servers=BROKER, group_id=GROUP,"
    " auto_offset_reset='earliest',"
    " partition_assignment_strategy=[CooperativeSticky()])\nn = 0\n"
    "while n < 20: n += sum(map(len, consumer.poll(1000).values()))\n"
    "consumer.close()\nprint('read', n)\n"
)
AIOKAFKA = """
import asyncio
from holdfast.aiokafka import AIOKafkaConsumer
async def main():
    consumer = AIOKafkaConsumer(
        TOPIC, bootstrap_servers=BROKER, group_id=GROUP, auto_offset_reset='earliest')
    await consumer.start()
    for _ in range(20):
        await consumer.getone()
    await consumer.stop()
    print('read', 20)
asyncio.run(main())
"""
DELTA = """
from holdfast.fleet.pipeline.session import get_session
spark = get_session()
print('rows', spark.read.format('delta').load(f'{TABLES}/rebalances').count())
spark.stop()
"""
HISTORY = ("holdfast", "history", "--input", "{dump}", "--format", "json", "-q")
SIMULATE = ("holdfast", "simulate", "--scenario", "rolling-bounce", "--policy", "deferred")
SMALL = ("--members", "4", "--partitions", "16")

SIGN = (
    "from holdfast.cluster.tokens import aws_tokens; "
    "print(aws_tokens('eu-west-1', dict())().principal)"
)
FACES: dict[str, tuple[tuple[tuple[str, ...], str], ...]] = {
    "": (((LIBRARY,), "{'C0': {'orders'"), ((*SIMULATE, *SMALL), "partition")),
    "members": tuple(
        ((program,), "read 20") for program in (CONSUMER, CONFLUENT, KAFKA, STOCK, AIOKAFKA)
    ),
    "fleet": (
        (HISTORY, "{group}"),
        (("holdfast", "dump", "-b", "{broker}", "-o", "{folder}/dump"), ""),
        (("holdfast", "lag", "-b", "{broker}", "--group", "{group}", "-q"), "{topic}"),
        (("python", "-c", "import obstore.store"), ""),
        (("python", "-c", "import prometheus_client"), ""),
        (("holdfast", "serve", "--input", "{tables}", "--listen", "127.0.0.1:0"), "{group}"),
    ),
    "aws": (
        (("env", "AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b", "python", "-c", SIGN), "aws"),
    ),
    "kerberos": ((("python", "-c", "import gssapi; print('built')"), "built"),),
    "keystores": (
        (("python", "-c", "from cryptography.hazmat.primitives.serialization import pkcs12"), ""),
    ),
    "spark": (
        (("holdfast", "doctor", "-b", "{broker}", "--engine", "spark", "-q"), "{group}"),
        ((DELTA,), "rows "),
    ),
    "all": (
        ((CONSUMER,), "read 20"),
        (("env", "SPARK_REMOTE=local[1]", "SPARK_TESTING=1", *HISTORY), "{group}"),
        (("holdfast", "history", "--input", "{hdfs}/dump", *HISTORY[4:]), "{group}"),
    ),
}
"""Extras -> commands that run with them alone, and what each of them says. One word is Python."""


@pytest.fixture(scope="module")
def made(broker, tmp_path_factory):
    """What the commands work on: the wheel, a topic of 20 records, a dump and its tables."""
    folder = tmp_path_factory.mktemp("installed")
    built("wheel", folder / "dist")
    topic = create_topic(broker.bootstrap, 4)
    import confluent_kafka

    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(20):
        producer.produce(topic, b"x", partition=number % 4)
    assert producer.flush(60) == 0
    names = {
        "folder": folder,
        "broker": broker.bootstrap,
        "topic": topic,
        "group": f"{topic}-group",
        "dump": folder / "made",
        "tables": folder / "tables",
    }
    home = Path(sys.executable).parent
    run(home, (CONSUMER,), names)
    run(home, ("holdfast", "dump", "-b", "{broker}", "-o", "{dump}"), names)
    run(home, (*HISTORY, "-o", "{tables}"), names)
    with servers.hdfs(folder / "hdfs") as url:
        run(
            home, ("holdfast", "dump", "-b", "{broker}", "-o", "{hdfs}/dump"), names | {"hdfs": url}
        )
        yield {**names, "hdfs": url}


def environment_of(home: Path) -> dict[str, str]:
    """Variables of a shell that has an environment of Python on its path, and nothing of ours."""
    foreign = ("PYTHON", "PYSPARK", "SPARK", "VIRTUAL_ENV", "HOLDFAST")
    own = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    java = str(find_java().home)
    return {**own, "PATH": f"{home}:{own['PATH']}", "JAVA_HOME": java, "PIP_QUIET": "1"}


def run(home: Path, words: tuple[str, ...], names: dict[str, object]) -> str:
    """Run one command, or one word of Python, in an environment; return what it wrote."""
    if len(words) == 1:
        where = f"BROKER, TOPIC = {names['broker']!r}, {names['topic']!r}\n"
        where += f"GROUP, TABLES = {names['group']!r}, {str(names['tables'])!r}\n"
        command = [str(home / "python"), "-c", where + words[0]]
    else:
        command = [word.format(**names) if "{" in word else word for word in words]
    if "serve" in words:
        return served(command, home)
    done = subprocess.run(
        command,
        cwd=str(names["folder"]),
        env=environment_of(home),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def served(command: list[str], home: Path) -> str:
    """The first page of a server, which SIGINT ends."""
    with subprocess.Popen(
        command, env=environment_of(home), stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stderr is not None
        try:
            lines = iter(server.stderr.readline, "")
            url = next(found[0] for line in lines if (found := re.search(r"http://\S+/", line)))
            answers: list[str] = []
            until(
                lambda: answers or answers.extend(fetched(f"{url}metrics")), "the tables are read"
            )
            return answers[0]
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(60)


def fetched(url: str) -> list[str]:
    """What a server answers; nothing while it still reads the tables."""
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return [answer.read().decode()]
    except urllib.error.HTTPError as error:
        assert error.code == 503
        return []


def test_every_line_has_a_face():
    assert set(FACES) == set(install_lines())


@pytest.mark.parametrize("extras", FACES, ids=lambda extras: extras or "none")
def test_an_install_line_brings_what_its_face_needs(made, tmp_path, extras):
    home = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    line, bin_ = install_lines()[extras], home / "bin"
    run(bin_, ("sh", "-c", line), made)
    where = run(bin_, ("python", "-c", "import holdfast; print(holdfast.__file__)"), made)
    assert where.startswith(str(home))
    for number, (words, said) in enumerate(FACES[extras]):
        # A command that reads records has a group of its own; the others ask for the dump's.
        own = {"group": f"{made['group']}-{extras}-{number}"} if said.startswith("read") else {}
        names = {**made, "folder": tmp_path, **own}
        told = said.format(**names) if said in ("{group}", "{topic}") else said
        assert told in run(bin_, words, names), words


def test_an_extra_can_be_added_later(made, tmp_path):
    """``pip install 'kafka-holdfast[fleet]'`` keeps the holdfast that came as a file."""
    home, lines = tmp_path / "env", install_lines()
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    run(home / "bin", ("sh", "-c", lines[""]), made)
    run(home / "bin", ("sh", "-c", "pip install 'kafka-holdfast[fleet]'"), made)
    show = (
        "from importlib.metadata import version; import werkzeug; print(version('kafka-holdfast'))"
    )
    assert run(home / "bin", ("python", "-c", show), made).strip() in lines[""]
