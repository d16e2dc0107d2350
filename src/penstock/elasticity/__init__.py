"""Threads, replicas and helpers that find their own number: signals in, changes out, and nothing else.

What is here knows no thread, no clock and no engine. A `Plant` is measured once a period, the `Arbiter` asks the
controllers, and the plant does what one of them wants.
"""
