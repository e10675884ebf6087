#!/bin/sh
# Makes .venv with every extra, the tools and the holdfast command, from requirements.lock alone.
# Needs: Python 3.11 or newer with venv. Run it by `make setup`; it is safe to run again.
set -eu
cd "$(dirname "$0")/.."

say() { printf '%s\n' "$*" >&2; }

python=
for name in "${PYTHON:-}" python3 python3.13 python3.12 python3.11; do
  [ -n "$name" ] || continue
  if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    python=$name
    break
  fi
done
[ -n "$python" ] || { say "error: Python 3.11 or newer is needed (Debian: apt-get install python3 python3-venv)"; exit 1; }

if ! .venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  say "set-up: an environment in .venv"
  rm -rf .venv
  "$python" -m venv .venv || { say "error: $python has no venv module (Debian: apt-get install python3-venv)"; exit 1; }
fi

say "set-up: packages from requirements.lock"
# The installer that runs trusts the certificates that the machine trusts, as pip does.
export UV_SYSTEM_CERTS=true
uv_version=$(sed -n 's/^uv==\([0-9.]*\).*/\1/p' requirements.lock)
# The installer itself is held to its hash, too.
sed -n '/^uv==/,/[^\\]$/p' requirements.lock > .venv/uv.txt
if ! { .venv/bin/uv --version 2>/dev/null | grep -q " $uv_version" \
    || .venv/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r .venv/uv.txt; } \
  || ! .venv/bin/uv pip sync -q --python .venv/bin/python --require-hashes requirements.lock; then
  say "set-up: the fast installer did not manage, so pip does it"
  .venv/bin/python -m ensurepip --upgrade >/dev/null
  .venv/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements.lock
fi
.venv/bin/uv pip install -q --python .venv/bin/python --no-deps --no-build-isolation -e . \
  || .venv/bin/python -m pip install -q --no-deps --no-build-isolation -e .
# pip does it for what it installs; without it, a start compiles what it imports where none is kept.
.venv/bin/python -c 'import click, numpy, rich; print(*(m.__path__[0] for m in (click, numpy, rich)))' \
  | xargs .venv/bin/python -m compileall -q
.venv/bin/holdfast --version >&2
touch .venv/.ready
