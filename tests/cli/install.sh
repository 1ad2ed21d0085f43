#!/bin/bash
# What `make install` puts in place, and that the static library and C++ can use it.
# (tests/cli/api.sh builds and runs the example with the shared library.)
. "${SHOAL_TESTS:?}/lib.sh"

# shellcheck disable=SC2086 # commands with their flags, here and below
check 'installs' $SHOAL_MAKE -C "$REPO" install DESTDIR="$WORK/root" PREFIX=/usr/local
tree=$WORK/root/usr/local
for file in bin/shoal lib/libshoal.a lib/libshoal.so lib/libshoal.so.0 include/shoal.h \
    lib/pkgconfig/shoal.pc share/man/man1/shoal.1; do
    check "$file" test -s "$tree/$file"
done
check 'pkg-config knows the prefix, not the staging folder' \
    has "$(PKG_CONFIG_PATH=$tree/lib/pkgconfig pkg-config --cflags --libs shoal)" -lshoal /usr/local/
check 'the soname has a number' has "$(objdump -p "$tree/lib/libshoal.so" | grep SONAME)" libshoal.so.0

libs=$(PKG_CONFIG_PATH=$tree/lib/pkgconfig pkg-config --static --libs-only-l shoal | sed 's/-lshoal//')
printf '#include <shoal.h>\n#include <stdio.h>\nint file_open(void);\nint file_open(void) { return 1; }\n%s\n' \
    'int main(void) { puts(shoal_version()); return file_open() != 1; }' >user.c
# shellcheck disable=SC2086
check 'links statically beside names like our own' \
    $SHOAL_CC -I"$tree/include" user.c "$tree/lib/libshoal.a" $libs -pthread -o user
check 'and runs' has "$(./user)" "$("$tree/bin/shoal" version | sed 's/shoal //')"
cp user.c user.cc
if command -v g++ >/dev/null; then
    check 'the header is C++ too' g++ -I"$tree/include" -Wall -Wextra -Werror -fsyntax-only user.cc
else
    pass # No C++ here.
fi
check 'the man page names every command' has "$(cat "$tree/share/man/man1/shoal.1")" \
    train eval plan inspect 'data gen' 'data cat' 'data stat' bench version
finish
