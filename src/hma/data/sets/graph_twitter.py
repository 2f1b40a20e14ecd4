"""Graph-Twitter: tweets in three classes, as dependency graphs."""

from hma.data.sets.sentence_graphs import SentenceSet

ABOUT = SentenceSet(name="graph-twitter", folder="text/twitter", archive="Graph-Twitter")
SET = ABOUT.named()
