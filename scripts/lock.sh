#!/bin/sh
# Resolves the dependencies of pyproject.toml again, for every platform and Python at once, with hashes.
# The resolver lives beside the project's packages, not among them, so that it is never part of what it locks.
set -eu

tools=.venv/tools
[ -x "$tools/bin/uv" ] || .venv/bin/python -m venv "$tools"
"$tools/bin/python" -m pip install -qq --disable-pip-version-check --upgrade uv

# Index addresses stay out: the lock must install from whatever index a machine is configured with.
"$tools/bin/uv" pip compile pyproject.toml --extra all --group dev --group peers \
    --universal --fork-strategy fewest --python-version 3.11 --upgrade \
    --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --quiet \
    --custom-compile-command "make lock" --output-file requirements.lock
"$tools/bin/uv" pip compile --group docs --constraints requirements.lock \
    --universal --python-version 3.11 --upgrade \
    --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --quiet \
    --custom-compile-command "make lock" --output-file requirements-docs.lock
echo "==> Wrote requirements.lock: $(grep -c '^[a-z]' requirements.lock) packages"
