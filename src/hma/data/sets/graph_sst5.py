"""Graph-SST5: sentences of film reviews in five classes, as dependency graphs."""

from hma.data.sets.sentence_graphs import SentenceSet

ABOUT = SentenceSet(name="graph-sst5", folder="text/sst5", archive="Graph-SST5")
SET = ABOUT.named()
