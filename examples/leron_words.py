"""Words that get more and more exclamation marks: the topology of Leron, in which `compute` has two replicas.

`word` makes words, `compute` counts the exclamation marks in each, and `exclaim1` and `exclaim2` append some more.

penstock run examples/leron_words.py:flow --engine sequential
penstock run "examples/leron_words.py:make_flow(100_000, seed=1)" --engine local
"""

import random
from functools import partial
from typing import NamedTuple

import penstock as ps

LETTERS = "abcdefghijklmnopqrstuvwxyz!!!!"
LENGTH = 20
MARKS = "!!!"


class Counted(NamedTuple):
    """A word, and how many exclamation marks it came with."""

    word: str
    marks: int


def make_word(number: int, seed: int = 0) -> str:
    """The same word for the same number and seed, always."""
    return "".join(random.Random(f"{seed} {number}").choices(LETTERS, k=LENGTH))


def compute(word: str) -> Counted:
    return Counted(word, word.count("!"))


def exclaim(counted: Counted) -> Counted:
    return counted._replace(word=counted.word + MARKS)


def query(words: ps.Stream[str]) -> ps.Stream[Counted]:
    computed = words.map(compute, replicas=2)
    return computed.map(exclaim, name="exclaim1", replicas=1).map(exclaim, name="exclaim2", replicas=1)


def make_flow(words: int = 1000, seed: int = 0) -> ps.Flow:
    flow = ps.Flow("leron-words")
    source = ps.sources.generate(partial(make_word, seed=seed), count=words)
    query(flow.read(source, name="word")).write(ps.sinks.console())
    return flow


flow = make_flow()
