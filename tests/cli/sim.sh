#!/bin/bash
# shoal sim: one seed, many, JSON, and a rule that is not kept.
. "${SHOAL_TESTS:?}/lib.sh"

check_exit 0 'a seed' "$SHOAL" sim --seed 7
check 'for people' has "$(cat "$WORK/out")" 'seed 7' 'pushes_applied' 'crashes'
check_exit 0 'as JSON' "$SHOAL" sim --seed 7 --steps 50 --json
check 'with stable keys' has "$(cat "$WORK/out")" '"messages"' '"drops"' '"duplicates"' '"crashes"' \
    '"pushes_applied"' '"steps": 50'
check_exit 1 'a broken rule is noticed' "$SHOAL" sim --seeds 1000 --break names
check 'and the seed is told' has "$(cat "$WORK/err")" 'seed '
check_exit 2 'an unknown rule' "$SHOAL" sim --break fense
check 'gets a suggestion' has "$(cat "$WORK/err")" 'did you mean "fence"'
check_exit 2 'too many steps' "$SHOAL" sim --steps 5000
finish
