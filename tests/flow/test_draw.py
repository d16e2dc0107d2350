"""explain, to_mermaid, and the picture in a notebook."""

import xml.etree.ElementTree as ElementTree

import penstock as ps
from tests.helpers import names


class Barrier(ps.Operator):
    inputs = 2
    controls = 1

    async def process(self, ctx):
        pass


def make_flow():
    flow = ps.Flow("clicks")
    rows = flow.read(ps.sources.csv("clicks/*.csv", schema="user long, page string"), name="clicks")
    good, bad = rows.branch(lambda row: row["user"], name="known")
    counted = good.key_by("user").count()
    pairs = flow.add(Barrier(), counted, bad, None, name="pairs", replicas=2)
    flow.connect(pairs.map(str, name="<odd> & name".replace("<", "").replace(">", "")), "pairs", control=0)
    pairs.write(ps.sinks.json("out"))
    return flow


def test_explain_names_every_operator_and_what_it_reads():
    lines = make_flow().explain().splitlines()
    assert lines[0] == "flow clicks: 6 operators"
    text = "\n".join(lines)
    assert "source: clicks/*.csv" in text
    assert "keyed: a state per user; reads known" in text
    assert "driver loop, sequential: Barrier; reads count, known[1]; controlled by odd & name; 2 replicas" in text
    assert "sink (transactional): out; reads pairs" in text


def test_explain_speaks_of_one_replica_in_the_singular():
    flow = ps.Flow("one")
    flow.read(ps.sources.items([1])).map(str, replicas=1).write(ps.sinks.null())
    assert "stateless: map; reads items; 1 replica\n" in flow.explain()


def test_mermaid_has_a_node_and_an_edge_for_each():
    text = make_flow().to_mermaid()
    assert text.startswith("---\ntitle: clicks\n---\nflowchart LR\n")
    assert text.count(" --> ") == 6
    assert text.count(" -.-> ") == 1
    assert '["odd &amp; name"]' in text


def test_the_notebook_picture_is_an_svg_with_every_operator():
    flow = make_flow()
    root = ElementTree.fromstring(flow._repr_svg_())
    namespace = "{http://www.w3.org/2000/svg}"
    labels = [text.text for text in root.iter(f"{namespace}text")]
    assert sorted(labels) == sorted(names(flow))
    assert len(list(root.iter(f"{namespace}path"))) == 7 + 1  # the arrow head is a path too


def test_an_unfinished_flow_can_be_drawn():
    flow = ps.Flow("empty")
    ElementTree.fromstring(flow._repr_svg_())
    assert "flowchart" in flow.to_mermaid()
    flow.add(Barrier(), None, None, None)
    ElementTree.fromstring(flow._repr_svg_())


def test_reprs_are_short():
    flow = make_flow()
    assert repr(flow) == "<Flow 'clicks': 6 operators>"
