#!/bin/bash
# The test frame itself: a failure, a crash, a hang and a wrong golden number are all seen as such.
. "${SHOAL_TESTS:?}/lib.sh"

cat >trial.c <<'C'
#include "tests/test.h"
#include <stdlib.h>
#include <unistd.h>
TEST(passes) { CHECK_INT(1 + 1, 2); }
TEST(fails) { CHECK_INT(1 + 1, 3); }
TEST(crashes) { abort(); }
TEST(hangs) { pause(); }
TEST(golden) { CHECK(access(test_path("golden/hash.jsonl"), R_OK) == 0); CHECK_NEAR(1, 2, 0.5); }
C
# shellcheck disable=SC2086 # a command with its flags
check 'builds' $SHOAL_CC -D_GNU_SOURCE -I"$REPO" trial.c "$REPO/tests/test.c" -o trial -lm
check_exit 1 'failures are an exit code' env TEST_DEADLINE=1 ./trial
check 'and are counted' has "$(cat out)" '1 passed, 4 failed'
check 'each says why' has "$(cat err)" 'fails: failed' '1 + 1: got 2, want 3' 'crashes: signal 6' \
    'hangs: deadline passed'
check 'the golden file is named' has "$(cat err)" "compared with $GOLDEN/hash.jsonl"
check_exit 0 'one test by name' ./trial passes
check 'runs alone' has "$(cat out)" '1 passed, 0 failed'

# tests/run over a build that holds this program and a script that dies without a closing line.
mkdir -p fake/src/base fake/tests/cli fake/tests/golden build/tests/base
cp "$SHOAL_TESTS/run" "$SHOAL_TESTS/lib.sh" fake/tests/
touch fake/src/base/trial_test.c
cp trial build/tests/base/trial_test
cp trial build/tests/base/gone_test # its source is not there
printf '#!/bin/sh\nexit 3\n' >fake/tests/cli/dies.sh
chmod +x fake/tests/cli/dies.sh
check_exit 1 'a run with failures fails' env GOLDEN= TEST_DEADLINE=1 fake/tests/run build
check 'and counts all of them' test "$(tail -n 1 out)" = '1 passed, 5 failed'
check 'a script without closing line has failed' has "$(cat out)" 'FAIL dies.sh' '0 passed, 1 failed'
check_exit 1 'GOLDEN must be a folder' env GOLDEN=nowhere fake/tests/run build
finish
