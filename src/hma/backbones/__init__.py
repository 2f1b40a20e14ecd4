"""Backbones that map a batch to features ``(B, F)``; importing them needs torch only."""

from hma.backbones.by_name import backbone_for, default_backbone
from hma.backbones.convnets import cnn, resnet18
from hma.backbones.frozen import Frozen
from hma.backbones.gnn import GCN, GIN, gcn, gin
from hma.backbones.mlp import binned_mlp, mlp
from hma.backbones.text import TransformerFeatures
from hma.backbones.vit import TunedViT, vit

__all__ = [
    "GCN",
    "GIN",
    "Frozen",
    "TransformerFeatures",
    "TunedViT",
    "backbone_for",
    "binned_mlp",
    "cnn",
    "default_backbone",
    "gcn",
    "gin",
    "mlp",
    "resnet18",
    "vit",
]
