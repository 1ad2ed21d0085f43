# shellcheck shell=bash
# For the scripts under tests/cli: each is a list of checks in an empty temporary folder.
#
#     . "$SHOAL_TESTS/lib.sh"
#     check 'help names every command' has "$("$SHOAL" --help)" train
#     same plan-din "$SHOAL" plan "$SHOAL_TESTS/../examples/din.yaml"
#     finish
#
# same NAME COMMAND... compares exit code, stdout and stderr of the command with
# tests/cli/expected/NAME.txt; `make test REGEN=1` rewrites that file, for you to read in the diff.
set -u
: "${SHOAL_TESTS:?run by tests/run}"
REPO=$(cd "$SHOAL_TESTS/.." && pwd)
passed=0 failed=0
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
cd "$WORK" || exit 1

pass() { passed=$((passed + 1)); }
fail() { failed=$((failed + 1)); echo "FAIL $*"; }

# check WHAT COMMAND...: the command must succeed; what it printed is shown if it does not.
check() {
    local what=$1 printed
    shift
    if printed=$("$@" 2>&1); then pass; else fail "$what"; printf '%s\n' "$printed" | tail -n 20; fi
}

# check_exit CODE WHAT COMMAND...: the command must end with this code. Output: $WORK/out, $WORK/err.
check_exit() {
    local want=$1 what=$2 code
    shift 2
    "$@" >"$WORK/out" 2>"$WORK/err"
    code=$?
    if [ $code -eq "$want" ]; then pass; else
        fail "$what: exit $code, want $want"
        tail -n 20 "$WORK/out" "$WORK/err"
    fi
}

# has TEXT WORD...: the text contains every word.
has() {
    local text=$1 word
    shift
    for word in "$@"; do
        case $text in *"$word"*) ;; *) printf 'no "%s" in:\n%s\n' "$word" "$text"; return 1 ;; esac
    done
}

# same NAME COMMAND...: see above. The temporary and the repository's folder are written as WORK, REPO.
same() {
    local expected=$SHOAL_TESTS/cli/expected/$1.txt got=$WORK/.same
    shift
    "$@" >"$WORK/.out" 2>"$WORK/.err"
    {
        echo "exit $?"
        echo '--- stdout'
        cat "$WORK/.out"
        echo '--- stderr'
        cat "$WORK/.err"
    } | sed "s#$WORK#WORK#g; s#$REPO#REPO#g" >"$got"
    if [ -n "${REGEN:-}" ]; then mkdir -p "${expected%/*}" && cp "$got" "$expected"; fi
    if diff -u "$expected" "$got" >"$WORK/.diff" 2>&1; then pass; else
        fail "$*: not as in $expected"
        cat "$WORK/.diff"
    fi
}

finish() {
    echo "$passed passed, $failed failed"
    [ $failed -eq 0 ]
    exit
}
