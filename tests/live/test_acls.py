"""A private cluster: TLS, a login by SCRAM, and only what an ACL allows.

Every command and every client runs on it with the permissions of the page, and no others.
"""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AclPermissionType
from tests.cli.running import run
from tests.live.all_clients import DROP_INS
from tests.live.clients import CLIENTS, keywords
from tests.live.crew import QUICK, Topic, commit_alone, fresh
from tests.live.every_command import OF_ITS_OWN
from tests.live.run_broker import RunBroker, holding
from tests.live.security import DENY, PASSWORD, WAYS, Rule, entries
from tests.live.small_group import small_group
from tests.live.waiting import until
from tests.report.served import following, serving
from tests.suites import further

from holdfast import Consumer, Worker
from holdfast.cluster.cluster import LiveCluster
from holdfast.errors import HoldfastError, RemoteProtocolError, SourceError
from holdfast.fleet.pipeline.ingest.offsets_topic import OFFSETS_TOPIC, kafka_options
from holdfast.fleet.tables.reading import open_tables

pytestmark = pytest.mark.broker

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def table() -> dict[str, set[Rule]]:
    """Rules of each row of the page's table: what is run -> resource, name, operation."""
    text = PAGE.read_text(encoding="utf-8").split("## What a principal needs", 1)[1]
    found: dict[str, set[Rule]] = {}
    for line in text.split("\n## ", 1)[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != 2 or not line.startswith("| `"):
            continue
        rules = set()
        for operations, resource, name in re.findall(
            r"([A-Z][A-Z, ]*) on (topic|group|cluster) `([^`]+)`", cells[1]
        ):
            rules |= {(resource, name, operation) for operation in operations.split(", ")}
        for what in re.findall(r"`([^`]+)`", cells[0]):
            found[what] = rules
    return found


@pytest.fixture
def strict(broker, run_folder):
    """The run's broker; while somebody is named for everything, nobody else may do anything."""
    everything = {
        ("topic", "*", "READ"),
        ("group", "*", "READ"),
        ("cluster", "cluster", "DESCRIBE"),
    }
    with holding(run_folder, "rights"), entries(broker, everything, user="nobody"):
        yield broker


@pytest.fixture(scope="module")
def login(certificates) -> dict[str, str]:
    """What our user's clients are given."""
    return {**WAYS["SCRAM-512"], "ssl.ca.location": certificates.ca}


@pytest.fixture
def credentials(login, tmp_path) -> Path:
    """The same as a file for ``--command-config``."""
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in login.items()))
    return file


def allowed(broker: RunBroker, rules: set[Rule], **names: str) -> AbstractContextManager[None]:
    """Our user may do this, and nothing else, while the block lasts."""
    given = [(kind, names.get(name, name), operation) for kind, name, operation in sorted(rules)]
    return entries(broker, given)


COMMANDS = {name: more for name, more in OF_ITS_OWN.items() if name not in ("watch", "serve")}


@pytest.fixture(scope="module")
def lived(broker):
    group = fresh("group")
    with small_group(broker.bootstrap, group) as (topic, _):
        yield topic, group


@pytest.mark.spark
@pytest.mark.parametrize("command", further(COMMANDS))
def test_a_command_needs_no_more_than_the_page_says(
    spark, strict, lived, credentials, tmp_path, command
):
    more = [word.format(out=tmp_path) for word in COMMANDS[command]]
    with allowed(strict, table()[command]):
        at = strict.bootstrap_of("SCRAM")
        done = run(command, "-b", at, "--command-config", credentials, *more)
    assert done.code == 0, done.err


@pytest.mark.spark
def test_what_watch_keeps_of_it_is_compacted_exported_and_served(
    spark, strict, lived, credentials, tmp_path
):
    topic, group = lived
    folder = tmp_path / "tables"
    own = ("-b", strict.bootstrap_of("SCRAM"), "--command-config", credentials)
    with allowed(strict, table()["watch"]):
        run("watch", *own, "-o", folder).passed()
    # From here on nothing is asked of the cluster.
    for words in (
        ("tables", "compact", folder),
        ("doctor", "--input", folder),
        ("lag", "--input", folder),
        ("report", "--input", folder, "-o", tmp_path / "report.html"),
    ):
        run(*words).passed()
    lag = f'kafka_consumergroup_lag{{consumergroup="{group}",partition="0",topic="{topic}"}} 0.0'
    pages = served(folder, "/", "/metrics")
    assert group in pages[0] and lag in pages[1]
    assert PASSWORD not in "".join(pages)


