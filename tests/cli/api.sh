#!/bin/bash
# examples/custom_model.c is built against the installed tree alone and run.
. "${SHOAL_TESTS:?}/lib.sh"

# shellcheck disable=SC2086 # a command with its flags
check 'installs' $SHOAL_MAKE -C "$REPO" install PREFIX="$WORK/usr"
cp "$REPO/examples/custom_model.c" "$REPO/examples/din.yaml" .
export PKG_CONFIG_PATH=$WORK/usr/lib/pkgconfig
flags=$(pkg-config --cflags --libs shoal) || exit 1
# shellcheck disable=SC2086
check 'builds against the installed header and library' \
    $SHOAL_CC -Wall -Wextra -Werror custom_model.c $flags -o custom_model
"$WORK/usr/bin/shoal" data gen --out data/din --rows 8000 --eval-rows 1000 >/dev/null
export LD_LIBRARY_PATH=$WORK/usr/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
check_exit 0 'trains' ./custom_model din.yaml data.batch_size=64 model_dir=m
check 'its own model with its own loop' has "$(cat out)" 'step 100' '125 steps, hooks called 125 and 125 times' \
    'reads back as assigned' '"auc"'
check_exit 0 'goes on where it was, which is the end' ./custom_model din.yaml data.batch_size=64 model_dir=m
check 'with no step left' has "$(cat out)" '125 steps, hooks called 0 and 0 times'
check_exit 1 'a file in the way of the model is an error' ./custom_model din.yaml model_dir=din.yaml/m
check 'in words, and no more' has "$(cat err)" din.yaml/m
check_exit 1 'a mistake is an error' ./custom_model din.yaml data.batch_size=no
check 'in words' has "$(cat err)" batch_size
finish
