"""A member that polls too rarely (HF127), told from a crash loop and from a deploy."""

from __future__ import annotations

from typing import Any

import pytest
from tests.report.fleet import START_MS, Script, deal, examine_all, tables

from holdfast.fleet.analysis.findings.examination import Examination
from holdfast.fleet.analysis.findings.finding import Finding, Severity
from holdfast.fleet.tables.reading import read_tables

TOPICS = {"t": 4}
INTERVALS_S = (8.0, 20.0, 60.0, 300.0)


def played(
    stays_s: float,
    away_s: float,
    times: int = 1,
    *,
    ends_s: float | None = None,
    commits_s: float | None = None,
    client: str = "slow",
    returns: bool = True,
    cooperative: bool = False,
    **member: Any,
) -> tuple[Script, float]:
    """One of two members goes some seconds after it came, and comes back, again and again.

    ``commits_s``: it commits so long before it goes. The other one takes all meanwhile.
    """
    script, n = Script("g", TOPICS), 0
    extra = {"client_id": client, **member}

    def both(n: int) -> list[Any]:
        return [("well-1", {}), (f"{client}-{n}", extra)]

    def settle(at_s: float, members: list[Any], cause: str) -> None:
        owners = deal(TOPICS, [name for name, _ in members])
        script.settle(at_s, members, owners, cause=cause, gap=(1, 2), cooperative=cooperative)

    at = 0.0
    settle(at, both(n), "join")
    for i in range(times):
        if commits_s is not None:
            mine = [tp for tp, owner in script.owners.items() if owner == f"{client}-{n}"]
            script.commit(at + stays_s - commits_s, *mine[0])
        at += stays_s
        settle(at, both(n)[:1], "leave")
        if returns or i < times - 1:
            at, n = at + away_s, n + 1
            settle(at, both(n), "restart")
    script.lag(dict.fromkeys(deal(TOPICS, ["x"]), 500))
    return script, at if ends_s is None else ends_s


def examined(script: Script, end_s: float, after_s: float = 20) -> Examination:
    held = read_tables(tables(script))
    (found,) = examine_all(held, last_ms=START_MS + round((end_s + after_s) * 1000))
    return found


def found_in(script: Script, end_s: float) -> list[Finding]:
    return [f for f in examined(script, end_s).findings if f.severity is not Severity.INFO]


def codes(findings: list[Finding]) -> list[str]:
    return [f.code for f in findings]


def poll(interval_s: float, session_s: float = 45) -> dict[str, int]:
    """What the record of a member has."""
    return {
        "rebalance_timeout_ms": round(1000 * interval_s),
        "session_timeout_ms": round(1000 * session_s),
    }


@pytest.mark.parametrize("interval_s", INTERVALS_S)
@pytest.mark.parametrize("times", [1, 2, 12])
def test_a_slow_poller_is_found_first_from_its_first_eviction_on(interval_s, times) -> None:
    script, end_s = played(interval_s + 0.4, 12, times, **poll(interval_s))
    first, *others = found_in(script, end_s)
    assert first.code == "HF127", codes([first, *others])
    assert first.evidence.members.shown == ("slow on /10.0.0.7",)
    assert first.evidence.figures["times"] == times
    assert first.evidence.figures["poll_interval_s"] == interval_s
    assert first.evidence.figures["longest_batch_s"] >= interval_s
    assert not {"HF102", "HF111", "HF124"} & set(codes(others))
    assert all(f.follows == "HF127" for f in others if f.code in ("HF101", "HF119"))
    assert first.severity is (Severity.ERROR if times > 1 else Severity.WARN)


@pytest.mark.parametrize("interval_s", INTERVALS_S)
def test_a_client_that_commits_by_itself_may_do_so_after_its_last_poll(interval_s) -> None:
    """librdkafka commits every five seconds what it has handed out; Java's client at a poll."""
    early_s = interval_s - min(5, interval_s / 4)
    for silent_s in (early_s, interval_s + 5):
        script, end_s = played(interval_s + 30, 6, 4, commits_s=silent_s, **poll(interval_s))
        assert codes(found_in(script, end_s))[0] == "HF127"


def test_a_member_that_is_not_back_yet_is_a_slow_poller_if_it_had_work() -> None:
    script, end_s = played(60.4, 0, returns=False, **poll(60))
    first, *_ = found_in(script, end_s)
    assert first.code == "HF127" and "is not back: it works on, hangs or ended" in first.text
    for row in script.rows["lag"]:
        row["lag"] = 0
    assert "HF127" not in codes(found_in(script, end_s))


def test_the_text_about_a_slow_poller() -> None:
    script, end_s = played(60.4, 12, 3, **poll(60))
    first, *_ = found_in(script, end_s)
    assert first.text == (
        "slow on /10.0.0.7 polled too rarely: it left 3 times, 60 s after a poll, and came back; "
        "the longest batch took 60 s or more, about 72 s; a lower max.poll.records helps, or "
        "max.poll.interval.ms above 108 s, or work on another thread"
    )
    assert "max.poll.interval.ms" in first.rule.mend


@pytest.mark.parametrize(
    ("member", "keys"),
    [
        ({"client_id": "kafka-python-3.0.12"}, ("max_poll_records", "max_poll_interval_ms")),
        ({"rack": ""}, ("num_messages of consume", "max.poll.interval.ms")),
        ({"client_id": "consumer-g-1"}, ("max.poll.records", "max.poll.interval.ms")),
    ],
)
def test_advice_has_the_keys_of_the_members_own_client(member, keys) -> None:
    script, end_s = played(60.4, 12, 3, **poll(60), **member)
    first, *_ = found_in(script, end_s)
    for key in keys:
        assert key in first.text


