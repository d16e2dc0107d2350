"""The machine's clock: what a thread has used, and what it has only waited for."""

import threading
import time

from penstock.clock import SystemClock


def test_a_threads_cpu_time_grows_with_its_own_work_alone():
    clock, is_over = SystemClock(), threading.Event()

    def work():
        while not is_over.is_set():
            sum(range(1000))

    other = threading.Thread(target=work)
    other.start()
    try:
        before, deadline = clock.thread_cpu(), time.monotonic() + 60
        clock.sleep(0.2)
        slept = clock.thread_cpu() - before
        while clock.thread_cpu() - before < slept + 0.1 and time.monotonic() < deadline:
            sum(range(1000))
        worked = clock.thread_cpu() - before - slept
    finally:
        is_over.set()
        other.join()
    assert slept < 0.05
    assert worked >= 0.1
