# make run: set everything up and serve the page.
# make test: set everything up, browser included, and run all tests.
# make lint: what CI checks besides the tests.
# make test-lowest, make test-highest: unit and end-to-end tests with the lowest and the highest version of each
# dependency, on Python 3.10 and 3.13 (CONTRIBUTING.md).
# PYTHON: the interpreter (3.10 to 3.13). VENV: the virtual environment. HOST, PORT: where the page is served.
# CLASS=1: serve the page for a class (docs/deploy.md).
PYTHON ?= python3
VENV ?= .venv
export PORT ?= 7860
ifdef CLASS
export SPECVIZ_CLASS := $(CLASS)
endif

RUN_READY := $(VENV)/.run-ready
TEST_READY := $(VENV)/.test-ready
# Tests of a group (tests/conftest.py) run in one process.
PARALLEL := -q -n logical --maxprocesses 4 --no-loadscope-reorder

.PHONY: run test lint test-lowest test-highest clean

run: $(RUN_READY)
	$(VENV)/bin/python app.py

test: $(TEST_READY)
	@echo "All tests, those in a real browser included, on all cores (4 at most): about 7 minutes on two cores."
	@echo "The first run in a checkout also compiles loops, which takes a minute. Only the fast ones: pytest tests/unit"
	$(VENV)/bin/python -m pytest $(PARALLEL)

lint: $(TEST_READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(RUN_READY): requirements.txt | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install --quiet -r requirements.txt
	touch $@

# The package is an editable install, so that the checkout is tested and the command `specviz` is there.
# The browser is Debian's Chromium where apt-get can install it, Playwright's own elsewhere.
$(TEST_READY): requirements.txt pyproject.toml | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install --quiet --editable '.[test]'
	VENV=$(VENV) tests/install-browser
	touch $@ $(RUN_READY)

# An environment with uv alone, which makes the others and finds the Pythons.
UV_READY := $(VENV)-uv/.ready
BOUNDS_TESTS ?= tests/unit tests/e2e

$(UV_READY):
	$(PYTHON) -m venv $(VENV)-uv
	$(VENV)-uv/bin/python -m pip install --quiet 'uv>=0.9,<1'
	touch $@

test-lowest: $(UV_READY)
	$(VENV)-uv/bin/uv venv --quiet --clear --seed --python 3.10 $(VENV)-lowest
	$(VENV)-uv/bin/uv pip install --quiet --python $(VENV)-lowest --resolution lowest-direct --editable '.[test]'
	$(VENV)-lowest/bin/python -m pytest $(PARALLEL) $(BOUNDS_TESTS)

test-highest: $(UV_READY)
	$(VENV)-uv/bin/uv venv --quiet --clear --seed --python 3.13 $(VENV)-highest
	$(VENV)-uv/bin/uv pip install --quiet --python $(VENV)-highest --resolution highest --editable '.[test]'
	$(VENV)-highest/bin/python -m pytest $(PARALLEL) $(BOUNDS_TESTS)

clean:
	rm -rf $(VENV) $(VENV)-uv $(VENV)-lowest $(VENV)-highest
