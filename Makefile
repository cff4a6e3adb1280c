# make demo   the whole job on a small data set, in front of your eyes
# make test   all tests but those of
# make test-deploy    a Prefect server, a worker and the deployments, on loopback
# make test-peers     the tests against olah, a mirror of the Hub by others, in .venv-peers
# make test-loaders   the snippets of docs/loaders.md, with torch, in .venv-loaders
# make docs          the pages of docs/ as a site, in build/docs
# They need Python >= 3.11 and make, and set themselves up in the checkout.

PYTHON ?= python3
PIP = python -m pip install --quiet --disable-pip-version-check

demo: prepare-env
	.venv/bin/clipshards demo demo/out

test: dev-env
	.venv/bin/python -m pytest

test-deploy: dev-env
	.venv/bin/python -m pytest -m deploy

test-peers: dev-env peers-env
	.venv/bin/python -m pytest -rs tests/test_hub_peer.py

test-loaders: prepare-env .venv-loaders/ready
	out=$$(mktemp -d) && trap 'rm -rf "$$out"' EXIT && .venv/bin/clipshards demo "$$out/out" && \
	    .venv-loaders/bin/python -m pytest tests/loaders --out "$$out/out"

check: dev-env
	scripts/check

docs: dev-env
	.venv/bin/python -m sphinx -q -W -E --keep-going docs build/docs

lock:
	scripts/lock

prepare-env: .venv/prepare
dev-env: .venv/dev
peers-env: .venv-peers/installed

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "clipshards needs Python >= 3.11, this is " + sys.version)'
	$(PYTHON) -m venv .venv

.venv/prepare: requirements/prepare.txt requirements/build.txt pyproject.toml | .venv/bin/python
	.venv/bin/$(PIP) --require-hashes -r requirements/prepare.txt -r requirements/build.txt
	.venv/bin/$(PIP) --no-deps --no-build-isolation --editable .
	touch $@

.venv/dev: requirements/dev.txt .venv/prepare
	.venv/bin/$(PIP) --require-hashes -r requirements/dev.txt
	touch $@

# Apart from our own environment, whose versions it must not decide.
.venv-peers/installed: requirements/peers.txt | .venv/bin/python
	.venv/bin/python -m venv .venv-peers
	if .venv-peers/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<; \
	then touch $@; else echo "olah cannot be installed here: its tests are skipped"; fi


# torch last and without a hash: which build it is (CPU, CUDA) is for the index to say.
.venv-loaders/ready: requirements/loaders.txt
	$(PYTHON) -m venv .venv-loaders
	.venv-loaders/bin/$(PIP) --no-deps --require-hashes -r requirements/loaders.txt
	.venv-loaders/bin/$(PIP) torch==2.13.0
	touch $@

.PHONY: demo test test-deploy test-peers test-loaders check docs lock prepare-env dev-env peers-env
