# make demo: the main job.  make test: everything that has to pass.  Both set up .venv on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint docs pictures bench campaign faults fuzz peers tables scale clean

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[test]'
	touch $@

test: $(VENV)/.ready lint
	$(BIN)/python -m pytest

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The documentation, built offline: cells run, a warning is an error. Open out/docs/index.html.
docs: $(VENV)/.ready
	$(BIN)/python -m sphinx -q -W --keep-going -E -d out/doctrees -b html docs out/docs

# The pictures of the README and of the gallery.
pictures: $(VENV)/.ready
	$(BIN)/python docs/pictures/overview.py docs/images/overview.png
	$(BIN)/python docs/pictures/cascade.py docs/images/cascade.png
	$(BIN)/python docs/pictures/layer.py docs/images/layer.png
	$(BIN)/python docs/pictures/gallery.py

demo: $(VENV)/.ready
	mkdir -p out
	$(BIN)/multiplexnet explain examples/actuator.rules --plot out/actuator.png --axes a b
	$(BIN)/python experiments/synthetic.py --quick

PEERS := .venv-peers
$(PEERS)/.ready: pyproject.toml constraints.txt benchmarks/peers-requirements.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet setuptools==65.5.1 wheel==0.45.1
	$(PEERS)/bin/python -m pip install --quiet --no-deps --no-build-isolation rayen==0.0.5 qpth==0.0.18
	$(PEERS)/bin/python -m pip install --quiet -c constraints.txt -r benchmarks/peers-requirements.txt -e '.[cli]'
	touch $@

# Beside other libraries, in an environment of their own; PEERS_ARGS='--only rayen --sets box' measures a part.
peers: $(PEERS)/.ready
	$(PEERS)/bin/python benchmarks/peers.py $(PEERS_ARGS)

TABLES := .venv-tables
$(TABLES)/.ready: pyproject.toml constraints.txt benchmarks/tables-requirements.txt
	$(PYTHON) -m venv $(TABLES)
	grep -v '^pandas==' constraints.txt > $(TABLES)/constraints.txt  # rdt knows pandas before 3
	$(TABLES)/bin/python -m pip install --quiet -c $(TABLES)/constraints.txt -r benchmarks/tables-requirements.txt -e '.[tables]'
	touch $@

# Beside other makers of tables, in an environment of their own, with the data in MULTIPLEXNET_DATA/tabular. It goes on where
# it was interrupted. TABLES_ARGS='--sets heloc --only ours --seeds 0 1 --minutes 2' measures a part; '--write' fills the page.
tables: $(TABLES)/.ready
	$(TABLES)/bin/python benchmarks/made_tables.py $(TABLES_ARGS)

# 10,000 random formulas, 10,000,000 rows: an hour or more on one core; `make campaign JOBS=2` takes two and counts the
# same. It goes on where it was interrupted (rm out/campaign.json to start anew); benchmarks/results/campaign.json is the
# summary of one run.
JOBS ?= 1
campaign: $(VENV)/.ready
	mkdir -p out
	$(BIN)/python -m campaign --formulas 10000 --rows 10000000 --seed 0 --jobs $(JOBS) \
		--output out/campaign.json --regressions tests/regressions --resume

# Every safeguard switched off in turn: does the campaign notice?
faults: $(VENV)/.ready
	$(BIN)/python -m benchmarks.faults --jobs $(JOBS) --resume

# What size costs, up to files of 10,000,000 rows.
scale: $(VENV)/.ready
	$(BIN)/python benchmarks/scale.py

bench: $(VENV)/.ready
	$(BIN)/python benchmarks/compile.py
	$(BIN)/python benchmarks/check.py
	$(BIN)/python benchmarks/layer.py
	$(BIN)/python benchmarks/objective.py

fuzz: $(VENV)/.ready
	$(BIN)/python benchmarks/fuzz.py --minutes 60

clean:
	rm -rf $(VENV) $(PEERS) $(TABLES) out
