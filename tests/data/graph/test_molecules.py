"""Molecules of OGB: its own reader, ``smiles2graph`` and ``Evaluator`` as oracles."""

import gzip
import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from hma.data import builtin, open_source, preparation_from_json
from hma.data.graph import molecules as ogb_folder
from hma.data.graph.molecules import ATOM_SIZES, BOND_SIZES, graphs_of_smiles
from hma.errors import UserError
from hma.extras import needed
from hma.metrics import scores
from hma.targets import YesNo

SMILES = ("CCO", "c1ccccc1C(=O)O", "[Na+].[Cl-]", "C", "F/C=C/F", "C[C@H](N)C(=O)O", "N#N",
          "CC(C)=O", "[B-2]1(C)(C)=NCCO1",
          "O=C1O[Al]23(OC1=O)(OC(=O)C(=O)O2)OC(=O)C(=O)O3")  # fmt: skip
UNSOUND = SMILES[-2:]
"""Atoms with more bonds than RDKit allows."""
COUNTS = {"molbace": (1210, 151, 152), "molbbbp": (1631, 204, 204)}


def packed(file, rows):
    file.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(",".join(map(str, row)) + "\n" for row in rows)
    file.write_bytes(gzip.compress(text.encode()))


def molecules(root, smiles=SMILES, name="molbace", labels=None, split=((0, 1, 2, 3), (4,), (5,))):
    """Write a folder of OGB's that holds SMILES and labels only."""
    folder = root / f"ogbg_{name}"
    labels = labels or [(place % 2,) for place in range(len(smiles))]
    header = [f"task {place}" for place in range(len(labels[0]))]
    rows = [(*of, text, f"id {place}") for place, (of, text) in
            enumerate(zip(labels, smiles, strict=True))]  # fmt: skip
    packed(folder / "mapping" / "mol.csv.gz", [(*header, "smiles", "mol_id"), *rows])
    for part, places in zip(("train", "valid", "test"), split, strict=True):
        packed(folder / "split" / "scaffold" / f"{part}.csv.gz", [(place,) for place in places])
    return folder


