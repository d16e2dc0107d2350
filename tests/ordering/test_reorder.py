"""Units come out by their serial numbers, each once, whoever adds them and whenever."""

import random
import threading

import pytest

from penstock.ordering.reorder import LockedBuffer, Ring, Unordered

SIZE = 4


class Outlet:
    """Takes units, as long as it is not blocked; refuses every `refuses`-th time and is blocked then."""

    def __init__(self, refuses=0):
        self.sent = []
        self.is_blocked = False
        self._asked = 0
        self._refuses = refuses
        self._senders = 0

    def send(self, unit):
        self._senders += 1
        assert self._senders == 1, "two senders at once"
        assert not self.is_blocked, "asked for nothing"
        self._asked += 1
        refused = self._refuses and self._asked % self._refuses == 0
        if refused:
            self.is_blocked = True
        else:
            self.sent.append(unit)
        self._senders -= 1
        return not refused


@pytest.fixture(params=[Ring, LockedBuffer])
def make(request):
    return request.param


@pytest.mark.parametrize("seed", range(20))
def test_theorem_3_1_an_output_is_sent_after_all_before_it(make, seed):
    """Units are added in any order that their workers could be done in; each is sent when it is its turn."""
    chance = random.Random(seed)
    outlet = Outlet(refuses=chance.choice([0, 3]))
    buffer = make(SIZE, outlet)
    left = list(range(40))
    while left:
        window = left[: chance.randint(1, SIZE)]
        serial = chance.choice(window)
        if buffer.add(serial, f"o{serial}"):
            left.remove(serial)
        else:
            assert serial >= buffer.next + SIZE
        if outlet.is_blocked and chance.random() < 0.5:
            outlet.is_blocked = False
            buffer.send_pending()
        assert outlet.sent == [f"o{serial}" for serial in range(len(outlet.sent))]
    while len(outlet.sent) < 40:
        outlet.is_blocked = False
        buffer.send_pending()
    assert outlet.sent == [f"o{serial}" for serial in range(40)]
    assert buffer.waiting() == 0


def test_what_is_too_far_ahead_is_refused(make):
    buffer = make(SIZE, Outlet())
    assert not buffer.add(SIZE, "ahead")
    assert buffer.add(SIZE - 1, "last that fits")
    assert buffer.waiting() == 1


class _Flag:
    """A ring's flag; `meanwhile` happens before it is let go, when its holder has seen that nothing is ready."""

    def __init__(self, meanwhile):
        self._lock = threading.Lock()
        self._meanwhile = meanwhile

    def acquire(self, blocking):
        return self._lock.acquire(blocking)

    def release(self):
        meanwhile, self._meanwhile = self._meanwhile, lambda: None
        meanwhile()
        self._lock.release()


def test_theorem_3_1_nothing_ready_is_left_behind():
    """A unit that is added while the sender is leaving is sent by the sender, who looks again."""
    outlet = Outlet()
    ring = Ring(SIZE, outlet)
    ring._flag = _Flag(meanwhile=lambda: ring.add(1, "second"))
    ring.add(0, "first")
    assert outlet.sent == ["first", "second"]


def test_room_that_is_made_while_the_sender_leaves_is_used():
    outlet = Outlet(refuses=2)
    ring = Ring(SIZE, outlet)

    def make_room():
        outlet.is_blocked = False
        ring.send_pending()  # in vain: the sender is still there

    ring.add(0, "first")
    ring._flag = _Flag(meanwhile=make_room)
    ring.add(1, "second")
    assert outlet.sent == ["first", "second"]


def test_a_unit_is_never_put_into_a_slot_that_is_taken():
    """The ring is full up to the slot of the next unit: one more would overwrite it."""
    outlet = Outlet()
    ring = Ring(SIZE, outlet)
    for serial in range(1, SIZE):
        assert ring.add(serial, serial)
    assert not ring.try_add(SIZE, "would be taken for the first")
    ring.add(0, 0)
    assert outlet.sent == list(range(SIZE))


@pytest.mark.parametrize("make", [Ring, LockedBuffer, Unordered])
def test_many_threads(make):
    outlet = Outlet()
    buffer = make(64, outlet)
    serials = iter(range(1000))
    lock = threading.Lock()

    def work():
        while True:
            with lock:
                serial = next(serials, None)
            if serial is None:
                return
            while not buffer.add(serial, serial):
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (sorted(outlet.sent) if make is Unordered else outlet.sent) == list(range(1000))
