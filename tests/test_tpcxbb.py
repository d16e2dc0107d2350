"""The queries of TPCx-BB give what DuckDB says of the same data, and the data are the same however they are made."""

import shlex
import sys
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner

import penstock as ps
from penstock.cli.main import cli
from penstock.flow.nodes import Applies, Graph, Loops, Remembers, Waits
from penstock.tpcxbb import make_flow

FOLDER = Path(__file__).parent.parent / "examples" / "tpcxbb"
TABLES = ("web_clickstreams", "store_sales", "item")
SCALE, SEED = 0.04, 7

sys.path.insert(0, str(FOLDER))
try:
    import q1
    import q2
    import q3
    import q4
    import q15
finally:
    sys.path.remove(str(FOLDER))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tpcxbb")
    make_flow(folder, SCALE, SEED).run("local")
    return str(folder)


@pytest.fixture(scope="module")
def database(data):
    """The same files as tables, whose `rowid` is the order of the stream."""
    with duckdb.connect() as connection:
        for table in TABLES:
            connection.execute(f"CREATE TABLE {table} AS FROM read_csv('{data}/{table}/part-*')")
        connection.execute(
            "CREATE VIEW clicks AS SELECT *, web_clickstreams.rowid AS position, "
            "wcs_click_date_sk * 86400 + wcs_click_time_sk AS time "
            "FROM web_clickstreams LEFT JOIN item ON wcs_item_sk = i_item_sk WHERE wcs_user_sk IS NOT NULL"
        )
        connection.execute(
            "CREATE VIEW sales AS SELECT *, store_sales.rowid AS position, "
            "ss_sold_date_sk * 86400 + ss_sold_time_sk AS time "
            "FROM store_sales JOIN item ON ss_item_sk = i_item_sk"
        )
        connection.execute("CREATE MACRO start_of(time, length) AS time // length * length")
        connection.execute(
            # `begins` is true where a session begins, and the running sum of it is the session's number.
            "CREATE MACRO sessions(clicks) AS TABLE SELECT * EXCLUDE begins, max(time) OVER visit + 3600 AS done FROM ("
            "  SELECT *, sum(begins) OVER (PARTITION BY wcs_user_sk ORDER BY position) AS session FROM ("
            "    SELECT *, CAST(coalesce(time - lag(time) OVER (PARTITION BY wcs_user_sk ORDER BY position) >= 3600, "
            "      true) AS integer) AS begins FROM query_table(clicks)))"
            " WINDOW visit AS (PARTITION BY wcs_user_sk, session)"
        )
        yield connection


def result_of(query, data, engine):
    flow, result = ps.Flow("query"), ps.sinks.collect()
    query(flow, data).write(result)
    flow.run(engine)
    return result.items


EVERYWHERE = pytest.mark.parametrize("engine", ["sequential", "local"])
AND_ON_SPARK = pytest.mark.parametrize("engine", ["sequential", "local", "spark"])


@AND_ON_SPARK
def test_q1_items_that_are_sold_together(data, database, engine):
    expected = database.execute(
        """
        WITH bought AS (
          SELECT DISTINCT ss_ticket_number AS ticket, ss_item_sk AS item, start_of(time, 3600) AS hour FROM sales
          WHERE ss_store_sk IN ? AND i_category_id IN ?
        )
        SELECT (a.item, b.item), hour, hour + 3600, count(*)
        FROM bought a JOIN bought b USING (ticket, hour) WHERE a.item < b.item GROUP BY a.item, b.item, hour
        HAVING count(*) >= ?
        QUALIFY row_number() OVER (PARTITION BY hour ORDER BY count(*) DESC, a.item, b.item) <= 100
        ORDER BY hour, count(*) DESC, a.item, b.item
        """,
        [q1.STORES, q1.CATEGORIES, q1.AT_LEAST],
    ).fetchall()
    assert result_of(q1.query, data, engine) == expected
    assert len(expected) > 30


