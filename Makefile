# make demo   the whole job on a small data set, in front of your eyes
# make test   all tests but that of
# make test-deploy   a Prefect server, a worker and the deployments, on loopback
# make test-peers   the tests against olah, a mirror of the Hub by others, in .venv-peers
# They need Python >= 3.11 and make, and set themselves up in .venv of the checkout.

PYTHON ?= python3
PIP = .venv/bin/python -m pip install --quiet --disable-pip-version-check

demo: prepare-env
	.venv/bin/clipshards demo demo/out

test: dev-env
	.venv/bin/python -m pytest

test-deploy: dev-env
	.venv/bin/python -m pytest -m deploy

test-peers: dev-env peers-env
	.venv/bin/python -m pytest -rs tests/test_hub_peer.py

check: dev-env
	scripts/check

lock:
	scripts/lock

prepare-env: .venv/prepare
dev-env: .venv/dev
peers-env: .venv-peers/installed

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

# Apart from our own environment, whose versions it must not decide.
.venv-peers/installed: requirements/peers.txt | .venv/bin/python
	.venv/bin/python -m venv .venv-peers
	if .venv-peers/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<; \
	then touch $@; else echo "olah cannot be installed here: its tests are skipped"; fi

.PHONY: demo test test-deploy test-peers check lock prepare-env dev-env peers-env