def served(folder: Path, *paths: str) -> list[str]:
    """What a server of these tables answers, once all of it is examined."""
    with following(folder) as fleet, serving(fleet) as url, ExitStack() as stack:
        answers = [
            stack.enter_context(urllib.request.urlopen(url + path, timeout=60)) for path in paths
        ]
        return [answer.read().decode() for answer in answers]


@pytest.mark.every
@pytest.mark.spark
def test_every_rule_of_the_commands_is_needed(spark, strict, lived, login):
    """Without one of them a half fails, and says so, or a topic or a group is missing."""
    rules = table()["history"]
    topic, group = lived
    whole = {topic, group}

    def look() -> set[str]:
        cluster = LiveCluster(bootstrap=strict.bootstrap_of("SCRAM"), config=dict(login))
        cluster.check()
        ends = cluster.partition_ends(OFFSETS_TOPIC)
        seen = {name for _, name, _ in cluster.snapshot().topics} | cluster.group_names()
        options = kafka_options(cluster, sorted(ends))
        assert spark.read.format("kafka").options(**options).load().count() > 0
        return seen & whole

    with allowed(strict, rules):
        assert look() == whole
    for rule in sorted(rules):
        with allowed(strict, rules - {rule}):
            try:
                assert look() < whole, rule
            except SourceError as error:
                assert "may not read" in str(error), rule
            except Exception as error:
                assert "AuthorizationException" in str(error), rule


@pytest.mark.spark
def test_one_group_that_may_not_be_described_takes_no_other_away(spark, strict, lived, credentials):
    """Its state is listed, its members are not told, and the doctor says why."""
    topic = lived[0]
    open_group, hidden = fresh("open"), fresh("hidden")
    rules = table()["doctor"] - {("group", "*", "DESCRIBE")} | {("group", open_group, "DESCRIBE")}
    with ExitStack() as stack:
        for name in (open_group, hidden):  # their members may do everything
            config = {"bootstrap.servers": strict.bootstrap, "group.id": name}
            one = stack.enter_context(Consumer(config))
            one.subscribe([topic])
            until(lambda one=one: one.poll(0.1) or one.assignment(), f"{name} has its partitions")
        with allowed(strict, rules):
            words = ("-b", strict.bootstrap_of("SCRAM"), "--command-config", credentials)
            more = ("--group", open_group, "--group", hidden, "--format", "json")
            done = run("doctor", *words, *more)
    assert done.code == 0, done.err
    told = {one["group"]: one["now"] for one in json.loads(done.out)["groups"]}
    assert (told[open_group]["state"], told[open_group]["n_members"]) == ("Stable", 1)
    assert (told[hidden]["state"], told[hidden]["n_members"]) == ("Stable", None)
    assert told[hidden]["refused"] == "GROUP_AUTHORIZATION_FAILED"
    said = f"the members of group {hidden} could not be read: GROUP_AUTHORIZATION_FAILED"
    assert said in done.err


def test_lag_shows_what_may_be_seen_and_names_what_may_not(strict, lived, credentials):
    """A group that may not be described, and a topic, take nothing of the others away."""
    shown, secret = fresh("shown"), fresh("secret")
    topics = [Topic(strict.bootstrap, 1, 3).name for _ in range(2)]
    for group in (shown, secret):
        commit_alone(strict.bootstrap, group, {(topic, 0): 1 for topic in topics})
    rules = {("group", shown, "DESCRIBE"), ("cluster", "kafka-cluster", "DESCRIBE")}
    at = ("-b", strict.bootstrap_of("SCRAM"), "--command-config", credentials)
    both = ("--group", shown, "--group", secret)
    with allowed(strict, rules | {("topic", topics[0], "DESCRIBE")}):
        one_topic = run("lag", *at, *both, "--format", "json")
        nothing = run("lag", *at, "--group", secret)
    with allowed(strict, rules | {("topic", name, "DESCRIBE") for name in topics}):
        done = run("lag", *at, *both, "--format", "json")
        total = run("lag", *at, "--total", *both, "--format", "json")
    assert done.code == 0, done.err
    rows = {(r["group"], r["topic"]): r["lag"] for r in done.rows()}
    assert rows == {(shown, name): 2 for name in topics}
    left_out = f"1 group left out, or without members: {secret} (GROUP_AUTHORIZATION_FAILED)"
    assert left_out in done.err and left_out in total.err
    assert one_topic.code == 0, one_topic.err
    assert {r["topic"] for r in one_topic.rows()} == {topics[0]}
    assert nothing.code == 3 and "GROUP_AUTHORIZATION_FAILED" in nothing.err