def test_a_crash_loop_is_none() -> None:
    """Whoever is killed is thrown out a session later; whoever says goodbye has just committed."""
    killed, end_s = played(47, 5, 8, **poll(300))
    assert codes(found_in(killed, end_s))[0] == "HF124"
    ended, end_s = played(20, 5, 8, commits_s=0.1, **poll(20))
    assert codes(found_in(ended, end_s))[0] == "HF124"


def test_a_crash_loop_whose_session_is_as_long_as_its_poll_interval_is_ambiguous() -> None:
    script, end_s = played(46, 5, 8, **poll(44))
    first, *others = found_in(script, end_s)
    assert (first.code, first.severity) == ("HF127", Severity.WARN)
    assert "or a crash loop" in first.text
    assert "HF124" not in codes(others)


@pytest.mark.parametrize("interval_s", [20.0, 60.0])
def test_a_client_whose_poll_interval_stands_in_no_record_goes_steadily(interval_s) -> None:
    """As aiokafka, whose rebalance timeout is that of its session: a crash may look alike."""
    script, end_s = played(interval_s + 0.4, 12, 4, **poll(10, 10))
    first, *others = found_in(script, end_s)
    assert (first.code, first.severity) == ("HF127", Severity.WARN)
    assert "or a crash loop" in first.text
    assert "HF124" not in codes(others)


def test_a_client_with_the_default_poll_interval_needs_no_record_of_it() -> None:
    script, end_s = played(300.4, 12, 1, **poll(10, 10))
    first, *_ = found_in(script, end_s)
    assert first.code == "HF127" and "crash" not in first.text


def test_a_static_member_goes_when_its_session_is_over_too() -> None:
    member = poll(60, 20) | {"group_instance_id": "s-1"}
    script, end_s = played(81, 12, 3, **member)
    first, *_ = found_in(script, end_s)
    assert first.code == "HF127"
    assert first.evidence.members.shown == ("s-1 on /10.0.0.7",)


def test_a_brokers_log_says_that_no_poll_came() -> None:
    """Also where the member was back before the round ended, so that the cause is a restart."""
    script, end_s = played(33, 12, 3, commits_s=2, **poll(300))
    assert "HF127" not in codes(found_in(script, end_s))
    said = "Dynamic member {} has left group through explicit `LeaveGroup` request"
    reason = "; client reason: consumer poll timeout has expired."
    for who, is_found in (("slow", True), ("well", False)):
        gone = iter([f"{who}-{i}" for i in range(3)])
        for row in script.rows["rebalances"]:
            if row["n_left"]:
                row["stated_reason"] = said.format(next(gone)) + reason
        assert ("HF127" in codes(found_in(script, end_s))) is is_found


def test_a_brokers_log_distinguishes_a_member_that_left_from_one_whose_session_ended() -> None:
    """As aiokafka's, which leaves without a reason: what the log says of others is not of it."""
    for words, severity in (
        ("explicit `LeaveGroup` request for ({}) members.", Severity.ERROR),
        ("Member other in group g has failed; {} is another one", Severity.WARN),
        ("Member {} in group g has failed, removing it from the group", None),
    ):
        script, end_s = played(46, 12, 3, **poll(44))
        gone = iter([f"slow-{i}" for i in range(3)])
        for row in script.rows["rebalances"]:
            if row["n_left"]:
                row["stated_reason"] = words.format(next(gone))
        found = {f.code: f.severity for f in found_in(script, end_s)}
        assert found.get("HF127") == severity


def deployed(every_s: float, idle: bool) -> tuple[Script, float]:
    """Four members are restarted in turn, each with its own client id."""
    ids = [f"w{i}-0" for i in range(4)]
    script = Script("g", TOPICS)

    def settle(at_s: float, members: list[str]) -> None:
        people = [(m, {"client_id": m[:2], **poll(60)}) for m in members]
        script.settle(at_s, people, deal(TOPICS, members), gap=(1, 2), cooperative=False)

    settle(0, ids)
    at = 0.0
    for i in range(4):
        at += every_s
        if not idle:
            mine = [tp for tp, owner in script.owners.items() if owner == ids[i]]
            script.commit(at - 0.2, *mine[0])
        settle(at, [m for m in ids if m != ids[i]])
        at, ids[i] = at + 6, f"w{i}-1"
        settle(at, ids)
    return script, at


def test_a_deploy_is_none() -> None:
    script, end_s = deployed(61, idle=False)
    assert codes(found_in(script, end_s))[0] == "HF102"


def test_a_deploy_without_work_in_time_with_the_poll_interval_is_ambiguous() -> None:
    script, end_s = deployed(61, idle=True)
    first, *_ = found_in(script, end_s)
    assert (first.code, first.severity) == ("HF127", Severity.WARN)
    assert "or a deploy: each of them went once" in first.text


@pytest.mark.parametrize(("silent_s", "codes_now"), [(330, ["HF127"]), (700, ["HF105", "HF127"])])
def test_a_slow_poller_in_its_next_batch_is_not_stuck(silent_s, codes_now) -> None:
    """Its longest batch took about 312 s; who is silent for twice as long hangs."""
    script, end_s = played(300.4, 12, 1, **poll(300))
    for row in script.rows["lag"]:
        is_own = row["member_id"] == "slow-1"
        at_s = end_s - 20 if is_own else end_s + silent_s
        row["commit_timestamp"] = START_MS + round(1000 * at_s)
    found = examined(script, end_s, silent_s).findings
    assert sorted(f.code for f in found if f.code in ("HF105", "HF127")) == codes_now
