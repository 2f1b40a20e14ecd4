"""Molecules as graphs: atoms and bonds as OGB's integer codes, read or made from SMILES."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from hma.data.graph.graph_source import GraphSource
from hma.data.graph.store import starts_of
from hma.errors import UserError, reason
from hma.extras import needed

ATOM_SIZES = (119, 5, 12, 12, 10, 6, 6, 2, 2)
"""Values of each code of an atom: element, chirality, degree, charge, hydrogens, radical electrons,
hybridisation, aromatic, in a ring."""
BOND_SIZES = (5, 6, 2)
"""Values of each code of a bond: type, stereo, conjugated."""
Tensors = dict[str, Tensor]
TOLD_EVERY = 100


class MoleculeGraphs(GraphSource):
    """Molecules whose atoms and bonds have codes; every bond is listed in both directions.

    Args:
        name: As printed in tables.
        graphs: What :func:`graphs_of_smiles` returns.

    Shape:
        - ``node_labels``: ``(N, 9)``, ``edge_labels``: ``(E, 3)``, whole numbers of 8 bits.
    """

    code_sizes = (ATOM_SIZES, BOND_SIZES)
    smiles: Sequence[str] = ()
    """The molecules as they are written, where that is known."""

    def __init__(self, name: str, graphs: Tensors) -> None:
        self.name = name
        self.nodes_before = starts_of(graphs["nodes"])
        self.edges_before = starts_of(graphs["edges"])
        self.edges = graphs["ends"].long()
        self.node_labels = graphs["atoms"]
        self._bonds = graphs["bonds"]
        for what, codes, sizes in (
            ("atoms", self.node_labels, ATOM_SIZES), ("bonds", self._bonds, BOND_SIZES)
        ):  # fmt: skip
            if (codes >= torch.tensor(sizes)).any():
                raise UserError(f"{name} has codes of {what} beyond OGB's {sizes}; fetch it again")

    @property
    def edge_labels(self) -> Tensor | None:
        """Codes of each bond."""
        return self._bonds

    def describe(self, place: int) -> str:
        """Return the number of the molecule, and how it is written or how large it is."""
        if not self.smiles:
            return super().describe(place).replace("graph", "molecule", 1)
        return f"molecule {place} ({self.smiles[place]})"


def graphs_of_smiles(
    smiles: Sequence[str], where: str, told: Callable[[int, int], None] | None = None
) -> Tensors:
    """Return molecules as graphs with the codes that ogb's ``smiles2graph`` gives them.

    A molecule that RDKit does not accept as chemically sound, such as one with an atom of too many
    bonds, is read without that check.

    Args:
        smiles: A molecule each.
        where: What holds them, for messages.
        told: Called with the molecules that are made and with all of them.

    Shape:
        - ``nodes``, ``edges``: ``(G,)``, how many atoms, and how many directed bonds.
        - ``ends``: ``(2, E)``; ``atoms``: ``(N, 9)``; ``bonds``: ``(E, 3)``.
    """
    chemistry = needed("rdkit.Chem", "making graphs of SMILES", extra="chem")
    silence = needed("rdkit.rdBase", "making graphs of SMILES", extra="chem").BlockLogs
    codes = needed("ogb.utils.features", "making graphs of SMILES", extra="chem")
    atoms, bonds, nodes, edges = [], [], [], []
    for place, text in enumerate(smiles):
        try:
            with silence():
                molecule = _molecule(chemistry, text)
            atoms += [codes.atom_to_feature_vector(atom) for atom in molecule.GetAtoms()]
            for bond in molecule.GetBonds():
                ends = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
                bonds.append((*ends, *codes.bond_to_feature_vector(bond)))
        except (ValueError, RuntimeError) as error:
            raise UserError(
                f"{where} has a SMILES that cannot be read, {text[:80]!r} in row {place} (counted "
                f"from 0): {reason(error)}; correct it or remove the row"
            ) from error
        nodes.append(molecule.GetNumAtoms())
        edges.append(2 * molecule.GetNumBonds())
        if told is not None and ((place + 1) % TOLD_EVERY == 0 or place + 1 == len(smiles)):
            told(place + 1, len(smiles))
    once = torch.tensor(bonds).long().view(-1, 2 + len(BOND_SIZES))
    back = once[:, [1, 0, *range(2, once.shape[1])]]
    both = torch.stack([once, back], dim=1).flatten(0, 1)  # there and back in turn
    return {
        "nodes": torch.tensor(nodes).long(),
        "edges": torch.tensor(edges).long(),
        "ends": both[:, :2].T.int().contiguous(),
        "atoms": torch.tensor(atoms).long().view(-1, len(ATOM_SIZES)).byte(),
        "bonds": both[:, 2:].byte(),
    }


def _molecule(chemistry: Any, text: str) -> Any:
    """Return RDKit's molecule, without the check of valences where that fails."""
    molecule = chemistry.MolFromSmiles(text)
    if molecule is not None:
        return molecule
    molecule = chemistry.MolFromSmiles(text, sanitize=False)
    if molecule is None:
        raise ValueError("RDKit finds no molecule in it")
    molecule.UpdatePropertyCache(strict=False)
    but_valences = chemistry.SANITIZE_ALL ^ chemistry.SANITIZE_PROPERTIES
    chemistry.SanitizeMol(molecule, but_valences)
    return molecule
