"""A memory inside scikit-learn's tools: a skorch net at the end of a pipeline, on the digits."""

from functools import partial

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler

from hma.adapters.skorch import MemoryModule, RememberCallback
from hma.backbones import mlp

from skorch import NeuralNetClassifier  # isort: skip

torch.manual_seed(0)
net = NeuralNetClassifier(
    MemoryModule,
    module__backbone=partial(mlp, in_features=64),
    module__num_classes=10,
    module__key_dim=64,  # every field of VoteConfig can be set, and searched, like this
    criterion=torch.nn.CrossEntropyLoss,
    optimizer=torch.optim.Adam,
    lr=1e-3,
    batch_size=64,
    max_epochs=6,
    verbose=0,  # skorch's validation split decides what the memory counts
    callbacks=[RememberCallback()],
)
to_float32 = FunctionTransformer(lambda x: x.astype("float32"))
classifier = make_pipeline(MinMaxScaler(), to_float32, net)
x, y = load_digits(return_X_y=True)
x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=360, random_state=0)
classifier.fit(x_train, y_train)
print(f"test accuracy {classifier.score(x_test, y_test):.3f}")
