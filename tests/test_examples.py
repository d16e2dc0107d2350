"""Every example prints the right result from the command line."""

import ast
import importlib
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner

import penstock as ps
from penstock.cli.main import cli

EXAMPLES = Path(__file__).parent.parent / "examples"


def printed(target: str) -> list[str]:
    command = [sys.executable, "-m", "penstock", "run", target, "--engine", "sequential", "--no-report"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def imported(name):
    sys.path.insert(0, str(EXAMPLES))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(EXAMPLES))


def result_of(query, values, engine):
    flow, result = ps.Flow("query"), ps.sinks.collect()
    query(flow.read(ps.sources.items(values))).write(result)
    flow.run(engine)
    return result.items


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_every_example_runs(path):
    assert printed(f"{path}:flow")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_every_example_prints_the_same_on_spark(path):
    result = CliRunner().invoke(cli, ["run", f"{path}:flow", "--no-report"])
    assert result.exit_code == 0, result.output
    # Of two sinks that print, Spark calls one after the other for each batch: what each prints is the same.
    by_sink = [
        sorted(lines, key=lambda line: line[0]) for lines in (result.stdout.splitlines(), printed(f"{path}:flow"))
    ]
    assert by_sink[0] == by_sink[1]


NAMED_VALUES = [
    {"id": 1, "name": "ada", "value": 1815},
    {"id": 3, "name": "grace", "value": 1906},
    {"id": 4, "name": "barbara", "value": 1939},
    {"id": 6, "name": "frances", "value": 1932},
]


def test_name_value_join():
    assert [ast.literal_eval(line) for line in printed(f"{EXAMPLES}/name_value_join.py:flow")] == NAMED_VALUES


def test_name_value_join_over_tcp():
    lines = (EXAMPLES / "data" / "values.csv").read_text().split("\n", 1)[1]
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(120)
        target = f"{EXAMPLES}/name_value_join.py:over_tcp('127.0.0.1', {server.getsockname()[1]})"
        command = [sys.executable, "-m", "penstock", "run", target, "--engine", "sequential", "--no-report"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            connection, _ = server.accept()
            with connection:
                connection.sendall(lines.encode())
            out, _ = process.communicate(timeout=120)
    assert [ast.literal_eval(line) for line in out.splitlines()] == NAMED_VALUES


def test_failed_logins_finds_exactly_the_sshd_failures():
    lines = printed(f"{EXAMPLES}/failed_logins.py:flow")
    rows = [ast.literal_eval(line) for line in lines if line.startswith("{")]
    assert [(row["time"], row["rhost"], row["user"]) for row in rows] == [
        ("2026-11-03 04:11:05", "203.0.113.9", "root"),
        ("2026-11-03 04:12:58", "198.51.100.23", ""),
        ("2026-11-03 04:14:02", "203.0.113.9", "postgres"),
    ]
    assert [line for line in lines if not line.startswith("{")] == ["not a syslog line: '-- MARK --'"]


def test_high_mobility_fraud_finds_the_cloned_phones_as_plain_python_does():
    fraud = imported("high_mobility_fraud")
    last, expected = {}, Counter()
    for number in range(2000):
        call = fraud.make_call(number)
        if not call.caller.startswith(fraud.AREA_CODE):
            continue
        for seen in fraud.places(call):
            _, row = fraud.speed(last.get(seen.phone), seen)
            last[seen.phone] = seen
            if row["kmh"] > fraud.FASTEST_KMH:
                expected[seen.phone, seen.time // fraud.WINDOW_SECONDS * fraud.WINDOW_SECONDS] += 1
    found = {}
    for line in printed(f"{EXAMPLES}/high_mobility_fraud.py:flow"):
        phone, times, _, _, start, *_ = line.split()
        found[phone, float(start)] = int(times)
    assert found == expected
    assert {phone for phone, _ in found} == {"312-555-0007", "312-555-0023"}


@pytest.mark.parametrize("engine", ["sequential", "local"])
def test_twitter_topics_are_those_that_sql_finds(engine):
    twitter = imported("twitter_topics")
    tweets = [twitter.make_tweet(number, seed=5) for number in range(4000)]
    with duckdb.connect() as database:
        database.execute("CREATE TABLE tweets (time double, text varchar)")
        database.execute("INSERT INTO tweets FROM (SELECT unnest(?), unnest(?))", list(map(list, zip(*tweets))))
        expected = database.execute(
            r"""
            WITH words AS (
              SELECT time, regexp_split_to_array(
                regexp_replace(lower(text), 'https?://\S+|@\w+|[^a-z\s]', '', 'g'), '\s+') AS found
              FROM tweets WHERE text NOT LIKE 'RT @%'
            )
            SELECT CASE WHEN list_has_any(found, ['jobs', 'taxes', 'trade', 'wages']) THEN 'economy'
                WHEN list_has_any(found, ['doctors', 'hospital', 'insurance', 'medicine']) THEN 'health'
                WHEN list_has_any(found, ['ballot', 'debate', 'poll', 'vote']) THEN 'voting'
                ELSE 'other' END,
              floor(time / 60) * 60 AS start, start + 60, count(*)
            FROM words GROUP BY ALL
            """
        ).fetchall()
    found = result_of(twitter.query, tweets, engine)
    assert sorted(found) == sorted(expected)
    assert [window.start for window in found] == sorted(window.start for window in found)
    by_minute = Counter()
    for window in found:
        by_minute[window.start] += window.value
    assert max(by_minute.values()) > 2 * min(by_minute.values())  # there are spikes


@pytest.mark.parametrize("engine", ["sequential", "local"])
def test_leron_words_are_those_that_sql_makes_and_none_is_missing(engine):
    leron = imported("leron_words")
    words = [leron.make_word(number, seed=5) for number in range(4000)]
    with duckdb.connect() as database:
        expected = database.execute(
            "SELECT word || '!!!!!!', length(word) - length(replace(word, '!', '')) FROM (SELECT unnest(?) AS word)",
            [words],
        ).fetchall()
    assert result_of(leron.query, words, engine) == expected
