#!/bin/bash
# shoal train, eval, inspect and plan as a newcomer meets them, and the mistakes that one makes.
. "${SHOAL_TESTS:?}/lib.sh"
din=$REPO/examples/din.yaml
sets=(--set "data.train=$WORK/data/train-*" --set "data.eval=$WORK/data/eval-*" --set model_dir=m)

# Without data: the error says the command that makes it, and nothing is written.
check_exit 1 'no data' "$SHOAL" train "$din" "${sets[@]}"
check 'says how to make it' has "$(cat err)" 'shoal data gen --out'
check 'and has made nothing' test ! -e m

"$SHOAL" data gen --out data --rows 40000 --eval-rows 5000 --json >gen.json || exit 1
check 'data gen tells the best AUC' has "$(cat gen.json)" '"best_auc"'

check_exit 0 'trains' "$SHOAL" train "$din" "${sets[@]}" --json --set train.log_steps=10
check 'lines of steps' has "$(head -n 1 "$WORK/out")" '"step"' '"loss"' '"learning_rate"' '"examples_per_second"'
check 'the result' has "$(tail -n 1 out)" '"steps": 79' '"examples": 40000' '"seconds"' '"eval": {' '"auc"' \
    '"auc_exact"' '"staleness_mean"' '"gradients_dropped"' '"records_skipped": 0' '"time"' '"model_dir"'
check 'a checkpoint' test -f m/ckpt-79/manifest.json
check 'an event file' test -n "$(find m -name 'events.out.tfevents.*')"

check_exit 0 'evaluates' "$SHOAL" eval "$din" "${sets[@]}" --json --set eval.steps=0 --predictions p.txt
check 'all examples' has "$(cat out)" '"examples": 5000'
check 'one probability a line' test "$(grep -cE '^[0-9.e-]+$' p.txt)" = 5000
check_exit 0 'inspects' "$SHOAL" inspect m
check 'the checkpoint is listed' has "$(cat "$WORK/out")" 79
check_exit 0 'plans' "$SHOAL" plan "$din" "${sets[@]}" --json
check 'memory and traffic' has "$(cat "$WORK/out")" '"tasks"' '"memory_bytes"' '"bytes_per_step"' 'item/embedding'
check_exit 0 'plans for people' "$SHOAL" plan "$din" "${sets[@]}"
check 'a result is one line' test "$("$SHOAL" data stat data/eval-* --json | wc -l)" = 1

# The plan's memory is within 15 % of what the run takes: all windows of all epochs full, and of a
# large table just what the data touches. (Sanitizers have memory of their own.)
memory() { grep -o '"memory_bytes": [0-9]*' | head -n 1 | grep -o '[0-9]*$'; }
plan_holds() {
    local planned taken
    case ${SHOAL_CC:-} in *sanitize*) return 0 ;; esac
    planned=$("$SHOAL" plan "$din" "${sets[@]}" --json "$@" | memory)
    taken=$("$SHOAL" train "$din" "${sets[@]}" --json --set model_dir=planned "$@" | tail -n 1 | memory)
    rm -rf planned
    echo "planned $planned, taken $taken"
    [ $((100 * planned)) -gt $((85 * taken)) ] && [ $((100 * planned)) -lt $((115 * taken)) ]
}
check 'memory as planned: whole files shuffled' plan_holds --set data.shuffle=40000 --set data.epochs=2
check 'memory as planned: rows never touched' plan_holds --set features.user_id.buckets=1000000
check 'memory as planned: dynamic' plan_holds --set features.user_id='{kind: dynamic, embed: 16}'

# After each epoch an evaluation, and none twice.
check_exit 0 'epochs' "$SHOAL" train "$din" "${sets[@]}" --json --set model_dir=e --set data.epochs=2 \
    --set eval.each_epoch=true --set train.checkpoint_steps=79 --set eval.throttle_secs=0
check 'one evaluation an epoch' test "$(grep -c '^{"step": [0-9]*, "eval"' out)" = 2

# Standard input: records come through a pipe.
piped() { cat data/train-0000[01]* | "$SHOAL" train "$din" "${sets[@]}" --json --set data.train=- --set model_dir=p; }
check 'trains from standard input' piped
check 'and says that it cannot be resumed' has "$("$SHOAL" train "$din" "${sets[@]}" --set data.train=- \
    --set model_dir=p </dev/null 2>&1)" 'cannot be resumed'

# Initial values that are not there: said before anything is made.
check_exit 1 'no initial values' "$SHOAL" train "$din" "${sets[@]}" --set model_dir=i --set train.init_from=nowhere
check 'are named' has "$(cat err)" nowhere
check 'and nothing is made' test ! -e i

# Nothing to train on is a failure, nothing to evaluate on is said.
check_exit 1 'rows beyond the files' "$SHOAL" train "$din" "${sets[@]}" --set model_dir=r --set data.train_rows='[50000, 60000]'
check 'are told' has "$(cat err)" 'data.train_rows'
check_exit 0 'nothing to evaluate on' "$SHOAL" eval "$din" "${sets[@]}" --set data.eval_rows='[50000, 60000]'
check 'is said' has "$(cat err)" 'no record to evaluate on'

