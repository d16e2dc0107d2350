"""What people tweet about during an election, minute by minute, with spikes: the application of PRESPS.

Tweets are (1) filtered, so that none counts twice, (2) taken apart into words, (3) classified by topic, and (4) counted
by topic and minute.

penstock run examples/twitter_topics.py:flow --engine sequential
penstock run "examples/twitter_topics.py:make_flow(100_000, seed=1)"
"""

import random
import re
from functools import partial
from typing import NamedTuple

import penstock as ps

TOPICS = {
    "economy": ("jobs", "taxes", "trade", "wages"),
    "health": ("doctors", "hospital", "insurance", "medicine"),
    "voting": ("ballot", "debate", "poll", "vote"),
}
OTHER = "other"
SMALL_TALK = ("and", "today", "is", "the", "my", "about", "really", "so", "what", "they", "say")
NOT_WORDS = re.compile(r"https?://\S+|@\w+|[^a-z\s]")

CALM_MS, SPIKE_MS = 200, 20  # from a tweet to the next one
TWEETS_PER_PHASE = 500


class Tweet(NamedTuple):
    time: float
    text: str


class Words(NamedTuple):
    time: float
    words: list[str]


class Topic(NamedTuple):
    time: float
    name: str


def make_tweet(number: int, seed: int = 0) -> Tweet:
    """The same tweet for the same number and seed; calm and spikes take turns."""
    chance = random.Random(f"{seed} {number}")
    topic = chance.choice([*TOPICS, OTHER])
    words = chance.choices(SMALL_TALK, k=chance.randint(3, 8))
    if topic != OTHER:
        words.insert(chance.randint(0, len(words)), "#" + chance.choice(TOPICS[topic]).title())
    if chance.random() < 0.3:
        words.append(f"https://example.org/{chance.randint(1, 999)}/vote")
    start = f"RT @user{chance.randint(1, 99)}: " if chance.random() < 0.2 else ""
    return Tweet(time_of(number), start + " ".join(words))


def time_of(number: int) -> float:
    """In seconds: a phase of calm, as many tweets in a spike, and again."""
    both, within = divmod(number, 2 * TWEETS_PER_PHASE)
    calm, spike = min(within, TWEETS_PER_PHASE), max(0, within - TWEETS_PER_PHASE)
    return (both * TWEETS_PER_PHASE * (CALM_MS + SPIKE_MS) + calm * CALM_MS + spike * SPIKE_MS) / 1000


def is_original(tweet: Tweet) -> bool:
    return not tweet.text.startswith("RT @")


def words_of(tweet: Tweet) -> Words:
    """Without links, names and signs."""
    return Words(tweet.time, NOT_WORDS.sub("", tweet.text.lower()).split())


def classify(tweet: Words) -> Topic:
    """The first topic of which there is a word."""
    found = (name for name, words in TOPICS.items() if not set(words).isdisjoint(tweet.words))
    return Topic(tweet.time, next(found, OTHER))


def query(tweets: ps.Stream[Tweet]) -> ps.Stream[ps.WindowResult]:
    topics = tweets.filter(is_original).map(words_of).map(classify)
    minutes = ps.windows.tumbling(60, time=lambda topic: topic.time)
    return topics.key_by(lambda topic: topic.name).window(minutes).count(name="per_minute")


def make_flow(tweets: int = 5000, seed: int = 0) -> ps.Flow:
    flow = ps.Flow("twitter-topics")
    source = ps.sources.generate(partial(make_tweet, seed=seed), count=tweets)
    query(flow.read(source, name="tweets")).write(ps.sinks.console())
    return flow


flow = make_flow()