@EVERYWHERE
def test_q2_items_that_are_viewed_in_sessions_with_a_given_one(data, database, engine):
    database.execute("CREATE OR REPLACE TEMP VIEW views AS FROM clicks WHERE wcs_item_sk IS NOT NULL")
    expected = database.execute(
        """
        WITH viewed AS (
          SELECT DISTINCT wcs_user_sk, session, wcs_item_sk AS item, start_of(done, 86400) AS day FROM sessions('views')
        )
        SELECT b.item, day, day + 86400, count(*)
        FROM viewed a JOIN viewed b USING (wcs_user_sk, session, day)
        WHERE a.item = ? AND b.item <> a.item GROUP BY b.item, day
        QUALIFY row_number() OVER (PARTITION BY day ORDER BY count(*) DESC, b.item) <= 30
        ORDER BY day, count(*) DESC, b.item
        """,
        [q2.ITEM],
    ).fetchall()
    assert result_of(q2.query, data, engine) == expected
    assert len(expected) > 500


@EVERYWHERE
def test_q3_items_that_are_viewed_before_others_are_bought(data, database, engine):
    expected = database.execute(
        """
        WITH chosen AS (FROM clicks WHERE i_category_id IN ?),
        before AS (
          SELECT bought.wcs_item_sk AS item, viewed.wcs_item_sk AS other, start_of(bought.time, 604800) AS week,
            bought.time - viewed.time AS ago
          FROM chosen bought JOIN chosen viewed USING (wcs_user_sk)
          WHERE bought.wcs_sales_sk IS NOT NULL AND viewed.wcs_sales_sk IS NULL AND viewed.position < bought.position
          QUALIFY row_number() OVER (PARTITION BY bought.position ORDER BY viewed.position DESC) <= 5
        ),
        counted AS (SELECT item, week, other, count(*) AS times FROM before WHERE ago <= 864000 GROUP BY ALL),
        best AS (
          FROM counted
          QUALIFY row_number() OVER (PARTITION BY item, week ORDER BY times DESC, other) <= 30
        )
        SELECT item, week, week + 604800, list((other, times) ORDER BY times DESC, other) FROM best GROUP BY item, week
        """,
        [q3.CATEGORIES],
    ).fetchall()
    found = result_of(q3.query, data, engine)
    assert sorted(found) == sorted(expected)
    assert [window.start for window in found] == sorted(window.start for window in found)
    assert len(expected) > 100


@AND_ON_SPARK
def test_q4_pages_of_sessions_with_an_abandoned_cart(data, database, engine):
    expected = database.execute(
        """
        WITH abandoned AS (
          SELECT done, count(*) AS pages FROM sessions('clicks') GROUP BY wcs_user_sk, session, done
          HAVING bool_or(wp_type = 'dynamic') AND NOT bool_or(wp_type = 'order')
        )
        SELECT DISTINCT done, count(*) OVER until, avg(pages) OVER until FROM abandoned WINDOW until AS (ORDER BY done)
        ORDER BY done
        """
    ).fetchall()
    # Of sessions that are over at the same time, the last one has the average of all.
    found = {average.until: average for average in result_of(q4.query, data, engine)}
    assert list(found.values()) == [(until, sessions, pytest.approx(pages)) for until, sessions, pages in expected]
    assert len(expected) > 1000


@EVERYWHERE
def test_q15_categories_with_flat_or_declining_sales(data, database, engine):
    expected = database.execute(
        """
        WITH daily AS (
          SELECT i_category_id AS category, ss_sold_date_sk AS day, sum(ss_net_paid) AS paid FROM sales
          WHERE ss_store_sk = ? GROUP BY ALL
        ),
        lines AS (
          SELECT category, day, regr_slope(paid, day) OVER so_far AS slope, lead(day) OVER so_far IS NULL AS is_last
          FROM daily WINDOW so_far AS (PARTITION BY category ORDER BY day)
        )
        SELECT category, day, slope FROM lines WHERE slope <= 0 AND NOT is_last ORDER BY category, day
        """,
        [q15.STORE],
    ).fetchall()
    found = result_of(q15.query, data, engine)
    assert sorted(found) == [(category, day, pytest.approx(slope)) for category, day, slope in expected]
    assert len(expected) > 100


