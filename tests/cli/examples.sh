#!/bin/bash
# Every example job runs as it stands, on data made by the command that it names.
. "${SHOAL_TESTS:?}/lib.sh"
mkdir build examples && ln -s "$SHOAL" build/shoal && cp "$REPO"/examples/*.yaml examples/

for job in examples/*.yaml; do
    name=$(basename "$job" .yaml)
    make=$(sed -n 's/.*make: "*\([^"}]*\)"*}.*/\1/p' "$job")
    case $make in
    'make data-mnist') # comes from a registry; a few images of the golden data stand in for it
        mkdir -p data/mnist
        for part in train t10k; do
            cp "$REPO/tests/golden/mlp/images-idx3-ubyte.gz" data/mnist/$part-images-idx3-ubyte.gz
            cp "$REPO/tests/golden/mlp/labels-idx1-ubyte.gz" data/mnist/$part-labels-idx1-ubyte.gz
        done
        ;;
    *)
        # Small, so that all of them take seconds.
        # shellcheck disable=SC2086 # words of a command line
        check "$name: its data is made by: $make" $make --rows 20000 --eval-rows 2000
        ;;
    esac
    sets=(--set train.max_steps=150 --set "model_dir=m/$name")
    case $name in mnist_epochs) sets+=(--set 'data.eval_rows=[900, 960]') ;; esac # of these few images
    check_exit 0 "$name: trains" build/shoal train "$job" --json "${sets[@]}"
    check "$name: and is evaluated" has "$(tail -n 1 out)" '"eval": {' '"loss"'
    case $name in mnist_epochs)
        check 'validated after each epoch' test "$(grep -c '^{"step": [0-9]*, "eval"' out)" = 5
        check 'and tested in the end' has "$(tail -n 1 out)" '"test": {' '"accuracy"' '"examples": 960' ;;
    esac
    check_exit 0 "$name: has a plan" build/shoal plan "$job" --json
done
finish
