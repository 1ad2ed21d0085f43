#!/bin/bash
# The demo, on fewer examples: it shows all that it promises, and runs again in a folder of its own.
. "${SHOAL_TESTS:?}/lib.sh"

export DEMO_ROWS=20000 DEMO_OUT=$WORK/demos
check_exit 0 'runs' "$REPO/tools/demo" "$SHOAL"
check 'the loss falls' has "$(cat out)" ' | *' ' steps'
check 'AUC beside the best and beside no histories' has "$(cat out)" 'best that any model' 'DIN' 'without histories'
check 'speed, predictions, what next' has "$(cat out)" ' a second' '%  #' 'Next:'
check_exit 0 'runs again' "$REPO/tools/demo" "$SHOAL"
check 'in a fresh folder' test "$(find demos -mindepth 1 -maxdepth 1 | wc -l)" = 2
check_exit 1 'a failing step stops it' "$REPO/tools/demo" false
finish
