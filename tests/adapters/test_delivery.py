"""What is handed out, processed, in flight and committed."""

import threading
import time
from collections import namedtuple

import pytest

from holdfast.adapters.records.delivery import Delivery, _Gate
from holdfast.errors import AdapterError, RemoteProtocolError

Message = namedtuple("Message", "topic partition offset")
A, B = ("t", 0), ("t", 1)


class Plane:
    """A data plane that returns what the test puts into it."""

    def __init__(self):
        self.next = {}
        self.returned = {}
        self.calls = []
        self.during_poll = None

    def start(self, positions):
        self.next.update(positions)

    def stop(self, partitions):
        for tp in partitions:
            self.next.pop(tp, None)
            self.returned.pop(tp, None)

    def poll(self, timeout_ms, max_records):
        messages = []
        for tp in sorted(self.next):
            messages += [Message(*tp, self.next[tp]), Message(*tp, self.next[tp] + 1)]
            self.next[tp] += 2
            self.returned[tp] = self.next[tp]
        if self.during_poll:
            self.during_poll()
        return messages[:max_records]

    def positions(self):
        return dict(self.returned)

    def pause(self, partitions):
        self.calls.append(("pause", sorted(partitions)))

    def resume(self, partitions):
        self.calls.append(("resume", sorted(partitions)))

    def seek(self, partition, offset):
        self.next[partition] = offset

    def close(self):
        self.calls.append(("close",))


@pytest.fixture
def delivery():
    plane = Plane()
    made = Delivery(plane, lambda m: (m.topic, m.partition), lambda m: m.offset)
    made.plane = plane
    return made


def test_a_batch_is_processed_when_the_application_comes_back(delivery):
    delivery.start({A: 5})
    assert [m.offset for m in delivery.poll(0, 10)] == [5, 6]
    assert delivery.uncommitted() == {}
    assert delivery.position(A) == 7
    delivery.poll(0, 10)
    assert delivery.uncommitted() == {A: 7}
    delivery.committed({A: 7})
    assert delivery.uncommitted() == {}


def test_nothing_is_polled_while_nothing_is_held(delivery):
    assert delivery.poll(0, 10) == []


def test_a_stop_waits_for_what_is_in_flight(delivery):
    drained = []
    delivery.start({A: 0, B: 0})
    delivery.poll(0, 10)
    delivery.stop([A], lambda: drained.append("A"))
    assert drained == []
    assert delivery.processed()
    assert drained == ["A"]
    assert not delivery.processed()
    assert {m.partition for m in delivery.poll(0, 10)} == {1}
    assert delivery.uncommitted([A]) == {A: 2}


def test_a_stop_of_an_idle_partition_is_drained_at_once(delivery):
    drained = []
    delivery.start({A: 0})
    delivery.stop([A], lambda: drained.append("A"))
    assert drained == ["A"]


def test_what_is_given_up_on_counts_as_not_processed(delivery):
    drained = []
    delivery.start({A: 0, B: 0})
    delivery.poll(0, 10)
    delivery.stop([A], lambda: drained.append("A"))
    delivery.give_up_waiting([A])
    assert drained == ["A"]
    delivery.processed()
    assert delivery.uncommitted() == {B: 2}
    assert drained == ["A"]


def test_what_was_stopped_during_a_poll_is_not_handed_out(delivery):
    stopping = threading.Thread(target=delivery.stop, args=([A], lambda: None))

    def stop_meanwhile():
        stopping.start()
        while A in delivery.active():
            time.sleep(0.001)

    delivery.start({A: 0, B: 0})
    delivery.plane.during_poll = stop_meanwhile
    assert {m.partition for m in delivery.poll(0, 10)} == {1}
    stopping.join()
    delivery.plane.during_poll = None
    delivery.poll(0, 10)
    assert delivery.uncommitted() == {B: 2}


def test_what_is_lost_is_never_committed(delivery):
    delivery.start({A: 0, B: 0})
    delivery.poll(0, 10)
    delivery.drop([A])
    delivery.processed()
    assert delivery.uncommitted() == {B: 2}
    assert delivery.position(A) is None
    assert delivery.active() == {B}


