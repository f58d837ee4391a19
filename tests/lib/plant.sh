# Plants a fault for a suite: proof that the suite can fail. Sourced by tests/run.
#
# tests/plants/NAME is run in a throw-away copy of the checkout. It may change any file there, which reaches
# the suites that read or build the tree; or write bin/poolwright, a wrapper around $REAL_POOLWRIGHT that
# misbehaves, which reaches the suites that drive the binary. The checkout itself is never touched. A suite
# without such a file plants its fault itself when PLANTED is "yes", as one that drives peers has to.

plant() {
    local name=$1
    REAL_POOLWRIGHT=$POOLWRIGHT PLANTED_COPY=
    if [[ -e tests/plants/$name ]]; then
        PLANTED_COPY=$PWD/target/planted/$name
        plant_in_copy "$name" "$PLANTED_COPY" || return
        export TREE=$PLANTED_COPY
        [[ ! -x $TREE/bin/poolwright ]] || export POOLWRIGHT=$TREE/bin/poolwright
    else
        grep -q PLANTED "tests/suites/$name" || return
    fi
    export PLANTED=yes
}

plant_in_copy() {
    local name=$1 copy=$2
    rm -rf "$copy" && mkdir -p "$copy/bin"
    git ls-files -z --cached --others --exclude-standard |
        while IFS= read -r -d '' file; do [[ ! -e $file ]] || printf '%s\0' "$file"; done |
        tar --create --null --files-from=- |
        tar --extract --touch --directory "$copy" || return # new times: cargo looks at every file again
    # The rules of the house are read from what git lists.
    git -C "$copy" init --quiet && git -C "$copy" add --all || return
    # Planting must change something, or the proof is none.
    (cd "$copy" && REAL_POOLWRIGHT=$REAL_POOLWRIGHT bash -euo pipefail "tests/plants/$name") || return
    [[ -n $(git -C "$copy" status --porcelain | grep -v '^A ') ]]
}

unplant() {
    [[ -z $PLANTED_COPY ]] || rm -rf "$PLANTED_COPY"
    export TREE=$PWD PLANTED=no POOLWRIGHT=$REAL_POOLWRIGHT
}
