"""Backbones that map a batch to features ``(B, F)``; importing them needs torch only."""

from hma.backbones.cnn import cnn
from hma.backbones.mlp import mlp
from hma.backbones.resnet import resnet18
from hma.backbones.text import TransformerFeatures

__all__ = ["TransformerFeatures", "cnn", "mlp", "resnet18"]
