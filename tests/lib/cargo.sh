# Cargo for the suites that need it, in the tree to judge. Sourced by suites.

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

# A build of what others wrote is as good for a planted tree: only what the tree changes is built again. What cargo and
# rustc write in place is copied, and the rest is linked.
take_over() {
    local from=$1 to=$2
    [[ -d $from/deps ]] || return 0
    mkdir -p "$to/deps" && cp -a "$from/.fingerprint" "$from/build" "$to" &&
        find "$from/deps" -maxdepth 1 -name '*.d' -exec cp -a -t "$to/deps" {} + &&
        find "$from/deps" -maxdepth 1 \( -name '*.rlib' -o -name '*.rmeta' -o -name '*.so' \) -exec cp -al -t "$to/deps" {} +
}

in_tree() {
    local command=$1
    shift
    CARGO_TARGET_DIR=$(build_directory) cargo "$command" --manifest-path "$TREE/Cargo.toml" "$@"
}

# Runs `cargo test` with these arguments, and writes what its harnesses counted to $SUITE_RESULT. Give it
# --workspace wherever the whole is built anyway: for a package alone cargo chooses other features of what it
# depends on, and builds all of that again.
cargo_tests() {
    local status=0
    in_tree test --no-fail-fast "$@" >"$SUITE_DIR/log" 2>&1 || status=$?
    ((status == 0)) || tail -n 60 "$SUITE_DIR/log" >&2
    # cargo says which harnesses failed; anything else that ends it is no verdict of a test.
    jq --raw-input --null-input --argjson status "$status" '
        def count($line; $what): $line | capture("(?<n>[0-9]+) " + $what).n | tonumber;
        reduce inputs as $line ({passed: 0, failed: 0, failures: [], evidence: {ignored: 0}};
            if $line | startswith("test result:") then
                .passed += count($line; "passed") | .failed += count($line; "failed")
                | .evidence.ignored += count($line; "ignored")
            elif $line | test("^test .* \\.\\.\\. FAILED$") then
                .failures += [$line | capture("^test (?<name>.*) \\.\\.\\. FAILED$").name]
            elif $line | startswith("error: could not compile") then .broken //= $line
            else . end)
        | if $status != 0 and .failed == 0 then .broken //= "cargo ended with \($status); see its log" else . end' \
        "$SUITE_DIR/log" >"$SUITE_RESULT"
    return "$status"
}