def test_a_change_goes_before_the_next_poll(delivery):
    delivery.start({A: 0, B: 0})
    over = threading.Event()
    polling = threading.Thread(target=lambda: [delivery.poll(0, 10) for _ in iter(over.is_set, 1)])
    polling.start()
    for _ in range(50):
        delivery.stop([A], lambda: None)
        delivery.start({A: 0})
    over.set()
    polling.join()
    assert delivery.active() == {A, B}


def test_a_seek_forgets_what_was_handed_out(delivery):
    delivery.start({A: 0})
    delivery.poll(0, 10)
    delivery.seek(A, 40)
    assert delivery.position(A) == 40
    assert [m.offset for m in delivery.poll(0, 10)] == [40, 41]


def test_an_offset_of_a_partition_that_is_gone_is_not_noted(delivery):
    delivery.committed({A: 9})
    assert delivery.position(A) is None


def test_the_plane_is_paused_resumed_and_closed(delivery):
    delivery.start({A: 0})
    delivery.pause([A])
    delivery.resume([A])
    delivery.close()
    assert delivery.plane.calls == [("pause", [A]), ("resume", [A]), ("close",)]


def offsets(messages, partition):
    return [m.offset for m in messages if m.partition == partition]


def test_what_is_prepared_is_handed_out_once_it_is_started(delivery):
    delivery.start({A: 0})
    delivery.prepare({B: 7})
    assert offsets(delivery.poll(0, 10), 1) == []
    assert delivery.position(B) is None
    assert delivery.uncommitted() == {}
    delivery.start({B: 7})
    assert delivery.position(B) == 7
    assert offsets(delivery.poll(0, 1), 1) == [7]
    assert delivery.position(B) == 8
    assert offsets(delivery.poll(0, 10), 1) == [8]
    assert offsets(delivery.poll(0, 10), 1) == [9, 10]
    assert delivery.uncommitted([B]) == {B: 9}


def test_a_start_elsewhere_forgets_what_was_prepared(delivery):
    delivery.start({A: 0})
    delivery.prepare({B: 7})
    delivery.poll(0, 10)
    delivery.start({B: 20})
    assert offsets(delivery.poll(0, 10), 1) == [20, 21]


def test_what_was_prepared_and_dropped_is_gone(delivery):
    delivery.start({A: 0})
    delivery.prepare({B: 7})
    delivery.poll(0, 10)
    delivery.drop([B])
    assert offsets(delivery.poll(0, 10), 1) == []
    assert delivery.active() == {A}
    delivery.start({B: 9})
    assert offsets(delivery.poll(0, 10), 1) == [9, 10]


def test_what_is_held_back_waits_for_its_resumption(delivery):
    delivery.start({A: 0})
    delivery.prepare({B: 7})
    delivery.poll(0, 10)
    delivery.start({B: 7}, held_back={B})
    assert delivery.plane.calls == [("pause", [B])]
    assert delivery.active() == {A, B}
    del delivery.plane.next[B]  # as a plane does that is paused
    assert offsets(delivery.poll(0, 10), 1) == []
    delivery.poll(0, 10)
    assert delivery.position(B) == 7
    assert B not in delivery.uncommitted()
    delivery.resume([B])
    assert offsets(delivery.poll(0, 10), 1) == [7, 8]


# Who comes first


def between(monkeypatch, gate_method, work):
    """Do something when a thread is about to pass the gate that way, once."""
    passing = getattr(_Gate, gate_method)

    def pass_later(gate):
        monkeypatch.setattr(_Gate, gate_method, passing)
        work()
        return passing(gate)

    monkeypatch.setattr(_Gate, gate_method, pass_later)


def test_a_slice_that_slips_in_before_a_stop_reaches_the_plane(delivery, monkeypatch):
    """The partition is stopped here, and the plane has it still."""
    delivery.start({A: 0, B: 0})
    found = []
    between(monkeypatch, "change", lambda: found.extend(delivery.poll(0, 10)))
    delivery.stop([A], lambda: None)
    assert {m.partition for m in found} == {1}
    delivery.processed()
    assert delivery.uncommitted() == {B: 2}


