#!/bin/bash
# Every fuzz target runs over its seeds: they are valid, and crashes once found stay mended.
. "${SHOAL_TESTS:?}/lib.sh"

for source in "$REPO"/src/*/*_fuzz.c; do
    [ -e "$source" ] || continue
    name=$(basename "$source" _fuzz.c)
    target=$SHOAL_BUILD/fuzz/$(basename "$(dirname "$source")")/${name}_fuzz
    check "tests/fuzz/$name has seeds" test -n "$(ls "$SHOAL_TESTS/fuzz/$name" 2>/dev/null)"
    check "$name over its seeds" "$target" "$SHOAL_TESTS/fuzz/$name"/*
done
check 'every folder of seeds has a target' test -z "$(
    for seeds in "$SHOAL_TESTS"/fuzz/*/; do
        [ -d "$seeds" ] || continue
        ls "$REPO"/src/*/"$(basename "$seeds")_fuzz.c" >/dev/null 2>&1 || echo "$seeds"
    done)"
finish
