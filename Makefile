# make run: set everything up and serve the page. make test: set everything up, browser included, and test it all.
# make lint: what CI checks besides the tests. make test-lowest, make test-highest: unit and end-to-end tests with the lowest and the
# highest version of each dependency, on Python 3.10 and 3.13 (CONTRIBUTING.md). PYTHON picks the interpreter (3.10 to 3.13), VENV the virtual environment;
# HOST and PORT where the page is served; CLASS=1 serves it for a class (docs/deploy.md).
PYTHON ?= python3
VENV ?= .venv
export PORT ?= 7860
ifdef CLASS
export SPECVIZ_CLASS := $(CLASS)
endif

RUN_READY := $(VENV)/.run-ready
TEST_READY := $(VENV)/.test-ready

.PHONY: run test lint test-lowest test-highest clean

run: $(RUN_READY)
	$(VENV)/bin/python app.py

test: $(TEST_READY)
	$(VENV)/bin/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

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

# The package as an editable install: the command `specviz` is there, and what is tested is the checkout.
# A browser: Debian's Chromium where apt-get can install it, Playwright's own elsewhere.
$(TEST_READY): requirements.txt pyproject.toml | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install --quiet --editable '.[test]'
	VENV=$(VENV) tests/install-browser
	touch $@ $(RUN_READY)

# uv alone in an environment: it makes the others, and looks for Pythons itself.
UV_READY := $(VENV)-uv/.ready
BOUNDS_TESTS ?= tests/unit tests/e2e

$(UV_READY):
	$(PYTHON) -m venv $(VENV)-uv
	$(VENV)-uv/bin/python -m pip install --quiet 'uv>=0.9,<1'
	touch $@

test-lowest: $(UV_READY)
	$(VENV)-uv/bin/uv venv --quiet --clear --seed --python 3.10 $(VENV)-lowest
	$(VENV)-uv/bin/uv pip install --quiet --python $(VENV)-lowest --resolution lowest-direct --editable '.[test]'
	$(VENV)-lowest/bin/python -m pytest $(BOUNDS_TESTS)

test-highest: $(UV_READY)
	$(VENV)-uv/bin/uv venv --quiet --clear --seed --python 3.13 $(VENV)-highest
	$(VENV)-uv/bin/uv pip install --quiet --python $(VENV)-highest --resolution highest --editable '.[test]'
	$(VENV)-highest/bin/python -m pytest $(BOUNDS_TESTS)

clean:
	rm -rf $(VENV) $(VENV)-uv $(VENV)-lowest $(VENV)-highest