def test_a_start_between_two_looks_of_a_poll_keeps_the_order(delivery, monkeypatch):
    delivery.start({A: 0})
    delivery.prepare({B: 7})
    delivery.poll(0, 10)  # 7 and 8 wait
    between(monkeypatch, "poll", lambda: delivery.start({B: 7}))
    found = offsets([m for _ in range(3) for m in delivery.poll(0, 10)], 1)
    assert found[:4] == [7, 8, 9, 10]
    assert delivery.position(B) == found[-1] + 1


def test_a_resumption_between_two_looks_of_a_poll_keeps_the_order(delivery, monkeypatch):
    delivery.start({A: 0})
    delivery.prepare({B: 7})
    delivery.poll(0, 10)
    delivery.start({B: 7}, held_back={B})
    between(monkeypatch, "poll", lambda: delivery.resume([B]))
    found = offsets([m for _ in range(3) for m in delivery.poll(0, 10)], 1)
    assert found[:4] == [7, 8, 9, 10]


def test_a_slice_that_slips_in_before_a_seek_reaches_the_plane(delivery, monkeypatch):
    """What it returns was handed out before; the position is the one that was sought."""
    delivery.start({A: 90})
    between(monkeypatch, "change", lambda: delivery.poll(0, 10))
    delivery.seek(A, 40)
    assert delivery.position(A) == 40
    assert offsets(delivery.poll(0, 10), 0) == [40, 41]
    delivery.processed()
    assert delivery.uncommitted() == {A: 42}


def test_a_seek_of_what_is_not_handed_out_changes_nothing(delivery):
    delivery.start({A: 0})
    delivery.stop([A], lambda: None)
    delivery.seek(A, 40)
    assert delivery.position(A) == 0


def test_a_pause_that_a_stop_overtakes_does_not_reach_the_plane(delivery, monkeypatch):
    """Some clients raise at a partition that is not assigned."""
    delivery.start({A: 0, B: 0})
    between(monkeypatch, "change", lambda: delivery.stop([A], lambda: None))
    delivery.pause([A, B])
    between(monkeypatch, "change", lambda: delivery.stop([B], lambda: None))
    delivery.resume([B])
    assert delivery.plane.calls == [("pause", [B])]


def test_a_position_of_ones_own_is_to_be_committed(delivery):
    delivery.start({A: 5, B: 6}, fresh=[B])
    assert delivery.uncommitted() == {B: 6}
    delivery.committed({B: 6})
    assert delivery.uncommitted() == {}


# A plane that fails


@pytest.mark.parametrize("error", [SystemError("returned NULL"), RuntimeError("out of order")])
def test_a_slice_that_fails_has_lost_nothing(delivery, error):
    """What the library had taken when it failed is fetched again."""
    delivery.start({A: 0, B: 0})
    delivery.poll(0, 10)
    delivery.prepare({("t", 2): 7})
    delivery.pause([B])
    assert delivery.poll(0, 10)

    def fail():
        delivery.plane.during_poll = None
        raise error

    delivery.plane.during_poll = fail
    assert delivery.poll(0, 10) == []
    assert delivery.plane.next == {A: 4, B: 4, ("t", 2): 7}
    assert delivery.plane.calls == [("pause", [B])] * 2
    assert offsets(delivery.poll(0, 10), 0) == [4, 5]
    delivery.start({("t", 2): 7})
    found = delivery.poll(0, 10) + delivery.poll(0, 10)
    assert offsets(found, 2)[:3] == [7, 8, 9]


def test_what_interrupts_a_slice_is_raised_and_has_lost_nothing(delivery):
    def interrupt():
        delivery.plane.during_poll = None
        raise KeyboardInterrupt

    delivery.start({A: 0})
    delivery.plane.during_poll = interrupt
    with pytest.raises(KeyboardInterrupt):
        delivery.poll(0, 10)
    assert offsets(delivery.poll(0, 10), 0) == [0, 1]


def test_a_plane_that_fails_again_and_again_is_given_up(delivery):
    delivery.start({A: 0})
    delivery.plane.during_poll = lambda: 1 / 0
    assert [delivery.poll(0, 10) for _ in range(2)] == [[], []]
    with pytest.raises(AdapterError, match="ZeroDivisionError: division by zero"):
        delivery.poll(0, 10)
    delivery.plane.during_poll = None
    assert offsets(delivery.poll(0, 10), 0) == [0, 1]


