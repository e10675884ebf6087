"""The readiness file: it exists while the machine is stable, and at no other time."""

from __future__ import annotations

import logging
import os

import confluent_kafka
import pytest
from tests.live.waiting import until
from tests.members.configured import NEEDED, of_aiokafka
from tests.members.fake_machine import COMMIT, Notes, Script

from holdfast import Consumer
from holdfast.confluent import Consumer as ConfluentConsumer
from holdfast.core.machine import events
from holdfast.core.machine.states import MemberState
from holdfast.errors import ClientError, ConfigError
from holdfast.members.config.settings import Settings
from holdfast.members.runtime.member_status import ReadyFile

LOG = logging.getLogger("holdfast.member")
BEAT = events.HeartbeatAnswered(request=1, error=0)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ready"


@pytest.fixture
def script():
    return Script({})


@pytest.fixture
def hosted(path, script, run):
    """Start a host on the script that keeps the file."""
    return lambda rebalance_handler=None: run(script, rebalance_handler, ready=ReadyFile(path, LOG))


def went(member_thread, script, state):
    """Lead the script's machine to a state."""
    script.answers[events.RejoinRequested] = state
    member_thread.post(events.RejoinRequested())
    assert member_thread.catch_up(30)


@pytest.mark.parametrize("state", [s for s in MemberState if s is not MemberState.STABLE])
def test_the_file_is_there_in_the_stable_state_alone(path, script, hosted, state):
    member_thread = hosted()
    assert member_thread.catch_up(30) and not path.exists()
    went(member_thread, script, MemberState.STABLE)
    assert path.read_text() == "generation 3\n"
    assert path.stat().st_mode & 0o777 == 0o600
    went(member_thread, script, state)
    assert not path.exists()


def test_a_revocation_begins_without_the_file(path, script, hosted):
    seen = []

    class Looks(Notes):
        def commit(self, action, done):
            seen.append(path.exists())

    member_thread = hosted(Looks())
    went(member_thread, script, MemberState.STABLE)

    def revoke(now_ms, event):
        script.state = MemberState.REVOKING
        return (COMMIT,)

    script.step = revoke
    member_thread.post(events.RejoinRequested())
    assert member_thread.catch_up(30)
    assert seen == [False]


def test_a_heartbeat_that_was_acknowledged_is_its_time(path, script, hosted):
    member_thread = hosted()
    went(member_thread, script, MemberState.STABLE)
    os.utime(path, (1, 1))
    member_thread.post(events.HeartbeatAnswered(request=1, error=15))
    assert member_thread.catch_up(30) and path.stat().st_mtime == 1
    member_thread.post(BEAT)
    assert member_thread.catch_up(30) and path.stat().st_mtime > 1_000_000
    path.unlink()  # by somebody else
    member_thread.post(BEAT)
    assert member_thread.catch_up(30) and path.exists()


def test_it_is_gone_after_the_end_and_after_a_failure(path, script, hosted):
    member_thread = hosted()
    went(member_thread, script, MemberState.STABLE)
    member_thread.fail(ClientError("no"))
    member_thread.post(BEAT)
    assert member_thread.catch_up(30) and not path.exists()
    member_thread.stop()
    member_thread = hosted()
    went(member_thread, script, MemberState.STABLE)
    assert path.exists()
    member_thread.stop()
    until(lambda: not path.exists(), "the file is gone")


def test_the_file_of_a_killed_process_is_removed(path):
    path.write_text("generation 9\n")
    ReadyFile.of(Settings.parse({**NEEDED, "holdfast.ready.file": str(path)}), LOG)
    assert not path.exists()


def test_a_place_that_cannot_be_is_refused(path):
    with pytest.raises(ConfigError, match=r"holdfast\.ready\.file: folder '.*' does not exist"):
        ReadyFile(path / "deeper", LOG)
    path.mkdir()
    with pytest.raises(ConfigError, match=r"holdfast\.ready\.file: .* cannot be removed"):
        ReadyFile(path, LOG)


def test_a_file_that_cannot_be_written_is_reported_once_and_ends_nobody(
    path, script, hosted, caplog
):
    member_thread = hosted()
    path.mkdir()  # meanwhile
    (path / "x").touch()
    for state in (MemberState.STABLE, MemberState.PREPARING_REBALANCE, MemberState.STABLE):
        went(member_thread, script, state)
    assert member_thread.failure is None
    (told,) = [r.getMessage() for r in caplog.records]
    assert told.startswith(f"holdfast.ready.file: {path} cannot be kept")


def closed(kind):
    return lambda config: kind(config).close()


@pytest.mark.parametrize("make", [closed(Consumer), closed(ConfluentConsumer), of_aiokafka])
def test_a_client_that_joins_later_removes_it_when_it_is_made(path, make):
    path.write_text("generation 9\n")
    make({**NEEDED, "holdfast.ready.file": str(path)})
    assert not path.exists()
    refusals = (ConfigError, confluent_kafka.KafkaException, ValueError)
    with pytest.raises(refusals, match=r"holdfast\.ready\.file: folder '.*' does not exist"):
        make({**NEEDED, "holdfast.ready.file": str(path / "deeper")})
