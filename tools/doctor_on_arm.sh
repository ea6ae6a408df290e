#!/usr/bin/env bash
# Runs `jstitch doctor --check` of a wheel on emulated 64-bit ARM: on Debian 12 or its like, without root.
#   tools/doctor_on_arm.sh dist/jstitch-0.1.0-py3-none-any.whl [folder to keep everything in]
# Debian's Python and C library for arm64 and an emulator are unpacked into the folder, the dependencies' wheels for
# arm64 are installed beside them. An emulator on x86 keeps x86's order of memory: it says nothing of threads.
set -euo pipefail
wheel=$(realpath "$1")
folder=$(realpath "${2:-$(mktemp -d)}")
mkdir -p "$folder"/{state/lists/partial,cache/archives/partial}
touch "$folder/state/status"
cd "$folder"
arm=(-o APT::Architecture=arm64 -o APT::Architectures::=arm64
    -o Dir::State="$folder/state" -o Dir::State::status="$folder/state/status" -o Dir::Cache="$folder/cache")
say() { printf '\n=== %s\n' "$*"; }

say "Debian's Python 3.11 for arm64, and QEMU"
apt-get -qq "${arm[@]}" update
apt-get -qq "${arm[@]}" install --yes --download-only --no-install-recommends python3.11 libc6 libstdc++6 libgcc-s1
apt-get -qq download qemu-user-static
for package in cache/archives/*.deb; do dpkg -x "$package" root; done
dpkg -x qemu-user-static_*.deb emulator

say "wheels for arm64"
platforms=()
for glibc in 17 26 27 28 31 34; do platforms+=(--platform "manylinux_2_${glibc}_aarch64"); done
python3 -m pip install --quiet --no-compile --target site --only-binary=:all: --platform manylinux2014_aarch64 \
    "${platforms[@]}" --implementation cp --python-version 3.11 "$wheel[demo]"

say "jstitch doctor --check"
unset PYTHONHOME
export PYTHONPATH=$folder/site JSTITCH_CACHE_DIR=$folder/kernels JAX_PLATFORMS=cpu
emulator/usr/bin/qemu-aarch64-static -L root root/usr/bin/python3.11 -m jstitch doctor --check
