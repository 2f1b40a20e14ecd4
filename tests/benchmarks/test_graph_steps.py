"""The loop by hand that ours is timed against trains the same network on the same graphs."""

import pytest
import torch
from torch.nn.functional import cross_entropy

pytest.importorskip("torch_geometric", reason="needs the graph extra", exc_type=ImportError)

from torch_geometric.data import Batch

from benchmarks.graph_steps import ByHand, graphs_of, sides
from benchmarks.training_loop import synthetic_graphs
from hma.backbones import gin
from hma.methods import erm


def test_the_network_by_hand_gives_our_logits():
    task = synthetic_graphs(24)
    ours = erm(gin("g-mixup"))(task, seed=0).module.double()
    by_hand = ByHand(task.shape[0], len(task.classes)).double()
    state = {name.removeprefix("backbone."): value for name, value in ours.state_dict().items()}
    by_hand.load_state_dict(
        {name.replace("project.0.", "hidden."): value for name, value in state.items()}
    )
    batch = task.train.batch(torch.arange(len(task.train))).x
    batch.x = batch.x.double()
    theirs = Batch.from_data_list(graphs_of(task))
    theirs.x = theirs.x.double()
    torch.testing.assert_close(by_hand(theirs), ours(batch))


def test_the_loops_by_hand_see_every_graph_once_in_an_epoch(monkeypatch):
    task = synthetic_graphs(400)
    seen = []

    def counted(logits, labels):
        seen.append(len(labels))
        return cross_entropy(logits, labels)

    monkeypatch.setattr("benchmarks.graph_steps.cross_entropy", counted)
    by_name = sides(task)
    for name in ("by hand", "loader"):
        by_name[name]()
        assert sorted(seen) == [72, 128], name
        seen.clear()