def test_who_may_not_read_the_offsets_topic_has_a_history_by_polls(strict, credentials, tmp_path):
    """As on services that hide it: commands work from what coordinators answer, and say so."""
    shown = fresh("shown")
    topic = Topic(strict.bootstrap, 1, 3).name
    at = ("-b", strict.bootstrap_of("SCRAM"), "--command-config", credentials)
    rules = {("topic", topic, "DESCRIBE"), ("group", shown, "DESCRIBE")}
    rules |= {("cluster", "kafka-cluster", "DESCRIBE")}
    commit_alone(strict.bootstrap, shown, {(topic, 0): 1})
    secret = fresh("0")  # of the first names: a line has ten
    commit_alone(strict.bootstrap, secret, {(topic, 0): 1})
    for more in ((), (("topic", OFFSETS_TOPIC, "DESCRIBE"),)):
        with allowed(strict, rules | {*more}):
            for command in ("doctor", "history"):
                done = run(command, *at, "--format", "json")
                assert done.code == 0 and "coordinators are polled" in done.err, done.err
            done = run("doctor", *at, "--group", secret)
            text = " ".join((done.out + done.err).split())
            assert f"group '{secret}' could not be polled: GROUP_AUTHORIZATION_FAILED" in text
            assert "not examined: no record of it could be read" in text, text
            assert "0 members" not in text and "nothing found" not in text
            kept = tmp_path / f"kept-{len(more)}"
            done = run("watch", *at, "-o", kept)
            assert done.code == 0 and "coordinators are polled" in done.err, done.err
            (row,) = open_tables(kept).table("lag").to_pylist()
            assert (row["group"], row["topic"], row["lag"]) == (shown, topic, 2)
            named = f"{secret} (GROUP_AUTHORIZATION_FAILED)"
            assert f"not recorded: {named}" in " ".join(done.err.split())
            done = run("watch", *at, "-o", kept)  # it continues
            assert done.code == 0, done.err
            page = tmp_path / "report.html"
            assert run("report", "--input", kept, "-o", page).code == 0
            assert f"Not recorded: {named}" in page.read_text()
            refused = run("history", *at, "--engine", "python")
            assert refused.code == 3 and OFFSETS_TOPIC in refused.err


def test_who_may_not_read_a_topic_is_told_a_bound_and_who_may_what_is_unread(strict, credentials):
    with small_group(strict.bootstrap, fresh("behind")) as (other, write):
        write(4)  # behind the commits of its group
        at = ("-b", strict.bootstrap_of("SCRAM"), "--command-config", credentials)

        def rows() -> list[dict[str, Any]]:
            return run("lag", *at, "--topic", other, "--format", "json").rows()

        with allowed(strict, table()["lag"]):
            seen = rows()
            assert len(seen) == 2 and {row["has_unread"] for row in seen} == {None}
            # Its time is told by time alone, and each record has its own.
            assert {row["lag_seconds_basis"] for row in seen} <= {"record", "at_least"}
            assert all(row["lag_seconds"] > 0 for row in seen)
        with allowed(strict, table()["lag"] | {("topic", other, "READ")}):
            assert {row["has_unread"] for row in rows()} == {True}
            assert {row["lag_seconds_basis"] for row in rows()} == {"record"}


