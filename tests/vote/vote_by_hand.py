"""The vote by distance written out in float64, and labels of every kind to vote with."""

import math

import torch
from torch import nn

from hma.targets import Classes, Number, SoftClasses, YesNo
from hma.targets.target import NO_VOTE

WIDTH = 6
TARGETS = [Classes(3), Classes(1), SoftClasses(3), YesNo(2), Number(centre=5.0, scale=2.0)]


def name_of(target):
    return f"{target.kind} {target.outputs}"


def labels_of(target, rows):
    if isinstance(target, Number):
        return torch.randn(rows) * target.scale + target.centre
    if isinstance(target, YesNo):
        y = (torch.rand(rows, target.count) > 0.5).float()
        return y.masked_fill(torch.rand(rows, target.count) < 0.3, math.nan)
    if isinstance(target, SoftClasses):
        return torch.rand(rows, target.count).softmax(dim=1)
    return torch.arange(rows) % target.table_rows


def shares(vote, query, rows):
    """Return the weight of each row for one query, slowly, in float64."""
    read = vote.double()
    keys = [read.to_keys(read.norm(one)) for one in (query.double(), rows.double())]
    sharpness = float(vote.log_sharpness.exp()) / math.sqrt(len(keys[0]))
    scores = torch.stack([-sharpness * (keys[0] - key).square().sum() for key in keys[1]])
    return scores.softmax(dim=0)


def answer(target, weights, y):
    """Return the vote's logits of one query from the shares of its rows."""
    if isinstance(target, Number):
        mean = (weights * (y.double() - target.centre) / target.scale).sum()
        return mean[None] / (1 + NO_VOTE)
    if isinstance(target, YesNo):
        known = ~y.isnan()
        yes = (weights[:, None] * (y.nan_to_num() * known)).sum(dim=0) + NO_VOTE / 2
        no = (weights[:, None] * ((1 - y.nan_to_num()) * known)).sum(dim=0) + NO_VOTE / 2
        return (yes / no).log()
    soft = y if y.dim() == 2 else nn.functional.one_hot(y, target.table_rows)
    votes = (weights[:, None] * soft).sum(dim=0)
    classes = len(votes)
    said = ((votes + NO_VOTE / classes) / (1 + NO_VOTE)).log()
    return said if target.outputs > 1 else said[1:] - said[:1]