# A number beyond a float is a broken record, not an infinity that stops the run.
{ printf '1,1\n%.0s' {1..300}; echo 1,3e39; } >wide.csv
cat >wide.yaml <<'JOB'
model_dir: w
model: {type: linear}
features: {y: {kind: label, column: 0}, x: {kind: numeric, column: 1}}
data: {format: csv, train: wide.csv}
train: {optimizer: {type: sgd, learning_rate: 0.01}}
JOB
check_exit 0 'a number too large' "$SHOAL" train wide.yaml --json
check 'is skipped' has "$(tail -n 1 out)" '"examples": 300' '"records_skipped": 1'

# A reader that closes the pipe has seen enough.
closed_pipe() { "$SHOAL" data cat data/train-* 2>cat.err | head -n 1; [ "${PIPESTATUS[0]}" = 0 ] && [ ! -s cat.err ]; }
check 'data cat ends with its reader' closed_pipe

# Mistakes: what was found, where, what is allowed; exit code 2; nothing starts.
mistake() { # WHAT WORDS... -- COMMAND...
    local what=$1 words=()
    shift
    while [ "$1" != -- ]; do words+=("$1"); shift; done
    shift
    check_exit 2 "$what" "$@"
    check "$what: in words" has "$(cat "$WORK/err")" "${words[@]}"
}
mistake 'no command' usage -- "$SHOAL"
mistake 'unknown command' 'did you mean "train"' -- "$SHOAL" trian job.yaml
mistake 'unknown flag' 'did you mean --json' -- "$SHOAL" train "$din" --jsno
mistake 'no job' usage -- "$SHOAL" train
mistake 'unknown setting' 'did you mean "max_steps"' -- "$SHOAL" train "$din" --set train.max_step=3
mistake 'wrong model' 'din' -- "$SHOAL" train "$din" --set model.type=dine
mistake 'wrong value' 'batch_size' -- "$SHOAL" train "$din" --set data.batch_size=many
mistake 'a rule for nothing' 'optimizers.itme' 'item/embedding' -- "$SHOAL" train "$din" "${sets[@]}" \
    --set train.optimizers='{itme: {type: sgd, learning_rate: 1}}'
sed '/^train:/,$d; s/train: "[^"]*", //; s/user_id: .*/user_id: {kind: dynamic, embed: 16}/' "$din" >bad.yaml
mistake 'no files to train on' 'bad.yaml:15:' '`train` is missing' -- "$SHOAL" train bad.yaml
echo 'train: {optimizer: {type: adam, learning_rate: 0.1}}' >>bad.yaml
mistake 'adam on a dynamic table' 'bad.yaml:17:' lazy_adam -- "$SHOAL" train bad.yaml --set data.train="$WORK/data/train-*"
mistake 'a dynamic table without width' 'bad.yaml:10:' 'embed: N' -- \
    "$SHOAL" train bad.yaml --set features.user_id.embed=null
mistake 'wrong instruction set' 'SHOAL_ISA' -- env SHOAL_ISA=mmx "$SHOAL" train "$din"
printf 'model_dir: out\n  model: [\n' >broken.yaml
mistake 'not YAML' 'broken.yaml:' -- "$SHOAL" train broken.yaml
check_exit 1 'a job that is not there' "$SHOAL" train nowhere.yaml
check 'is named' has "$(cat "$WORK/err")" nowhere.yaml

# A NaN stops the run, names step and tensor, and leaves the last checkpoint.
check_exit 1 'a loss that is not finite stops' "$SHOAL" train "$din" "${sets[@]}" --set model_dir=nan \
    --set train.optimizer='{type: sgd, learning_rate: 1000000}' --set train.checkpoint_steps=1
check 'with the step' has "$(cat "$WORK/err")" 'step ' 'finite'
check 'and what was saved stays' "$SHOAL" inspect nan

# No room and no permission: clear words.
if [ "$(id -u)" = 0 ] && mkdir small && mount -t tmpfs -o size=300k none small 2>/dev/null; then
    check_exit 1 'a full disk' "$SHOAL" train "$din" "${sets[@]}" --set model_dir=small/m
    check 'is named' has "$(cat "$WORK/err")" 'No space left' small/m
    check 'and nothing half written is left' test -z "$(find small -name '.tmp*')"
    umount small
fi
check_exit 1 'a file in the way' "$SHOAL" train "$din" "${sets[@]}" --set model_dir=gen.json/m
# Help fits a terminal of 80 columns and 24 lines.
fits() { "$SHOAL" "$@" --help | awk 'length > 79 { print; bad = 1 } END { exit bad || NR > 24 || NR < 3 }'; }
for words in '' train eval plan inspect data 'data gen' 'data cat' 'data stat' bench; do
    # shellcheck disable=SC2086 # words of a command
    check "help of shoal $words fits a screen" fits $words
done
finish
