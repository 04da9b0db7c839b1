# Every target runs `make setup` first, which skips the steps that are done.
SHELL := /bin/bash
.DEFAULT_GOAL := help
BIN := .rewindow/venv/bin
# Removes variables of the user's shell that would change our Python and Spark.
RUN := . scripts/environment.sh &&

# Test processes share no state, so one runs on each processor.
PYTEST := python -m pytest -n logical --dist loadfile --no-loadscope-reorder

.PHONY: help setup demo test test-fast test-long test-recovery test-install test-compose test-all docs check format bench up down clean lock

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

setup: ## install the locked Python packages, Java 17 and Delta's jars into .rewindow
	@scripts/setup.sh

demo: setup ## record, replay, kill, recover, check and publish a year of flights (10 minutes)
	@$(RUN) rewindow demo $(ARGS)

test: setup ## run the tests, without the long ones and the recovery matrix (10 minutes); ARGS="-k heartbeat" selects tests
	@$(RUN) $(PYTEST) $(ARGS)

test-fast: setup ## run the tests that need no JVM, Airflow or server (1 minute); run it before every commit
	@$(RUN) $(PYTEST) --ignore tests/airflow -m "not jvm and not long and not recovery_matrix and not exhaustive and not install" $(ARGS)

test-long: setup ## run the long tests: more cases, complete Airflow schedules (16 minutes)
	@$(RUN) $(PYTEST) --dist loadgroup -m "long and not recovery_matrix and not exhaustive" $(ARGS)

test-recovery: setup ## run the recovery matrix: kills at every step in every mode, the demo, a cluster, Airflow (15 minutes)
	@$(RUN) $(PYTEST) --dist loadgroup -m "recovery_matrix and not exhaustive" --timeout 900 $(ARGS)

test-install: setup ## install the wheel with pip into an empty environment and into an Airflow (2 minutes)
	@$(RUN) $(PYTEST) -m install $(ARGS)

test-compose: ## start docker-compose.yaml, kill a Spark worker, certify the result (needs Docker; 15 minutes)
	@scripts/compose-test.sh

test-all: setup ## run every test, with each kill separately and every pair of kills (an hour)
	@$(RUN) $(PYTEST) --dist load -m "" --timeout 900 $(ARGS)

docs: setup ## build the documentation site in .rewindow/site
	@scripts/docs.sh

check: setup ## check format, lint, types, imports, prose, density, spelling, rules and docs (1 minute)
	@scripts/check.sh

format: setup ## format the code and apply automatic lint fixes
	@$(RUN) ruff check --quiet --fix-only . ; $(RUN) ruff format .

bench: setup ## run the benchmarks and write docs/benchmarks.md
	@$(RUN) python -m bench $(ARGS)

up: setup ## start the embedded Airflow on this machine
	@$(RUN) rewindow up

down: setup ## stop the embedded Airflow
	@$(RUN) rewindow down

lock: setup ## resolve the dependencies and write requirements.lock
	@scripts/lock.sh

clean: ## delete the environment, jars, recorded streams and replays
	@! [ -x $(BIN)/rewindow ] || ! [ -d .rewindow/state ] || { $(RUN) rewindow down >/dev/null 2>&1 </dev/null || true; }
	rm -rf .rewindow build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