def raw(folder, smiles=SMILES):
    """Add the tables that OGB makes of the SMILES, where a bond is listed once."""
    graphs = graphs_of_smiles(smiles, "test")
    packed(folder / "raw" / "num-node-list.csv.gz", graphs["nodes"][:, None].tolist())
    packed(folder / "raw" / "num-edge-list.csv.gz", (graphs["edges"][:, None] // 2).tolist())
    packed(folder / "raw" / "edge.csv.gz", graphs["ends"].T[::2].tolist())
    packed(folder / "raw" / "edge-feat.csv.gz", graphs["bonds"][::2].tolist())
    packed(folder / "raw" / "node-feat.csv.gz", graphs["atoms"].tolist())
    return folder


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "hma" / "molecules"


# ------------------------------------------------------------------------------- the graphs


@pytest.mark.parametrize("text", SMILES[:-2])
def test_a_molecule_has_the_codes_of_smiles2graph(text):
    oracle = needed("ogb.utils.mol", "the test").smiles2graph(text)
    found = graphs_of_smiles([text], "test")
    assert found["atoms"].tolist() == oracle["node_feat"].tolist()
    assert found["ends"].tolist() == oracle["edge_index"].tolist()
    assert found["bonds"].tolist() == oracle["edge_feat"].tolist()
    assert found["nodes"].tolist() == [oracle["num_nodes"]]


def test_codes_have_as_many_values_as_in_ogb():
    features = needed("ogb.utils.features", "the test")
    assert list(ATOM_SIZES) == features.get_atom_feature_dims()
    assert list(BOND_SIZES) == features.get_bond_feature_dims()


def test_molecules_that_rdkit_finds_unsound_are_graphs_too():
    chemistry = needed("rdkit.Chem", "the test")
    for text in UNSOUND:
        with needed("rdkit.rdBase", "the test").BlockLogs():
            assert chemistry.MolFromSmiles(text) is None
        read = chemistry.MolFromSmiles(text, sanitize=False)
        found = graphs_of_smiles([text], "test")
        elements = [atom.GetAtomicNum() - 1 for atom in read.GetAtoms()]
        assert found["atoms"][:, 0].tolist() == elements
        bonds = [(b.GetBeginAtomIdx(), b.GetEndAtomIdx()) for b in read.GetBonds()]
        assert found["ends"].T[::2].tolist() == [list(ends) for ends in bonds]


def test_a_batch_holds_whole_codes_and_both_directions(tmp_path, cache):
    molecules(tmp_path)
    prepared = builtin("ogb:molbace", seed=0, data_root=tmp_path)
    assert prepared.task.shape == (*ATOM_SIZES, 0, *BOND_SIZES)
    batch = prepared.task.train.batch(torch.tensor([1, 0, 3])).x
    oracle = graphs_of_smiles([SMILES[1], SMILES[0], SMILES[3]], "test")
    assert batch.x.dtype is batch.edge_attr.dtype is torch.long
    assert batch.x.tolist() == oracle["atoms"].tolist()
    assert batch.edge_attr.tolist() == oracle["bonds"].tolist()
    first = len(graphs_of_smiles([SMILES[1]], "test")["atoms"])
    alone = graphs_of_smiles([SMILES[0]], "test")["ends"]
    of_second = batch.batch[batch.edge_index[0]] == 1
    assert (batch.edge_index[:, of_second] - first).tolist() == alone.tolist()
    again = preparation_from_json(json.loads(json.dumps(prepared.preparation.to_json())))
    assert again == prepared.preparation
    assert again.split(prepared.source).batch(torch.tensor([2])).x.x.shape[1] == len(ATOM_SIZES)


@pytest.mark.data
@pytest.mark.parametrize("name", COUNTS)
def test_real_molecules_are_what_ogb_reads(data_root, name):
    prepared = builtin(f"ogb:{name}", seed=0, data_root=data_root)
    found = tuple(len(prepared.places[part]) for part in ("train", "validation", "test"))
    assert found == COUNTS[name]
    read = needed("ogb.io.read_graph_raw", "the test").read_csv_graph_raw
    oracle = read(str(data_root / f"ogbg_{name}" / "raw"), add_inverse_edge=True)
    store = prepared.preparation.store(prepared.source)
    for place, graph in enumerate(oracle):
        cut = store.cut(torch.tensor([place]))
        assert np.array_equal(cut.x, graph["node_feat"])
        assert np.array_equal(cut.edge_index, graph["edge_index"])
        assert np.array_equal(cut.edge_attr, graph["edge_feat"])


@pytest.mark.data
def test_smiles_give_the_graphs_of_the_tables(data_root):
    """RDKit of today writes most of molbace as OGB's files have it."""
    source = open_source("ogb:molbace", data_root=data_root)
    made = graphs_of_smiles(source.smiles[:60], "test")
    atoms, bonds = int(made["nodes"].sum()), int(made["edges"].sum())
    assert torch.equal(made["nodes"], source.nodes_before.diff()[:60])
    assert torch.equal(made["ends"].long(), source.edges[:, :bonds])
    assert (made["atoms"] == source.node_labels[:atoms]).float().mean() > 0.99


@pytest.mark.data
def test_hiv_has_the_published_counts_and_seven_unsound_molecules(data_root):
    folder = data_root / "ogbg_molhiv"
    columns = ogb_folder._columns(folder / "mapping" / "smiles.csv.gz")
    assert len(columns["smiles"]) == 41_127
    assert columns["HIV_active"].count("1") == 1443
    unsound = [columns["smiles"][place] for place in (137, 987, 12882, 18293, 30784, 30785, 35728)]
    found = graphs_of_smiles(unsound, "molhiv")
    assert found["nodes"].tolist() == [19, 19, 67, 31, 22, 23, 27]


# -------------------------------------------------------------------- tables, SMILES, cache


def test_tables_and_smiles_give_the_same_graphs(tmp_path, cache):
    folder = molecules(tmp_path)
    made = open_source("ogb:molbace", data_root=tmp_path)
    read = open_source("ogb:molbace", data_root=raw(folder).parent)
    for part in ("nodes_before", "edges_before", "edges", "node_labels", "edge_labels"):
        assert torch.equal(getattr(made, part), getattr(read, part))
    assert made.labels == read.labels == [(str(place % 2),) for place in range(len(SMILES))]
    assert read.describe(0) == "molecule 0 (CCO)"


def test_graphs_are_made_of_smiles_once(tmp_path, cache, monkeypatch):
    molecules(tmp_path)
    before, told = open_source("ogb:molbace", data_root=tmp_path), []
    ogb_folder.graphs_of_smiles(SMILES, "test", lambda *counts: told.append(counts))
    assert told == [(len(SMILES), len(SMILES))]
    monkeypatch.setattr(ogb_folder, "graphs_of_smiles", lambda *_: pytest.fail("made again"))
    after = open_source("ogb:molbace", data_root=tmp_path)
    assert torch.equal(before.node_labels, after.node_labels)
    assert torch.equal(before.edges, after.edges)
    assert len(list(cache.glob("*.safetensors"))) == 1


# ------------------------------------------------------------------------- labels and metric


def test_missing_labels_stay_out_of_loss_and_score(tmp_path, cache):
    labels = [(1, 0), (0, ""), ("nan", 1), (1, 1), ("", ""), (0, 0)]
    molecules(tmp_path, SMILES[:6], labels=labels, name="moltox21")
    task = builtin("ogb:moltox21", seed=0, data_root=tmp_path).task
    assert task.classes == ("task 0", "task 1")
    y = torch.cat([task.train.labels, task.validation.labels, task.tests["test"].labels])
    known = torch.tensor([[label not in ("", "nan") for label in row] for row in labels])
    assert torch.equal(~y.isnan(), known)
    logits = torch.randn(6, 2, requires_grad=True)
    task.target.loss(logits, y).sum().backward()
    assert torch.equal(logits.grad != 0, known)
    chance = logits.detach().double().sigmoid()
    for row in range(6):
        each = [-torch.log(chance[row, t] if y[row, t] == 1 else 1 - chance[row, t])
                for t in range(2) if known[row, t]]  # fmt: skip
        wanted = float(sum(each) / len(each)) if each else 0.0
        assert float(task.target.loss(logits.detach(), y)[row]) == pytest.approx(wanted, rel=1e-5)


def test_roc_auc_is_that_of_ogb_and_of_scikit_learn():
    generator = np.random.default_rng(0)
    y = generator.integers(0, 2, (80, 12)).astype(float)
    y[generator.random((80, 12)) < 0.3] = np.nan
    y[:, 3] = 1.0  # no row on the other side: left out
    logits = generator.normal(size=(80, 12)).round(1)  # with ties
    found = scores(torch.tensor(logits), torch.tensor(y), ["auroc"], target=YesNo(12))["auroc"]
    evaluator = needed("ogb.graphproppred", "the test").Evaluator("ogbg-moltox21")
    assert found == pytest.approx(evaluator.eval({"y_true": y, "y_pred": logits})["rocauc"])
    each = [roc_auc_score(y[known, t], logits[known, t])
            for t, known in enumerate(~np.isnan(y).T) if len(set(y[known, t])) > 1]  # fmt: skip
    assert len(each) == 11
    assert found == pytest.approx(np.mean(each))


def test_numbers_are_learned_as_numbers(tmp_path, cache):
    molecules(tmp_path, name="molesol", labels=[(0.5 * place,) for place in range(len(SMILES))])
    task = builtin("ogb:molesol", seed=0, data_root=tmp_path).task
    assert (task.target.kind, task.metric) == ("number", "rmse")
    assert task.train.labels.tolist() == [0.0, 0.5, 1.0, 1.5]


# --------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("molhvi", "no molecules called 'ogb:molhvi'; did you mean 'ogb:molhiv'"),
        ("molbbbp", "ogb:molbbbp is missing: looked for .*ogbg_molbbbp; put the data of "
                    "http://snap.stanford.edu/.*bbbp.zip there"),
    ],
)  # fmt: skip
def test_a_name_that_is_not_there_says_what_was_meant_or_where_it_belongs(tmp_path, name, said):
    with pytest.raises(UserError, match=said):
        builtin(f"ogb:{name}", seed=0, data_root=tmp_path)


