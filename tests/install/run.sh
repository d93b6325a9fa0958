#!/bin/sh
# Installs a build into a folder, and builds and runs programs that use it from there, found once
# by CMake and once by pkg-config.
set -eu

[ $# = 5 ] || { echo "usage: $0 BUILD_DIR WORK_DIR CMAKE CC CXX" >&2; exit 2; }
source=$(cd "$(dirname "$0")" && pwd)
build=$1 work=$2 cmake=$3 cc=$4 cxx=$5

rm -rf "$work"
"$cmake" --install "$build" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/stage" # an installed tree can be moved

echo "== find_package"
CC=$cc CXX=$cxx "$cmake" -G Ninja -S "$source" -B "$work/cmake" \
  -D CMAKE_PREFIX_PATH="$work/stage" >/dev/null
"$cmake" --build "$work/cmake" >/dev/null
for program in cxx_quire c_quire cxx_quire_static c_quire_static; do
  "$work/cmake/$program"
done

echo "== pkg-config"
pc=$(find "$work/stage" -name quire.pc)
PKG_CONFIG_PATH=$(dirname "$pc")
LD_LIBRARY_PATH=$(pkg-config --variable=libdir "$pc")
export PKG_CONFIG_PATH LD_LIBRARY_PATH
flags=$(pkg-config --cflags --libs quire)
archive=$LD_LIBRARY_PATH/libquire.a
private=$(pkg-config --static --libs quire | sed 's/-lquire//')
$cxx -std=c++20 "$source/consumer.cc" $flags -o "$work/pc_cxx"
$cc -std=c99 "$source/consumer.c" $flags -o "$work/pc_c"
$cc -std=c99 "$source/consumer.c" $(pkg-config --cflags quire) "$archive" $private -o "$work/pc_static"
for program in pc_cxx pc_c pc_static; do
  "$work/$program"
done
