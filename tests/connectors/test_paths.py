"""A URI is understood or refused: never a folder called `s3:`."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

import penstock as ps
from tests.connectors.connector_tools import read, write

MAKERS = [
    *(getattr(ps.sources, kind) for kind in ("text", "csv", "json", "parquet")),
    *(getattr(ps.sinks, kind) for kind in ("text", "csv", "json", "parquet")),
]
ELSEWHERE = [
    "s3://bucket/x",
    "S3A://bucket/x",
    "gs://b/*.csv",
    "abfss://c@a.dfs/x",
    "hdfs:///x",
    "https://example.com/x",
    "hdfs:/x",
    "s3:/bucket/x",
]


@pytest.mark.parametrize("uri", ELSEWHERE)
def test_what_is_elsewhere_is_refused_at_once(uri, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for make in MAKERS:
        with pytest.raises(ps.FlowError, match=r"local \(or mounted\) file systems only"):
            make(uri)
        with pytest.raises(ps.FlowError, match="file systems only|was a URI"):
            make(Path(uri.lower()))
    with pytest.raises(ps.FlowError, match="s3"):
        ps.sources.text([tmp_path, "s3://bucket/x"])
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("uri", ["file://host/x", "file://", "file://C:/x"])
def test_files_of_other_hosts_are_refused(uri):
    for make in MAKERS:
        with pytest.raises(ps.FlowError, match="names another host"):
            make(uri)


def test_a_file_uri_is_a_local_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    uri = f"file://{tmp_path}/a%20b"
    write(ps.sinks.parquet(uri), [{"n": 1}])
    assert os.listdir(tmp_path) == ["a b"]
    assert read(ps.sources.parquet(uri)) == [{"n": 1}]
    assert read(ps.sources.parquet(f"{uri}/*.parquet")) == [{"n": 1}]
    assert pa.parquet.read_table(tmp_path / "a b").num_rows == 1


def test_the_form_in_which_java_shows_a_file_uri_is_a_local_path_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(ps.sinks.json(f"file:{tmp_path}/out"), [{"n": 1}])
    assert os.listdir(tmp_path) == ["out"]
    assert read(ps.sources.json(f"file:{tmp_path}/out")) == [{"n": 1}]


@pytest.mark.parametrize("path", ["", " ", "a\0b", 5])
def test_what_is_no_path_is_refused(path):
    for make in MAKERS[4:]:
        with pytest.raises(ps.FlowError, match="sink: path= is the path of a directory"):
            make(path)


@pytest.mark.parametrize("name", ["12:30", "C:\\x", "c:x", "s3:bucket"])
def test_a_colon_alone_makes_no_uri(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    write(ps.sinks.text(name), ["1"])
    assert os.listdir(tmp_path) == [name]
    assert read(ps.sources.text(name)) == ["1"]
