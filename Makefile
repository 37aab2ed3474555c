# Everything a fresh machine needs: Python 3.11 or later, make, pip.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One more than the cores for which `make test` is meant: some tests wait for processes or a cluster.
JOBS ?= 3
# Processes keep what they compile: else each of the hundreds that the tests start compiles all again.
unexport PYTHONDONTWRITEBYTECODE
# Remade when what it was made from changes.
READY := $(VENV)/.ready

.PHONY: help demo test soak recipes check bench docs pictures setup clean

help:
	@echo "make demo      set up, compare strategies on the demo, name the report"
	@echo "make test      set up, run all tests"
	@echo "make soak      set up, try Hypothesis' tests with new seeds, ROUNDS=5 times, and FAULTS=5000"
	@echo "               runs with random failures in virtual time; kill KILLS=2000 processes of real runs"
	@echo "make recipes   set up with Hugging Face, Lightning and others, test scripts with them"
	@echo "make check     set up, lint, types, module structure, documentation"
	@echo "make bench     set up, measure speed against peers"
	@echo "make docs      set up, build the documentation as a site in build/site"
	@echo "make pictures  set up, make the pictures of the documentation from real runs"

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Outpace needs Python 3.11 or later")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $(READY)

demo: $(READY)
	$(BIN)/outpace compare examples/demo.yaml

# Hypothesis with new seeds: ROUNDS times, each seed printed. A failure prints what reproduces it.
# Before that, FAULTS runs with random failures in virtual time (tests/simulation/faults). Then MESSAGES
# random messages (tests/fuzz). At last, KILLS processes of real runs are killed, one after the other
# (tests/kills): about two hours for 2,000.
ROUNDS ?= 5
FAULTS ?= 5000
KILLS ?= 2000
MESSAGES ?= 1000000

soak: export PYTEST_ADDOPTS = -o faulthandler_timeout=0
soak: $(READY)
	$(BIN)/python -m tests.simulation.faults.search --seeds $(FAULTS) --first \
		$$($(PYTHON) -c 'import secrets; print(secrets.randbits(40))')
	@for seed in $$($(PYTHON) -c 'import secrets; [print(secrets.randbits(32)) for _ in range($(ROUNDS))]'); do \
		echo "Hypothesis seed $$seed"; \
		$(BIN)/python -m pytest -m hypothesis --numprocesses $(JOBS) --dist loadfile \
			--hypothesis-profile soak --hypothesis-seed $$seed || exit 1; \
	done
	$(BIN)/python -m tests.fuzz --messages $(MESSAGES) --seed $$($(PYTHON) -c 'import secrets; print(secrets.randbits(32))')
	OUTPACE_MEMORY_ROUNDS=100000 $(BIN)/python -m pytest tests/real/net/test_memory_stress.py
	$(BIN)/python -m tests.kills --failures $(KILLS) --signals KILL,KILL,KILL,STOP
	$(BIN)/python -m tests.kills --failures 100 --copies 100 --families bsp,ssp,asp,cutoff,ssgd,hpsgd

test: $(READY)
	$(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder \
		--max-worker-restart 0

# `make test` skips tests with libraries that are not installed.
recipes: $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev,recipes]"
	$(BIN)/python -m pytest tests/examples/test_recipes.py tests/simulation/scripts/test_what_scripts_do.py

check: $(READY) docs
	$(BIN)/ruff check src tests benchmarks examples docs
	$(BIN)/ruff format --check src tests benchmarks examples docs
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m docs.reference --check

bench: $(READY)
	$(BIN)/python -m benchmarks.micro

# Strict: a link that leads nowhere, or a page that loads something from another host, is an error.
# The variable turns off the notice that Material ends in May 2027 (Zensical reads the same files).
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "build/site/index.html; its search needs a server: $(PYTHON) -m http.server -d build/site"

# Needs Chromium; says so and makes nothing where there is none.
pictures: $(READY)
	$(BIN)/python docs/pictures.py

clean:
	rm -rf $(VENV) build dist *.egg-info
