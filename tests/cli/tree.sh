#!/bin/bash
# What a reader may count on anywhere in the tree.
. "${SHOAL_TESTS:?}/lib.sh"
cd "$REPO" || exit 1

sources=$(find src include tests examples -name '*.[ch]' -not -path '*/golden/*' | sort)

twice=$(printf '%s\n' "$sources" | sed 's#.*/##' | sort | uniq -d)
check "file names are unique: $twice" test -z "$twice"

# shellcheck disable=SC2086 # lists of words, here and below
long=$(wc -l $sources | awk '$2 != "total" && $1 > 1000')
check "no file is longer than 1000 lines: $long" test -z "$long"

alone=$(for header in $(printf '%s\n' "$sources" | grep '\.h$'); do
    printf '#include "%s"\n' "${header#src/}" |
        gcc -std=gnu17 -D_GNU_SOURCE -Wall -Wextra -Werror -Isrc -Iinclude -I. -fsyntax-only -x c - 2>&1 ||
        echo "$header does not compile alone"
done)
check "each header compiles alone: $alone" test -z "$alone"

promises=$(grep -nE '\<(TODO|FIXME|XXX|HACK)\>' $sources || true)
check "no promises in place of code: $promises" test -z "$promises"

exported=$(nm -D --defined-only "$SHOAL_BUILD/libshoal.so" | awk '$3 !~ /^shoal_/ && $3 !~ /^(_init|_fini|__.*)$/ { print $3 }')
check "libshoal.so exports only shoal_*: $exported" test -z "$exported"

in_archive=$(nm -g --defined-only "$SHOAL_BUILD/libshoal.a" | awk 'NF == 3 && $3 !~ /^shoal_/ { print $3 }')
check "libshoal.a shows only shoal_*: $in_archive" test -z "$in_archive"
finish