@pytest.mark.parametrize("query", [q1.query, q2.query], ids=["q1", "q2"])
def test_the_best_of_a_window_survive_a_restart_at_every_wait(data, query):
    restarted = result_of(query, data, ps.engines.Sequential(restart="every-wait"))
    assert restarted == result_of(query, data, "sequential")


def pipeline(graph: Graph) -> str:
    """In the paper's letters: stateless, partitioned stateful and stateful operators."""
    letters = []
    for node in graph.nodes:
        match node.kind:
            case Applies():
                letters.append("SL")
            case Waits():
                letters.append("PS")
            case Remembers(key=key):
                letters.append("SF" if key is None else "PS")
            case Loops():
                letters.append("SF")
    return " ".join(letters)


@pytest.mark.parametrize(
    ("module", "expected"),
    [(q1, "SL PS PS SF"), (q2, "SL PS SL PS SF"), (q3, "SL PS PS"), (q4, "SL PS SL SF"), (q15, "SL SL PS")],
    ids=["q1", "q2", "q3", "q4", "q15"],
)
def test_the_pipelines_are_those_of_the_paper(data, module, expected):
    assert pipeline(module.make_flow(data).validate()) == expected


def lines(folder, table):
    return [line for part in sorted(Path(folder, table).glob("part-*")) for line in part.read_text().splitlines()[1:]]


@pytest.mark.parametrize("tasks", [1, 5])
def test_the_data_are_the_same_however_many_tasks_make_them(data, tmp_path, tasks):
    make_flow(tmp_path, SCALE, SEED).run("spark", parallelism=tasks)
    for table in TABLES:
        assert lines(tmp_path, table) == lines(data, table)
    assert len(list(Path(tmp_path, "web_clickstreams").glob("part-*"))) >= tasks


def test_another_seed_makes_other_data_of_the_same_size(data, tmp_path):
    make_flow(tmp_path, SCALE, SEED + 1).run("local")
    for table in ("web_clickstreams", "store_sales"):
        assert lines(tmp_path, table) != lines(data, table)
        assert len(lines(tmp_path, table)) == pytest.approx(len(lines(data, table)), rel=0.05)


def test_the_data_are_in_the_order_of_time_and_skewed(database):
    for table in ("clicks", "sales"):
        times = [time for (time,) in database.execute(f"SELECT time FROM {table} ORDER BY position").fetchall()]
        assert times == sorted(times)
        most, all_days = database.execute(
            f"SELECT max(share), count(*) FROM (SELECT count(*) AS share FROM {table} GROUP BY time // 86400)"
        ).fetchone()
        assert all_days == 30
        assert most < 2 * len(times) / all_days
    best, total, items = database.execute(
        "SELECT max(sold), sum(sold), count(*) FROM (SELECT count(*) AS sold FROM sales GROUP BY ss_item_sk)"
    ).fetchone()
    assert best > 5 * total / items


def test_the_commands_in_the_docstrings_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_ENGINE", "local")  # where they say Spark, by saying nothing
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("examples").symlink_to(FOLDER.parent)
    commands = {}
    for module in (q1, q2, q3, q4, q15):
        monkeypatch.delitem(sys.modules, module.__name__)
        commands |= {line: None for line in module.__doc__.splitlines() if line.startswith("penstock ")}
    for command in commands:
        ran = CliRunner().invoke(cli, shlex.split(command)[1:])
        assert ran.exit_code == 0, (command, ran.output)
        assert ran.stdout or " generate " in command
    assert len(commands) == 6