def test_an_error_of_one_topic_loses_nothing_of_the_others(delivery):
    def refuse():
        delivery.plane.during_poll = None
        raise RemoteProtocolError("topic 'u': not authorised", error_code=29)

    delivery.start({A: 0})
    delivery.plane.during_poll = refuse
    with pytest.raises(RemoteProtocolError, match="not authorised"):
        delivery.poll(0, 10)
    assert offsets(delivery.poll(0, 10), 0) == [0, 1]


# Terms


def lost_and_back(delivery, at, told=()):
    """0 and 1 of A are handed out; A is lost, and given to this member again."""
    delivery.start({A: 0}, term=1)
    assert len(delivery.poll(0, 10)) == 2
    delivery.drop([A], told)
    delivery.start({A: at}, term=2)


def told(delivery):
    delivery.terms(lambda terms: terms.tell([A]))


@pytest.mark.parametrize("callback", [True, False])
@pytest.mark.parametrize("at", [0, 7])
def test_what_was_handed_out_before_a_loss_is_of_an_earlier_term(delivery, at, callback):
    now = {A: 2}
    lost_and_back(delivery, at, [A] if callback else [])
    assert delivery.refused(now, {A: 2, B: 1}) == {A}  # the application was not back yet
    delivery.poll(0, 10)  # hands out two from there on
    if callback:
        assert delivery.refused(now, {A: at + 2}) == {A}  # nobody has told it
        told(delivery)
    assert delivery.refused(now, {A: at + 2}) == set()
    assert delivery.refused(now, {A: at + 3}) == {A}
    assert delivery.refused(now, {A: at - 1}) == {A}
    delivery.seek(A, at - 1)
    assert delivery.refused(now, {A: at - 1}) == set()


@pytest.mark.parametrize("ending", ["loss", "hand-over"])
def test_before_a_new_term_has_begun_an_old_offset_is_refused(delivery, ending):
    """The positions of the new term are still asked for; only its callback may set them."""
    delivery.start({A: 0}, term=1)
    delivery.poll(0, 10)
    if ending == "loss":
        delivery.drop([A])
        delivery.processed()
    else:
        delivery.processed()
        delivery.stop([A], lambda: None)
        delivery.processed()
    assert delivery.to_commit({A: 2}) == {}
    assert delivery.refused({A: 2}, {A: 2}) == {A}
    assert delivery.refused({A: 2}, {A: 2}, begins=[A]) == set()
    delivery.forget([A])
    delivery.start({A: 300}, term=2)
    assert delivery.to_commit({A: 2}) == {}
    assert delivery.refused({A: 2}, {A: 2}) == {A}
    delivery.poll(0, 10)
    delivery.processed()
    assert delivery.to_commit({A: 2}) == {A: 302}
    assert delivery.to_commit({A: 3}) == {}


def test_what_is_handed_over_in_order_is_committed_until_it_is_given_up(delivery):
    delivery.start({A: 0}, term=1)
    delivery.poll(0, 10)
    delivery.processed()
    delivery.stop([A], lambda: None)
    assert delivery.to_commit({A: 1}) == {A: 2}
    assert delivery.refused({A: 1}, {A: 1}) == set()


def test_a_partition_in_its_first_term_is_committed_as_the_application_likes(delivery):
    delivery.start({A: 5}, term=1)
    assert delivery.refused({A: 1}, {A: 1}) == set()
    assert delivery.refused({B: 1}, {B: 1}) == set()


def untold(delivery):
    return delivery.terms(lambda terms: terms.untold())


def test_a_loss_of_uncommitted_records_is_known_until_it_is_told(delivery):
    lost_and_back(delivery, 7, [A])
    delivery.processed()
    assert delivery.uncommitted() == {}
    assert untold(delivery) == {A}
    told(delivery)
    assert untold(delivery) == set()


def test_a_loss_of_which_no_callback_tells_is_told_by_an_error_and_a_poll(delivery):
    lost_and_back(delivery, 7, [A])
    terms = delivery.terms(lambda terms: terms)  # nobody else is here
    assert terms.report_untold() == set()  # a callback will tell
    terms.tell_by_error([A])  # there is none
    delivery.processed()
    assert terms.untold() == {A}  # no error was raised before that poll
    assert terms.raise_untold([B]) == set()
    assert terms.raise_untold() == {A}
    assert untold(delivery) == {A}
    delivery.processed()
    assert untold(delivery) == set()


