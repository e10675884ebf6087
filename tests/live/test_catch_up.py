"""``lag --over`` of a live group: two readings, a commit between them."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from tests.cli.running import run
from tests.live.crew import Topic, commit_alone, fresh

from holdfast.cli import live_groups

pytestmark = pytest.mark.broker


def commit(bootstrap, group, topic, *offsets, metadata=""):
    """Commit an offset of each partition."""
    commit_alone(bootstrap, group, {(topic, p): at for p, at in enumerate(offsets)}, metadata)


@pytest.fixture
def during(monkeypatch):
    """Take what happens between the two readings, in place of the pause."""

    def set_to(work):
        slept = []
        sleep = lambda seconds: (slept.append(seconds), work())  # noqa: E731
        monkeypatch.setattr(live_groups, "time", SimpleNamespace(sleep=sleep))
        return slept

    return set_to


def test_what_was_read_meanwhile_tells_the_time_until_caught_up(broker, during):
    group, topic = fresh("over"), Topic(broker.bootstrap, 4, 100).name
    commit(broker.bootstrap, group, topic, 20, 60, 100, 10)
    slept = during(
        lambda: commit(broker.bootstrap, group, topic, 60, 60, 100, 5, metadata="by hand")
    )
    words = ("lag", "-b", broker.bootstrap, "--group", group, "--over", "1m")
    done = run(*words, "--format", "json")
    assert done.code == 0, done.err
    assert slept == [60.0]
    rows = sorted(json.loads(done.out)["rows"], key=lambda row: row["partition"])
    assert [row["lag"] for row in rows] == [40, 40, 0, 95]
    # confluent-kafka sends the end of its C string, too
    assert {row["metadata"].rstrip("\0") for row in rows} == {"by hand"}
    fell, stood, done_with, rose = rows
    assert fell["lag_per_second"] < 0
    assert fell["catch_up_seconds"] == pytest.approx(40 / -fell["lag_per_second"])
    assert (stood["lag_per_second"], stood["catch_up_seconds"]) == (0, None)
    assert (done_with["lag_per_second"], done_with["catch_up_seconds"]) == (0, 0)
    assert rose["lag_per_second"] > 0 and rose["catch_up_seconds"] is None


def test_a_group_has_caught_up_when_its_last_partition_has(broker, during):
    group, topic = fresh("over"), Topic(broker.bootstrap, 2, 100).name
    commit(broker.bootstrap, group, topic, 0, 0)
    during(lambda: commit(broker.bootstrap, group, topic, 50, 80))
    words = ("lag", "-b", broker.bootstrap, "--group", group, "--over", "1m", "--format", "json")
    (total,) = json.loads(run(*words, "--total").out)["rows"]
    assert total["lag"] == 70 and total["catch_up_seconds"] > 0
    during(lambda: commit(broker.bootstrap, group, topic, 60, 80))
    (total,) = json.loads(run(*words, "--total").out)["rows"]
    assert total["catch_up_seconds"] is None  # one of them stands


def test_in_a_file_the_time_is_among_the_ten_columns(broker, during):
    group, topic = fresh("over"), Topic(broker.bootstrap, 1, 100).name
    commit(broker.bootstrap, group, topic, 20)
    during(lambda: commit(broker.bootstrap, group, topic, 60))
    done = run("lag", "-b", broker.bootstrap, "--group", group, "--over", "1m")
    assert done.code == 0 and "catch_up_seconds" in done.out


def test_a_file_is_read_once(tmp_path):
    done = run("lag", "--input", tmp_path, "--over", "1m")
    assert done.code == 2 and "--over queries a cluster twice" in done.err
