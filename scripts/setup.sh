#!/bin/sh
# Installs the Debian packages that are missing. Usage: scripts/setup.sh [coverage] [ci] [model]
#
# Says and does nothing, and uses no network, when all of them are there.
set -eu

packages="g++ cmake ninja-build pkg-config python3 libpcre2-dev libedit-dev
  libfmt-dev nlohmann-json3-dev libcli11-dev libopenblas-dev libgtest-dev librapidcheck-dev"
for kind in "$@"; do
  case $kind in
    coverage) packages="$packages gcovr" ;;
    ci) packages="$packages git ccache clang-14 clang-format-14" ;;
    model) packages="$packages python3-pip" ;;
    *) echo "usage: $0 [coverage] [ci] [model]" >&2; exit 2 ;;
  esac
done

if ! command -v dpkg-query >/dev/null; then
  echo "setup: not a Debian system; these packages, or their like, must be there:" $packages >&2
  exit 0
fi

missing=
for package in $packages; do
  state=$(dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | head -n 1)
  [ "$state" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

install="apt-get install -y --no-install-recommends$missing"
if [ "$(id -u)" = 0 ]; then
  sudo=
elif command -v sudo >/dev/null; then
  sudo=sudo
else
  echo "setup: packages are missing. As root, run: apt-get update && $install" >&2
  exit 1
fi
echo "setup: installing$missing with ${sudo:+sudo }apt-get" >&2
$sudo apt-get update -qq >&2
$sudo env DEBIAN_FRONTEND=noninteractive $install >&2
