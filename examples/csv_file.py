"""A CSV: a classifier with a memory beside gradient boosting and logistic regression.

python csv_file.py mine.csv label reads your file; without arguments, scikit-learn's wines.
"""

import sys
from io import StringIO

import pandas
from sklearn.datasets import load_wine
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from hma import MemoryClassifier

wines = StringIO(load_wine(as_frame=True).frame.to_csv(index=False))
file, label = sys.argv[1:] or (wines, "target")
table = pandas.read_csv(file)
x = pandas.get_dummies(table.drop(columns=label)).astype(float)
x = x.fillna(x.median())
x_train, x_test, y_train, y_test = train_test_split(
    x, table[label], test_size=0.5, stratify=table[label], random_state=0
)
rivals = {
    "gradient boosting": HistGradientBoostingClassifier(random_state=0),
    "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
}
for name, rival in rivals.items():
    print(f"{name}: {rival.fit(x_train, y_train).score(x_test, y_test):.3f}")

model = MemoryClassifier(random_state=0).fit(x_train, y_train)
for source in model.explain(x_test[:1]).top(0, k=3):
    print(f"first prediction: {source.share:.0%} by {source.kind}, training row {source.sample}")
print(f"test accuracy {model.score(x_test, y_test):.3f}")
