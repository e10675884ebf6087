#!/bin/sh
# Gets the programs that tests run, where apt is at hand: Chromium, and promtool for .venv/bin; else the tests say what to
# install.
set -u
cd "$(dirname "$0")/.."
bin=$PWD/.venv/bin

has() {
  for name in "$@"; do
    command -v "$name" >/dev/null 2>&1 && return 0
  done
  return 1
}

has_apt() { command -v apt-get >/dev/null 2>&1; }

if ! has chromium chromium-browser google-chrome && [ "$(id -u)" = 0 ] && has_apt; then
  echo "set-up: Chromium for the browser tests" >&2
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium; } >/dev/null 2>&1 \
    || echo "set-up: apt-get install chromium failed; the browser tests will say so" >&2
fi

# Debian's package is unpacked, not installed: its installation would start a Prometheus on this machine.
unpack_promtool() {
  cd "$1" && { apt-get download -qq prometheus || { apt-get update -qq && apt-get download -qq prometheus; }; } \
    && dpkg -x prometheus_*.deb . && mv usr/bin/promtool "$bin/promtool"
}

if ! has promtool "$bin/promtool" && has_apt; then
  echo "set-up: promtool for the test of the alert rules" >&2
  folder=$(mktemp -d)
  (unpack_promtool "$folder") >/dev/null 2>&1 \
    || echo "set-up: apt-get download prometheus failed; the test of the alert rules will say so" >&2
  rm -rf "$folder"
fi
exit 0