def truncated(file):
    file.write_bytes(file.read_bytes()[:-12])


@pytest.mark.parametrize(
    ("part", "change", "said"),
    [
        ("raw/edge.csv.gz", truncated, "edge.csv.gz is damaged"),
        ("raw/node-feat.csv.gz", lambda file: packed(file, [[1] * 9]),
         "node-feat.csv.gz must have 57 lines, as the lists of counts say, got 1"),
        ("raw/node-feat.csv.gz", lambda file: packed(file, [[250] * 9] * 57),
         "codes of atoms beyond"),
        ("raw/edge.csv.gz", lambda file: packed(file, [["a", "b"]]), "edge.csv.gz is damaged"),
        ("raw/edge-feat.csv.gz", lambda file: packed(file, [[1, 2]]), "3 numbers a line, got 2"),
        ("raw/node-feat.csv.gz", lambda file: file.unlink(), "node-feat.csv.gz does not exist"),
        ("raw/graph-label.csv.gz", lambda file: packed(file, [[1]] * 3),
         "graph-label.csv.gz must have a row for each of 10 molecules"),
        ("split/scaffold/valid.csv.gz", lambda file: packed(file, [[99]]), "from 0 to 9, got 99"),
        ("split/scaffold/valid.csv.gz", lambda file: packed(file, [[0]]), "molecule in two splits"),
        ("split/scaffold/valid.csv.gz", lambda file: packed(file, []), "from 0 to 9, got none"),
        ("split/scaffold/train.csv.gz", lambda file: file.unlink(), "train.csv.gz does not exist"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_named_in_one_line(tmp_path, cache, part, change, said):
    folder = raw(molecules(tmp_path))
    change(folder / part)
    with pytest.raises(UserError, match=said) as raised:
        builtin("ogb:molbace", seed=0, data_root=tmp_path)
    assert "\n" not in str(raised.value)


def test_a_smiles_that_is_none_is_shown(tmp_path, cache):
    molecules(tmp_path, ("CCO", "C(", "CC", "C", "N", "O"))
    with pytest.raises(UserError, match=r"cannot be read, 'C\(' in row 1 .*no molecule"):
        builtin("ogb:molbace", seed=0, data_root=tmp_path)


def test_making_graphs_asks_no_server_for_a_newer_ogb():
    code = (
        "import sys, threading; from hma.extras import needed; needed('ogb.utils.features', 'it');"
        "import ogb.version; print(ogb.version.check_outdated, threading.active_count(),"
        "'outdated' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["None", "1", "False"]
