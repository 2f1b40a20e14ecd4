"""Files: checkpoints, cards, the hub, and what they are made of."""
