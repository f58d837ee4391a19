# Plants a fault for a suite: proof that the suite can fail. Sourced by tests/run.
#
# tests/plants/NAME is run in a throw-away copy of the checkout. It may change any file there, which reaches
# the suites that read or build the tree; or write bin/poolwright, bin/serve-tree or bin/serve-hostile, which
# reach the suites that drive these programs: a wrapper around $REAL_POOLWRIGHT and so on that sets up a peer
# that is wrong, or does what must not be done. The checkout itself is never touched. A suite without such a
# file plants its fault itself when PLANTED is "yes", as one that drives peers has to.
#
# Each line `# fails: PATTERN` (a regular expression) of the plant, or of the suite that plants its fault itself,
# must match one of the failures that the suite then reports.

# The file that plants a suite's fault.
planter() { [[ -e tests/plants/$1 ]] && echo "tests/plants/$1" || echo "tests/suites/$1"; }

# The patterns of the failures that a suite must report, as a JSON list.
expected_failures() { header "$(planter "$1")" fails | jq --raw-input --slurp 'split("\n") | map(select(. != ""))'; }

plant() {
    local name=$1
    PLANTED_COPY=
    export REAL_POOLWRIGHT=$POOLWRIGHT REAL_SERVE_TREE=$SERVE_TREE REAL_SERVE_HOSTILE=$SERVE_HOSTILE
    if [[ -e tests/plants/$name ]]; then
        PLANTED_COPY=$PWD/target/planted/$name
        plant_in_copy "$name" "$PLANTED_COPY" || return
        export TREE=$PLANTED_COPY
        [[ ! -x $TREE/bin/poolwright ]] || export POOLWRIGHT=$TREE/bin/poolwright
        [[ ! -x $TREE/bin/serve-tree ]] || export SERVE_TREE=$TREE/bin/serve-tree
        [[ ! -x $TREE/bin/serve-hostile ]] || export SERVE_HOSTILE=$TREE/bin/serve-hostile
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
    git -C "$copy" init --quiet && git -C "$copy" add --all || return
    (cd "$copy" && bash -euo pipefail "tests/plants/$name" && chmod -R +x bin) || return
    # Planting must change something, or the proof is none.
    [[ -n $(git -C "$copy" status --porcelain | grep -v '^A ') ]] || return
    # The rules of the house are read from what git lists.
    git -C "$copy" add --all
}

unplant() {
    [[ -z $PLANTED_COPY ]] || rm -rf "$PLANTED_COPY"
    export_environment
}
