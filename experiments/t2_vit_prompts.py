"""Table 2: CLS token, head and prompts of a ViT-B/32 tuned, each way with and without HMA on top.

Run it::

    hma run T2 --budget smoke --workers 2     # a minute
    hma run T2 --budget tiny --workers 2      # 18 cells of 3 to 4 minutes of a core
    hma run T2 --budget small --workers 2     # hours on two cores
    hma run T2 --budget paper                 # a GPU: 500 or 1,000 steps of 128 images

Published, accuracy of 3 seeds, without and with HMA: DTD vit 74.01, 74.91; prompt-p 73.98, 73.95;
prompt-a 74.75, 75.44; Pets37 89.17, 89.72; 89.22, 89.58; 89.88, 90.71.

What differs from the paper in budget tiny: ViT-Ti/16 in place of ViT-B/32, its weights from
ImageNet-21k and then fine-tuned on ImageNet-1k, whose classes include the breeds of Pets37; 112
pixels in place of 224, with position embeddings interpolated to the same 49 patches; 250 steps of
32 images in place of 500 of 128, 25 of them warm-up; validation every 50 steps in place of 30.
Memories have the sizes of the other budgets; the queue of 128 rows is four batches. The learning
rate, 1e-2 for every row, was chosen as t8_vit_part.py says. Not in it: DTD, and param, whose
numbers, as those of vit, prompt-p, prompt-a and vit+hma (there hma), T8 measures in the same way.
The weights are weights/vit_tiny_patch16_224.augreg_in21k_ft_in1k.safetensors.

The weights are looked for as weights/vit_base_patch32_224.augreg_in21k.safetensors below the data
folder. For another model, other weights or a folder of your own images, copy this file and
_vit_tuning.py to a folder, use set_problem(..., model=..., weights=...) or folder_problem(...), and
name the folder with --experiments.
"""

from hma.paper.table import Claim, Table

from ._claims import BACKBONES
from ._vit_tuning import (
    SIZES,
    TINY_NOTES,
    UNMEASURED,
    ablation_rows,
    budgets,
    prompt_row,
    set_problems,
    tiny_budget,
)
from .t8_vit_part import LR

PUBLISHED = {
    "vit": {"DTD": (74.01, 0.29), "PETS37": (89.17, 0.07)},
    "vit+hma": {"DTD": (74.91, 0.39), "PETS37": (89.72, 0.22)},
    "prompt-p": {"DTD": (73.98, 0.56), "PETS37": (89.22, 0.22)},
    "prompt-p+hma": {"DTD": (73.95, 0.73), "PETS37": (89.58, 0.60)},
    "prompt-a": {"DTD": (74.75, 0.86), "PETS37": (89.88, 0.28)},
    "prompt-a+hma": {"DTD": (75.44, 0.06), "PETS37": (90.71, 0.27)},
}

TABLE = Table(
    key="T2",
    title="ViT-B/32, prompts with and without HMA",
    problems=set_problems("DTD", "PETS37"),
    rows={
        **{
            name + ("+hma" if memory else ""): prompt_row(
                name,
                tuning="part",
                memory=memory,
                **(SIZES if memory else {}),
            )
            for name in ("vit", "prompt-p", "prompt-a")
            for memory in (False, True)
        },
        "param": ablation_rows(tuning="part", **SIZES)["param"],
    },
    budgets={
        **budgets("DTD", "PETS37", lr=LR),
        "tiny": tiny_budget(
            "Pets37, with and without HMA", "PETS37", lr=LR, methods=("vit*", "prompt-*")
        ),
    },
    baseline="vit",
    published=PUBLISHED,
    seeds=(0, 1, 2),
    notes=TINY_NOTES,
    claims=(
        BACKBONES.on(("vit+hma", "vit")),
        Claim(
            says="HMA on top of prompts improves them",
            where="table 2",
            rows=(("prompt-p+hma", "prompt-p"), ("prompt-a+hma", "prompt-a")),
        ),
    ),
    unmeasured=UNMEASURED,
)
