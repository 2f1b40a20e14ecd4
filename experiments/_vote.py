"""The vote of tables that were measured before votes were solved for."""

from hma.vote.config import VoteConfig

PLAIN = VoteConfig(solved="none")
"""Stored rows vote for their labels, beside the head, and nothing else."""
