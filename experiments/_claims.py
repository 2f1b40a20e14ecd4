"""What the paper says of its tables and figures, in a line each; tables name the rows."""

from hma.paper.table import Claim

BACKBONES = Claim(
    says="HMA improves every backbone",
    where="abstract, tables 1 to 8",
    every=True,
)
MORE_THAN_PARAMETERS = Claim(
    says="HMA is better than its blocks without a memory (PARAM)",
    where="tables 1 and 8; asked of all tables",
)
REAL_ALONE = Claim(
    says="Real memory alone seldom helps",
    where="ablation of tables 1, 4, 7 and 8",
    kind="no more",
)
BATCH_ALONE = Claim(
    says="Attention between datapoints alone, with or without slots, seldom helps",
    where="ablation of tables 1, 4, 7 and 8",
    kind="no more",
)
TOGETHER = Claim(
    says="Both memories together are better than either alone",
    where="ablation of tables 1, 4, 7 and 8",
)
SHIFT = Claim(
    says="HMA improves ERM under every shift",
    where="figure 2, tables 5 and 6",
    every=True,
)
MEMORY_UNDER_SHIFT = Claim(
    says="Under shift it is the memory that helps, not its parameters (PARAM)",
    where="figure 2, tables 5 and 6; the paper has no such row there",
)
STRONG_ERM = Claim(
    says="Methods made for shifts (IRM, V-REx, IB-IRM, DIR, ASAP) are no better than ERM",
    where="tables 5 and 6",
    kind="no more",
)
SLOTS_CLUSTER = Claim(
    says="Slots of a class cluster together",
    where="figures 3 and 4",
    kind="seen",
    seen="silhouette",
)
SLOTS_APART = Claim(
    says="Slots lie apart from the features of real rows",
    where="figures 3 and 4",
    kind="seen",
    seen="apart",
)
