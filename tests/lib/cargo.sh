# Cargo for the suites that need it, in the tree to judge. Sourced by suites.

# A planted tree builds apart: cargo takes two checkouts that share a target directory for one, and would
# hand what it built from the planted one to the other.
build_directory() {
    local target
    target=$(cargo metadata --format-version 1 --no-deps | jq -r .target_directory)
    [[ $PLANTED == no ]] && echo "$target" || echo "$target/planted/build"
}

in_tree() {
    local command=$1
    shift
    CARGO_TARGET_DIR=$(build_directory) cargo "$command" --manifest-path "$TREE/Cargo.toml" "$@"
}

# Runs `cargo test` with these arguments, and writes what its harnesses counted to $SUITE_RESULT.
cargo_tests() {
    local status=0
    in_tree test --no-fail-fast "$@" >"$SUITE_DIR/log" 2>&1 || status=$?
    ((status == 0)) || tail -n 60 "$SUITE_DIR/log" >&2
    awk '/^test result:/ { passed += $4; failed += $6; ignored += $8 } END { print passed + 0, failed + 0, ignored + 0 }' \
        "$SUITE_DIR/log" >"$SUITE_DIR/counts"
    local passed failed ignored
    read -r passed failed ignored <"$SUITE_DIR/counts"
    # A test that does not compile is a failure that no harness counts.
    ((status == 0 || failed > 0)) || failed=1
    {
        sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p; s/^error: \(could not compile.*\)/\1/p' "$SUITE_DIR/log"
    } | jq --raw-input --slurp --argjson passed "$passed" --argjson failed "$failed" --argjson ignored "$ignored" \
        '{passed: $passed, failed: $failed, failures: (split("\n") | map(select(. != ""))), evidence: {ignored: $ignored}}' \
        >"$SUITE_RESULT"
    return "$status"
}