def test_a_loss_after_everything_was_committed_takes_nothing(delivery):
    delivery.start({A: 0})
    delivery.poll(0, 10)
    delivery.processed()
    delivery.committed({A: 2})
    delivery.drop([A])
    assert untold(delivery) == set()


def test_a_loss_before_anything_was_handed_out_takes_nothing(delivery):
    delivery.start({A: 3}, fresh=[A])  # a position that is still to be committed
    delivery.drop([A])
    assert untold(delivery) == set()


class CountingPlane(Plane):
    """Also counts what was fetched anew, and what was thrown away."""

    def start(self, positions):
        self.calls.append(("start", dict(positions)))
        super().start(positions)

    def stop(self, partitions):
        self.calls.append(("stop", sorted(partitions)))
        super().stop(partitions)


@pytest.fixture
def counted():
    made = Delivery(CountingPlane(), lambda m: (m.topic, m.partition), lambda m: m.offset)
    made.start({A: 0, B: 0})
    made.plane = made._plane
    made.poll(0, 10)
    made.processed()
    made.committed({A: 2, B: 2})
    made.plane.calls.clear()
    return made


def given_up(delivery):
    """An eager round begins: everything is given up and its positions forgotten."""
    delivery.stop([A, B], lambda: None, keeps=True)
    delivery.forget([A, B])
    delivery.release([A])


def test_what_comes_back_with_the_same_position_is_not_fetched_again(counted):
    given_up(counted)
    assert counted.active() == set()
    assert counted.plane.calls == [("stop", [B])]  # B went to another member
    counted.start({A: 2}, term=1)
    assert counted.plane.calls == [("stop", [B])]
    assert [m.offset for m in counted.poll(0, 10)] == [2, 3]
    assert counted.position(A) == 4


def test_what_comes_back_elsewhere_is_fetched_from_there(counted):
    given_up(counted)
    counted.start({A: 7}, term=1)
    assert counted.plane.calls == [("stop", [B]), ("stop", [A]), ("start", {A: 7})]
    assert [m.offset for m in counted.poll(0, 10)] == [7, 8]


@pytest.mark.parametrize(("position", "calls"), [(2, []), (7, [("stop", [A]), ("start", {A: 7})])])
def test_a_prepared_partition_keeps_what_it_has_or_begins_anew(counted, position, calls):
    given_up(counted)
    counted.prepare({A: position})
    counted.release([A])
    counted.start({A: position}, term=1)
    assert counted.plane.calls == [("stop", [B]), *calls]
    assert [m.offset for m in counted.poll(0, 10)] == [position, position + 1]


def test_what_arrives_while_nobody_owns_it_waits_and_is_dropped_with_its_partition(counted):
    counted.stop([A], lambda: None, keeps=True)
    assert {m.partition for m in counted.poll(0, 10)} == {1}  # A's records are put aside
    counted.forget([A])
    counted.start({A: 2}, term=1)
    assert [m.offset for m in counted.poll(0, 10)] == [2, 3]
    counted.stop([A], lambda: None, keeps=True)
    counted.poll(0, 10)
    counted.drop([A])
    counted.start({A: 9}, term=2)
    assert 9 in [m.offset for m in counted.poll(0, 10) if m.partition == 0]


def test_a_paused_partition_keeps_nothing(counted):
    counted.pause([A])
    counted.plane.calls.clear()
    counted.stop([A, B], lambda: None, keeps=True)
    assert counted.plane.calls == [("stop", [A])]


def test_a_stop_that_keeps_still_waits_for_what_is_in_flight(counted):
    drained = []
    counted.poll(0, 10)
    counted.stop([A, B], lambda: drained.append(1), keeps=True)
    assert drained == []
    counted.processed()
    assert drained == [1]
    assert counted.uncommitted() == {A: 4, B: 4}
    counted.forget([A, B])
    counted.start({A: 4}, term=1)
    assert [m.offset for m in counted.poll(0, 10) if m.partition == 0] == [4, 5]
