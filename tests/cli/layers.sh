#!/bin/bash
# A layer uses only what is below it, and the check that says so sees a violation when there is one.
. "${SHOAL_TESTS:?}/lib.sh"

check 'the tree keeps its layers' "$REPO/tools/layers" "$REPO" "$SHOAL_BUILD"

# plant FILE TEXT: one file of a small tree.
plant() {
    mkdir -p "tree/$(dirname "$1")"
    printf '%s\n' "$2" >"tree/$1"
}
# finds WORDS WHAT: the check of the small tree fails and says these words; then the tree is gone.
finds() {
    local words=$1 what=$2
    check_exit 1 "$what" "$REPO/tools/layers" tree tree/build
    check "$what: says so" has "$(cat out)" "$words"
    rm -rf tree
}
compile() { mkdir -p "tree/build/$(dirname "$1")" && gcc -Itree/src -c -o "tree/build/${1%.c}.o" "tree/$1"; }

plant src/base/low.c '#include "io/up.h"'
mkdir -p tree/build/src
finds 'src/base/low.c:1: base includes io/up.h' 'an include from below'

plant src/io/side.c '#include "tensor/beside.h"'
mkdir -p tree/build/src
finds 'io includes tensor/beside.h' 'an include beside'

plant src/misc/new.c '#include "base/err.h"'
mkdir -p tree/build/src
finds 'misc is no layer' 'a folder that is no layer'

plant src/base/low.c 'int up(void); int low(void); int low(void) { return up(); }'
plant src/io/up.c 'int up(void); int up(void) { return 1; }'
compile src/base/low.c
compile src/io/up.c
finds 'src/base/low.o: base needs up of io' 'a symbol from above, declared by hand'

plant src/base/low.c 'int low(void); int low(void) { return 1; }'
plant src/io/up.c '#include "base/low.h"
int up(void); int low(void); int up(void) { return low(); }'
plant src/base/low.h 'int low(void);'
compile src/base/low.c
compile src/io/up.c
check 'what is below may be used' "$REPO/tools/layers" tree tree/build
finish
