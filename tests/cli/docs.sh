#!/bin/bash
# The documents: every link leads somewhere, and make's help is whole.
. "${SHOAL_TESTS:?}/lib.sh"
cd "$REPO" || exit 1

dead=$(for page in README.md docs/*.md docs/decisions/*.md bench/peers/README.md; do
    grep -oE '\]\([^)#:]+\)' "$page" | sed -E 's/\]\((.*)\)/\1/' | while read -r link; do
        [ -e "$(dirname "$page")/$link" ] || echo "$page: $link"
    done
done)
check "links lead somewhere: $dead" test -z "$dead"
# shellcheck disable=SC2046 # a list of words
check 'make help names every public target' has "$(make -s help)" $(sed -nE 's/^([a-z][a-z-]*):.*/make \1/p' Makefile |
    grep -vE 'make (all|help|run-tests|tests|fuzzers)$' | cut -d' ' -f2)
finish
