"""The memory that votes: training rows answer beside the head, learned after the backbone."""