def test_members_need_no_more_than_the_page_says(strict, lived, login):
    topic, _ = lived
    group = fresh("group")
    rules = table()
    config = {
        "bootstrap.servers": strict.bootstrap_of("SCRAM"),
        "group.id": group,
        "auto.offset.reset": "earliest",
        **login,
    }
    names = {"TOPIC": topic, "GROUP": group}
    wanted = rules["Consumer"]
    with allowed(strict, wanted, **names), Consumer(config) as consumer:
        consumer.subscribe([topic])
        got: list[object] = []
        until(lambda: got.extend(consumer.poll(0.2)) or len(got) == 3, "records")
        consumer.commit()
    with allowed(strict, rules["Worker"], **names), Worker(config, {"shard": 2}) as worker:
        until(lambda: len(worker.owned) == 2, "the worker works")
    for rule in wanted:
        refused = pytest.raises(HoldfastError)
        with allowed(strict, wanted - {rule}, **names), refused as caught, Consumer(config) as one:
            one.subscribe([topic])
            until(lambda one=one: one.poll(0.2), f"records without {rule}", 60)
        assert isinstance(caught.value, RemoteProtocolError), rule
        assert "AUTHORIZATION_FAILED" in str(caught.value)


def stock(config: dict[str, Any], topic: str) -> None:
    """A program of kafka-python with an assignor of ours."""
    from kafka import KafkaConsumer

    from holdfast.members.clients.kafka.assignors import CooperativeSticky

    own = {"partition_assignment_strategy": [CooperativeSticky()]}
    words = keywords(config, is_original=True)
    with closing(KafkaConsumer(topic, **words, **own)) as consumer:
        until(lambda: consumer.partitions_for_topic(topic), "the topic's metadata")
        until(lambda: consumer.poll(200), "a record")
        consumer.commit()


def drop_in(name: str) -> Callable[[dict[str, Any], str], None]:
    """A program of a client with one import changed."""

    def program(config: dict[str, Any], topic: str) -> None:
        with closing(CLIENTS[name](topic, config)) as client:
            client.subscribe([topic])
            until(client.poll, "a record")
            client.commit()

    return program


PROGRAMS = {"stock": stock, **{name: drop_in(name) for name in DROP_INS}}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_every_client_needs_no_more_than_a_member(
    strict, lived, login, program: Callable[[dict[str, Any], str], None]
):
    topic, _ = lived
    config = {
        "bootstrap.servers": strict.bootstrap_of("SCRAM"),
        "group.id": fresh("group"),
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        **login,
    }
    names = {"TOPIC": topic, "GROUP": config["group.id"]}
    with allowed(strict, table()["Consumer"], **names):
        program(config, topic)


MAY = {"nothing": ("READ", DENY), "describe it": ("DESCRIBE", AclPermissionType.ALLOW)}
may = pytest.mark.parametrize(("operation", "permission"), MAY.values(), ids=MAY)


def refusal(consumer, topic):
    """Subscribe and poll until it is refused."""
    with consumer, pytest.raises(RemoteProtocolError) as caught:
        consumer.subscribe([topic])
        until(lambda: consumer.poll(0.1) and False, "a refusal")
    return caught.value


@may
def test_no_right_to_the_group(broker, security, operation, permission):
    """Without any right the coordinator is not told; with DESCRIBE alone the join is refused."""
    topic, config = Topic(broker.bootstrap, 1), security.login(broker, "PLAIN")
    group = config["group.id"]
    with entries(broker, [("group", group, operation)], permission):
        error = refusal(Consumer(config), topic.name)
        assert error.error_code == 30
        assert "grant READ on the group" in str(error)
        with (
            Worker(config, {"shard": 1}) as worker,
            pytest.raises(RemoteProtocolError, match="grant READ on the group"),
        ):
            worker.run(60)


@may
def test_no_right_to_the_topic(broker, security, operation, permission):
    """Without any right its partitions are not told; with DESCRIBE alone the fetch is refused."""
    topic, config = Topic(broker.bootstrap, 1, 1), security.login(broker, "PLAIN")
    with entries(broker, [("topic", topic.name, operation)], permission):
        error = refusal(Consumer(config), topic.name)
        assert error.error_code == 29
        assert "grant READ on it" in str(error)
        assert topic.name in str(error)


def test_a_session_time_out_that_the_broker_does_not_allow(broker):
    topic = Topic(broker.bootstrap, 1)
    short = {"session.timeout.ms": 500, "heartbeat.interval.ms": 100}
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": fresh("group"), **QUICK, **short}
    error = refusal(Consumer(settings), topic.name)
    assert error.error_code == 26
    assert "group.min/max.session.timeout.ms" in str(error)
