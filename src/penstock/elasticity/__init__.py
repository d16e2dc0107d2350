"""Threads, replicas and helpers that find their own number: signals in, changes out, and nothing else.

What is here knows no thread, no clock and no engine. An engine measures `Signals` once a period, `Loop` asks the
controllers, and the engine applies what they want.
"""
