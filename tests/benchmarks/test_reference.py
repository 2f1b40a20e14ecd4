"""The naive reference against PyTorch's own multi-head attention."""

import torch
from torch import nn

from benchmarks.reference import beside, read
from hma.attention.block import MemoryRead


def test_the_read_is_multi_head_attention_between_two_residuals():
    block = MemoryRead(dim=6, num_heads=2, dropout=0.0).double()
    tokens, memory = torch.randn(3, 6).double(), torch.randn(5, 6).double()
    attention = nn.MultiheadAttention(6, 2, batch_first=True).double()
    projections = [block.to_queries, block.to_keys_values]
    attention.load_state_dict(
        {
            "in_proj_weight": torch.cat([linear.weight for linear in projections]),
            "in_proj_bias": torch.cat([linear.bias for linear in projections]),
            "out_proj.weight": torch.eye(6),
            "out_proj.bias": torch.zeros(6),
        }
    )
    seen = beside(tokens[:, None], memory)  # (3, 1 + 5, 6)
    keys = block.norm_memory(seen)
    mixed, _ = attention(block.norm_queries(tokens)[:, None], keys, keys)
    hidden = tokens + mixed[:, 0]
    expected = hidden + block.feed_forward(block.norm_hidden(hidden))
    torch.testing.assert_close(read(block, tokens, seen), expected)
