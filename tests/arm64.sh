#!/bin/sh
# The tests on arm64, on a machine that is not one: extensions compiled across, Python and the packages for arm64 under
# build/arm64, all run by qemu's user mode, with the processes that tests start.  What qemu lacks makes some tests fail:
# RWF_NOWAIT, the ioctl by which a disk is made to fail, libraries loaded beforehand (slow fsync); and memory is qemu's, too.
#
#     tests/arm64.sh                              tests of records, protocol, handlers and storage
#     tests/arm64.sh pytest tests/network         others
#     tests/arm64.sh -m kbroker.cli start         anything else that Python can run
#
# Needs Debian or Ubuntu with the Python that .venv has, and `make install`.
set -eu
cd "$(dirname "$0")/.."
version=$(.venv/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
short=$(echo "$version" | tr -d .)
place=build/arm64
missing=""
command -v qemu-aarch64-static >/dev/null || missing="$missing qemu-user-static"
command -v aarch64-linux-gnu-gcc >/dev/null || missing="$missing gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
if [ -n "$missing" ]; then echo "install first:$missing" >&2; exit 1; fi
if ! dpkg --print-foreign-architectures | grep -qx arm64; then
    echo "run first, as root: dpkg --add-architecture arm64 && apt-get update" >&2
    exit 1
fi

if [ ! -e $place/installed ]; then
    rm -rf $place && mkdir -p $place/debs $place/root $place/wheels $place/site
    packages="python$version-minimal libpython$version-minimal libpython$version-stdlib libpython$version libpython$version-dev"
    packages="$packages libc6 libgcc-s1 libstdc++6 libssl3 libffi8 zlib1g libexpat1 libsqlite3-0 libbz2-1.0 liblzma5 libuuid1"
    packages="$packages libncursesw6 libtinfo6 libreadline8 libcrypt1 libnsl2 libtirpc3"
    (cd $place/debs && for each in $packages; do echo "$each:arm64"; done | xargs apt-get download -q)
    for each in $place/debs/*.deb; do dpkg -x "$each" $place/root; done
    platforms=""
    for each in manylinux2014 manylinux_2_17 manylinux_2_28 manylinux_2_34; do platforms="$platforms --platform ${each}_aarch64"; done
    # shellcheck disable=SC2086
    .venv/bin/python -m pip download -q -d $place/wheels --only-binary=:all: $platforms --implementation cp \
        --python-version "$version" --abi "cp$short" --abi abi3 --abi none \
        $(.venv/bin/python -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]
print(*(each for each in p["dependencies"] + p["optional-dependencies"]["test"] if "atheris" not in each))')
    for each in $place/wheels/*.whl; do .venv/bin/python -m zipfile -e "$each" $place/site; done
    touch $place/installed
fi

# A tree of links, with the extensions for arm64 in the place of this machine's.
rm -rf $place/tree && mkdir -p $place/tree
cp -as "$PWD/kbroker" "$PWD/tests" $place/tree/
find $place/tree/kbroker -name '*.so' -exec rm {} +
for each in pyproject.toml README.md docs bench; do ln -s "$PWD/$each" $place/tree/; done
mkdir -p $place/objects
headers=$(find kbroker -name '*.h' -printf '-I%h\n' | sort -u)
export place short version headers
compile='
    source=${0#build/cython-release/}; made=$place/objects/${source%.c}.cpython-$short-aarch64-linux-gnu.so
    [ -e "${source%.c}.pyx" ] || exit 0
    mkdir -p "$(dirname "$made")"
    [ "$made" -nt "$0" ] || aarch64-linux-gnu-gcc -shared -fPIC -O2 -std=c11 -w -DNDEBUG -I$place/root/usr/include \
        -I$place/root/usr/include/python$version $headers "$0" -o "$made"'
find build/cython-release/kbroker/_fast -name '*.c' -print0 | xargs -0 -P "$(nproc)" -n 1 sh -ec "$compile"
cp -r $place/objects/kbroker $place/tree/

# What tests start as `sys.executable` is qemu again: it cannot start a program for another processor by itself.
place=$PWD/$place
python="$place/python"
cat >"$python" <<EOF
#!/bin/sh
exec qemu-aarch64-static -cpu max -L "$place/root" -E "PYTHONPATH=$place/tree:$place/site" "$place/root/usr/bin/python$version" "\$@"
EOF
chmod +x "$python"
echo "import sys; sys.executable = '$python'" >"$place/site/sitecustomize.py"

cd "$place/tree"
if [ $# = 0 ]; then set -- pytest tests/records tests/protocol tests/handlers tests/storage; fi
if [ "$1" = pytest ]; then shift; set -- -m pytest -q -p no:cacheprovider "$@"; fi
exec "$python" "$@"
