# Cargo for the suites that need it, in the tree to test. Sourced by suites.

# A planted tree builds apart: cargo takes two checkouts that share a target directory for one, and would
# hand what it built from the planted one to the other.
build_directory() {
    local target
    target=$(cargo metadata --format-version 1 --no-deps | jq -r .target_directory)
    if [[ $PLANTED == no ]]; then
        echo "$target"
    else
        [[ -d $target/planted/build ]] || take_over "$target/debug" "$target/planted/build/debug"
        echo "$target/planted/build"
    fi
}

# The dependencies' build serves a planted tree too: only what the tree changes is built again. Files that cargo and
# rustc write in place are copied, and the rest is linked.
take_over() {
    local from=$1 to=$2
    [[ -d $from/deps ]] || return 0
    mkdir -p "$to/deps" && cp -a "$from/.fingerprint" "$from/build" "$to" &&
        find "$from/deps" -maxdepth 1 -name '*.d' -exec cp -a -t "$to/deps" {} + &&
        find "$from/deps" -maxdepth 1 \( -name '*.rlib' -o -name '*.rmeta' -o -name '*.so' \) -exec cp -al -t "$to/deps" {} +
}

# cargo_tests PROFILE ARGUMENT…: runs `cargo nextest run` with these arguments, and writes what it counted to
# $SUITE_RESULT. Give it --workspace wherever the whole is built anyway: for a package alone cargo chooses other features
# of the dependencies, and builds all of them again.
cargo_tests() {
    # Nextest keeps reports there, wherever cargo builds.
    local profile=$1 status=0 report=$TREE/target/nextest/$1/junit.xml
    shift
    rm -f "$report"
    CARGO_TARGET_DIR=$(build_directory) cargo nextest run --manifest-path "$TREE/Cargo.toml" --config-file .config/nextest.toml \
        --profile "$profile" "$@" >"$SUITE_DIR/log" 2>&1 || status=$?
    ((status == 0)) || tail -n 60 "$SUITE_DIR/log" >&2
    .venv/bin/python tests/lib/junit.py "$report" "$status" "$SUITE_DIR/log" >"$SUITE_RESULT"
    return "$status"
}
