#!/bin/sh
# Installs a Kerberos KDC and python-gssapi for the tests of Kerberos where apt and root are at hand; else the tests say
# what to install.
set -u
cd "$(dirname "$0")/.."
packages="gcc python3-dev libkrb5-dev krb5-kdc krb5-admin-server krb5-user"
has_kdc() { PATH="$PATH:/usr/sbin" && command -v krb5kdc && command -v kinit && command -v krb5-config; }
if ! has_kdc >/dev/null 2>&1 && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  echo "set-up: a KDC for the tests of Kerberos" >&2
  # shellcheck disable=SC2086
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages; } \
    >/dev/null 2>&1 || echo "set-up: apt-get install $packages failed; the tests of Kerberos will say so" >&2
fi
if has_kdc >/dev/null 2>&1 && ! .venv/bin/python -c 'import gssapi' 2>/dev/null; then
  .venv/bin/uv pip install -q --python .venv/bin/python 'gssapi>=1.8' \
    || echo "set-up: python-gssapi was not built; the tests of Kerberos will say so" >&2
fi
exit 0
