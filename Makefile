# Three commands do everything on a fresh machine: `make quickstart`, `make test`, `make docs`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

WHEEL := .venv-wheel
OLDEST := .venv-oldest
TESTS := $(addprefix tests/,options test_distributed.py test_model.py memory attention vote questions \
	io/test_checkpoint.py io/test_files.py io/test_hub.py io/test_tensor_files.py estimator training backbones \
	metrics methods paper/rivals data serve cli/test_main.py cli/test_completion.py cli/test_arguments.py \
	cli/test_option_problems.py runs/test_run_card.py runs/test_deployment.py paper/test_cells.py)
EXTRAS := tables,ray,vision,graph,chem,text,serve,hub,labels,index,rivals,export

.PHONY: quickstart test lint types format bench results docs package oldest clean

quickstart: $(VENV)/.user
	$(BIN)/hma quickstart

test: lint types $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist loadfile

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks $(BENCH)

results: $(VENV)/.user
	$(BIN)/hma report all --results results --experiments experiments -o docs/results

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@echo "first page: build/site/index.html"

# Minutes: build both archives, install the wheel into a fresh environment and be its first user.
package: $(VENV)/.dev
	rm -rf dist $(WHEEL)
	$(BIN)/python -m build --no-isolation
	$(PYTHON) -m venv $(WHEEL)
	$(WHEEL)/bin/python -m pip install --quiet -c constraints.txt "$$(echo dist/*.whl)[cli]" mypy
	sh tests/first_user.sh $(CURDIR)/$(WHEEL)/bin

# Half an hour: the oldest versions that install together, with the tests that touch other packages.
oldest:
	rm -rf $(OLDEST)
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet -c constraints-oldest.txt -e '.[$(EXTRAS)]' pytest hypothesis httpx2
	$(OLDEST)/bin/python -m pytest -W default -m "not slow" $(TESTS)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.user: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) -e '.[cli]'
	@touch $@

$(VENV)/.docs: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) -e '.[docs]'
	@touch $@

$(VENV)/.dev: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) -e '.[dev]'
	@touch $@ $(VENV)/.user $(VENV)/.docs

clean:
	rm -rf $(VENV) $(WHEEL) $(OLDEST) dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
