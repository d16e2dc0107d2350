"""Where threads stand can be asked at any moment, also in the middle of a garbage collection."""

import subprocess
import sys
import textwrap

import pytest


@pytest.mark.timeout(60)
def test_a_collection_on_the_way_does_not_lock_the_interpreter():
    """In a process of its own: Python's own timeouts can't end what holds the interpreter."""
    program = textwrap.dedent("""
        import gc, threading
        from penstock.runtime.standing import standing

        def leave_garbage():
            # A thread-local in a cycle: to let go of it, the collector takes the interpreter's lock of threads.
            garbage = [threading.local()]
            garbage[0].value = 1
            garbage.append(garbage)

        may_go = threading.Event()
        for _ in range(20):
            thread = threading.Thread(target=may_go.wait, daemon=True)
            thread.start()
            gc.disable()
            for _ in range(gc.get_threshold()[0] + 1):
                leave_garbage()
            spare = [[] for _ in range(200)] + [{} for _ in range(200)]
            del spare  # so that the next new object is a frame, made under that lock
            gc.enable()
            assert "wait" in standing(thread.ident)
            assert gc.isenabled()
        print("came back")
    """)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=False)
    assert ended.stdout == "came back\n", ended.stderr
