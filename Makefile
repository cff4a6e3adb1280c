# make demo   the whole job on a small data set, in front of your eyes
# make test   all tests
# Both need Python >= 3.11 and make, and set themselves up in .venv of the checkout.

PYTHON ?= python3
PIP = .venv/bin/python -m pip install --quiet --disable-pip-version-check

demo: prepare-env
	.venv/bin/clipshards demo demo/out

test: dev-env
	.venv/bin/python -m pytest

check: dev-env
	scripts/check

lock:
	scripts/lock

prepare-env: .venv/prepare
dev-env: .venv/dev

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "clipshards needs Python >= 3.11, this is " + sys.version)'
	$(PYTHON) -m venv .venv

.venv/prepare: requirements/prepare.txt requirements/build.txt pyproject.toml | .venv/bin/python
	$(PIP) --require-hashes -r requirements/prepare.txt -r requirements/build.txt
	$(PIP) --no-deps --no-build-isolation --editable .
	touch $@

.venv/dev: requirements/dev.txt .venv/prepare
	$(PIP) --require-hashes -r requirements/dev.txt
	touch $@

.PHONY: demo test check lock prepare-env dev-env
