#!/bin/sh
# Installs Chromium for the browser tests where apt and root are at hand; else the tests say what to install.
set -u
for name in chromium chromium-browser google-chrome; do
  command -v "$name" >/dev/null 2>&1 && exit 0
done
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  echo "set-up: Chromium for the browser tests" >&2
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium; } >/dev/null 2>&1 \
    || echo "set-up: apt-get install chromium failed; the browser tests will say so" >&2
fi
exit 0
