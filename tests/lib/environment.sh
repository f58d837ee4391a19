# Where suites and benchmarks find things. Sourced by tests/run and tests/bench/*, in the root of the checkout.

export_environment() {
    # Python prefers these to the authority that a test gives it.
    unset REQUESTS_CA_BUNDLE CURL_CA_BUNDLE
    POOLWRIGHT_SHARED=$(cd "${POOLWRIGHT_SHARED:-../shared}" 2>/dev/null && pwd) || POOLWRIGHT_SHARED=
    local release
    release=$(cargo metadata --format-version 1 --no-deps | jq -r .target_directory)/release
    export POOLWRIGHT_SHARED POOLWRIGHT=$release/poolwright
    export SERVE_TREE=$release/serve-tree SERVE_HOSTILE=$release/serve-hostile
    export TORTURE=$release/torture POWER_CUTS=$release/power-cuts
    export TREE=$PWD PLANTED=no
}
