# Every target makes what it needs first: `make setup` skips what is done.
SHELL := /bin/bash
.DEFAULT_GOAL := help
BIN := .rewindow/venv/bin
# What a user's shell may carry along must not reach our Python and Spark.
RUN := . scripts/environment.sh &&

# Test processes share nothing; as many run side by side as the machine has processors.
PYTEST := python -m pytest -n logical --dist loadfile --no-loadscope-reorder

.PHONY: help setup demo test test-fast test-long test-recovery test-install test-all docs check format bench up down clean lock

help: ## say what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

setup: ## Python packages as locked, Java 17, Delta's jars, into .rewindow
	@scripts/setup.sh

demo: setup ## a year of flights: recorded, replayed, killed, recovered, checked, published, proven (10 minutes)
	@$(RUN) rewindow demo $(ARGS)

test: setup ## all tests but the longest and the recovery matrix (11 minutes); ARGS="-k heartbeat" picks
	@$(RUN) $(PYTEST) $(ARGS)

test-fast: setup ## what needs no JVM, no Airflow and no server (a minute); run it before every commit
	@$(RUN) $(PYTEST) --ignore tests/airflow -m "not jvm and not long and not recovery_matrix and not exhaustive and not install" $(ARGS)

test-long: setup ## the longest tests: more cases, whole schedules of Airflow (10 minutes)
	@$(RUN) $(PYTEST) --dist loadgroup -m "long and not recovery_matrix and not exhaustive" $(ARGS)

test-recovery: setup ## the recovery matrix: SIGKILL at every step, in every mode (17 minutes)
	@$(RUN) $(PYTEST) --dist loadgroup -m "recovery_matrix and not exhaustive" --timeout 900 $(ARGS)

test-install: setup ## the wheel in an empty environment, installed by pip, in somebody's Airflow (4 minutes)
	@$(RUN) $(PYTEST) -m install $(ARGS)

test-all: setup ## every test, also each kill by itself and every pair of kills (an hour)
	@$(RUN) $(PYTEST) --dist load -m "" --timeout 900 $(ARGS)

docs: setup ## the site of docs/, in .rewindow/site
	@scripts/docs.sh

check: setup ## format, lint, types, import borders, spelling, rules, docs
	@scripts/check.sh

format: setup ## put the code into its format
	@$(RUN) ruff check --quiet --fix-only . ; $(RUN) ruff format .

bench: setup ## measure beside the alternatives, into docs/benchmarks.md
	@$(RUN) python -m bench $(ARGS)

up: setup ## start the embedded Airflow on loopback
	@$(RUN) rewindow up

down: setup ## stop it
	@$(RUN) rewindow down

lock: setup ## resolve the dependencies anew into requirements.lock
	@scripts/lock.sh

clean: ## throw away all that was made: environment, jars, recorded streams, replays
	@! [ -x $(BIN)/rewindow ] || ! [ -d .rewindow/state ] || { $(RUN) rewindow down >/dev/null 2>&1 </dev/null || true; }
	rm -rf .rewindow build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
