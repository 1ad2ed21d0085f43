# Sourced by run and by every peer's install and run. HERE is this folder; DIR is where peers live, each in
# a folder of its own: --dir DIR, else $SHOAL_PEERS, else the cache of the user.
: "${DIR:=${SHOAL_PEERS:-$HOME/.cache/shoal-peers}}"

# skip PEER WHY : the one line that stands for a peer that cannot be measured here.
skip() {
    echo "$1: skipped, $2" >&2
}

# install_python PEER PACKAGE... : a Python environment of its own in $DIR/PEER. Leaves nothing behind if it fails.
install_python() {
    peer=$1
    shift
    log=$(mktemp)
    rm -rf "${DIR:?}/$peer"
    if mkdir -p "$DIR" && python3 -m venv "$DIR/$peer" >"$log" 2>&1 &&
            "$DIR/$peer/bin/pip" install --quiet --disable-pip-version-check "$@" >>"$log" 2>&1; then
        echo "$peer: installed in $DIR/$peer" >&2
        rm -f "$log"
    else
        skip "$peer" "cannot be installed here: $(grep -v '^ *$' "$log" | tail -n 1)"
        rm -rf "${DIR:?}/$peer" "$log"
        return 1
    fi
}

# installed PEER : whether the peer is in $DIR. Says so when not.
installed() {
    [ -x "$DIR/$1/bin/python" ] && return 0
    skip "$1" "not installed (sh $HERE/$1/install)"
    return 1
}

# first : puts the measurement before other work on the machine, where we may. The second line is for kernels
# that share the processor between sessions before they look at niceness.
first() {
    renice -n -20 -p $$ >/dev/null 2>&1
    { echo -20 >/proc/$$/autogroup; } 2>/dev/null
    return 0
}
