"""Units come out by their serial numbers, each once, whoever adds them and whenever."""

import random
import threading

import pytest

from penstock.ordering.reorder import LockedBuffer, Ring, Unordered

SIZE = 4


class Receiver:
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
    receiver = Receiver(refuses=chance.choice([0, 3]))
    buffer = make(SIZE, receiver)
    left = list(range(40))
    while left:
        window = left[: chance.randint(1, SIZE)]
        serial = chance.choice(window)
        if buffer.add(serial, f"o{serial}"):
            left.remove(serial)
        else:
            assert serial >= buffer.next + SIZE
        if receiver.is_blocked and chance.random() < 0.5:
            receiver.is_blocked = False
            buffer.send_pending()
        assert receiver.sent == [f"o{serial}" for serial in range(len(receiver.sent))]
    while len(receiver.sent) < 40:
        receiver.is_blocked = False
        buffer.send_pending()
    assert receiver.sent == [f"o{serial}" for serial in range(40)]
    assert buffer.waiting() == 0


def test_what_is_too_far_ahead_is_refused(make):
    buffer = make(SIZE, Receiver())
    assert not buffer.add(SIZE, "ahead")
    assert buffer.add(SIZE - 1, "last that fits")
    assert buffer.waiting() == 1


class _Flag:
    """A ring's flag; `meanwhile` happens once, before it is let go, when its holder has seen that nothing is ready."""

    def __init__(self):
        self.meanwhile = lambda: None
        self._lock = threading.Lock()

    def acquire(self, blocking):
        return self._lock.acquire(blocking)

    def release(self):
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        self._lock.release()


def test_theorem_3_1_nothing_ready_is_left_behind():
    """A unit that is added while the sender is leaving is sent by the sender, who looks again."""
    receiver, flag = Receiver(), _Flag()
    ring = Ring(SIZE, receiver, flag)
    flag.meanwhile = lambda: ring.add(1, "second")
    ring.add(0, "first")
    assert receiver.sent == ["first", "second"]


def test_room_that_is_made_while_the_sender_leaves_is_used():
    receiver, flag = Receiver(refuses=2), _Flag()
    ring = Ring(SIZE, receiver, flag)

    def make_room():
        receiver.is_blocked = False
        ring.send_pending()  # in vain: the sender is still there

    ring.add(0, "first")
    flag.meanwhile = make_room
    ring.add(1, "second")
    assert receiver.sent == ["first", "second"]


def test_a_unit_is_never_put_into_a_slot_that_is_taken():
    """The ring is full up to the slot of the next unit: one more would overwrite it."""
    receiver = Receiver()
    ring = Ring(SIZE, receiver)
    for serial in range(1, SIZE):
        assert ring.add(serial, serial)
    assert not ring.try_add(SIZE, "would be taken for the first")
    ring.add(0, 0)
    assert receiver.sent == list(range(SIZE))


@pytest.mark.parametrize("make", [Ring, LockedBuffer, Unordered])
def test_many_threads(make):
    receiver = Receiver()
    buffer = make(64, receiver)
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

    threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert (sorted(receiver.sent) if make is Unordered else receiver.sent) == list(range(1000))
