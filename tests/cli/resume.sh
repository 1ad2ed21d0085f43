#!/bin/bash
# The same seed gives the same bits: on any number of threads, and stopped and resumed at any moment
# by ctrl-C, SIGTERM or SIGKILL, with dropout, shuffling, dynamic tables and across epochs.
. "${SHOAL_TESTS:?}/lib.sh"

"$SHOAL" data gen --out data --rows 6000 --eval-rows 500 --files 3 --history 12 >/dev/null || exit 1
cat >job.yaml <<'Y'
model_dir: out
model: {type: din, attention: [16, 8], hidden: [32, 16], dropout: 0.3}
features:
  label:     {kind: label}
  user_id:   {kind: dynamic, embed: 16}
  age:       {kind: bucketize, boundaries: [18, 25, 36, 45, 55, 65, 80]}
  gender:    {kind: hash, buckets: 100}
  item_id:   {kind: hash, buckets: 100, embed: 16, table: item}
  clicked_items_15d: {kind: hash, buckets: 100, sequence: true, pad: "0", table: item}
data:  {format: tfrecord, train: "data/train-*", eval: "data/eval-*", batch_size: 32, epochs: 3, shuffle: 1000}
train: {max_steps: 0, seed: 5, checkpoint_steps: 20, keep: 2, log_steps: 50, average: {decay: 0.99},
        optimizer: {type: adagrad, learning_rate: 0.1}}
eval:  {steps: 0}
Y

# weights DIR: the model in DIR as one file, as a checksum.
weights() { "$SHOAL" inspect "$1" --to "$1.st" >/dev/null && cksum <"$1.st"; }
train() { "$SHOAL" train job.yaml --json --set "model_dir=$1" "${@:2}"; }

check 'one thread' train one --set train.threads=1
want=$(weights one)
check 'the undisturbed run has a model' test -n "$want"
check 'three threads' train three --set train.threads=3
check 'three threads give the same bits' test "$(weights three)" = "$want"

# cut SIGNAL SECONDS: starts a run, sends it the signal after so long, and runs it again to the end.
cut() {
    local dir=cut-$1-$2 code
    "$SHOAL" train job.yaml --json --set "model_dir=$dir" >"$dir.out" 2>"$dir.err" &
    local pid=$!
    sleep "$2"
    kill "-$1" $pid 2>/dev/null
    wait $pid
    code=$?
    train "$dir" >"$dir.out2" 2>"$dir.err2" || { cat "$dir.err2"; return 1; }
    echo "$code" >"$dir.code"
    test "$(weights "$dir")" = "$want"
}
for signal in INT TERM KILL; do
    for seconds in 0.05 0.11 0.17; do
        check "stopped by SIG$signal after $seconds s and resumed: the same bits" cut $signal $seconds
    done
done

# An orderly stop at a known step: max_steps, then more.
check 'to step 133' train half --set train.max_steps=133
check 'and on to the end' train half
check 'the same bits' test "$(weights half)" = "$want"

# Stopped by ctrl-C it says so, saves, and exits with 130.
"$SHOAL" train job.yaml --set model_dir=stopped --set data.epochs=0 >/dev/null 2>stopped.err &
pid=$!
for _ in $(seq 100); do [ -e stopped/ckpt-20 ] && break; sleep 0.05; done
kill -INT $pid
wait $pid
check 'ctrl-C is exit code 130' test $? -eq 130
check 'and says how to go on' has "$(cat stopped.err)" 'interrupted at step' 'goes on from there'
check 'nothing half written is left' test -z "$(find stopped -name '.tmp*')"

# A second process on the same model directory is refused, with the holder's name.
"$SHOAL" train job.yaml --set model_dir=busy --set data.epochs=0 >/dev/null 2>&1 &
pid=$!
for _ in $(seq 100); do [ -e busy/ckpt-20 ] && break; sleep 0.05; done
check_exit 1 'a second process is refused' "$SHOAL" train job.yaml --set model_dir=busy
check 'and told by whom' has "$(cat err)" "$pid" 'busy'
kill -9 $pid
wait $pid 2>/dev/null
check 'after its death the directory is free' train busy --set data.epochs=1

# Damage is named, and the checkpoint before it is offered.
newest=$(find one -maxdepth 1 -name 'ckpt-*' | sort -t- -k2 -n | tail -n 1)
file=$(find "$newest" -name '*.safetensors' | sort | head -n 1)
printf '\x55' | dd of="$file" bs=1 seek=3000 conv=notrunc 2>/dev/null
check_exit 1 'a flipped byte is found' "$SHOAL" train job.yaml --set model_dir=one
check 'and named, with the one before' has "$(cat err)" "$(basename "$file")" 'ckpt-'

# Another model than the saved one is refused with the difference.
check_exit 1 'another width is refused' "$SHOAL" train job.yaml --set model_dir=three --set 'model.hidden=[48, 16]'
check 'with the difference' has "$(cat err)" 'hidden/0/weight' '48'
finish
