# Where suites and benchmarks find programs and data. Sourced by tests/run and tests/bench/*, in the root of the checkout.

# export_environment PROFILE: debug for the tests, dist for benchmarks.
export_environment() {
    # Python prefers these to the authority that a test gives it.
    unset REQUESTS_CA_BUNDLE CURL_CA_BUNDLE
    POOLWRIGHT_SHARED=$(cd "${POOLWRIGHT_SHARED:-../shared}" 2>/dev/null && pwd) || POOLWRIGHT_SHARED=
    local programs
    programs=$(cargo metadata --format-version 1 --no-deps | jq -r .target_directory)/$1
    export POOLWRIGHT_SHARED POOLWRIGHT=$programs/poolwright POOLWRIGHT_AGENT=$programs/poolwright-agent
    export SERVE_TREE=$programs/serve-tree SERVE_HOSTILE=$programs/serve-hostile
    export TORTURE=$programs/torture POWER_CUTS=$programs/power-cuts
    export TREE=$PWD PLANTED=no FULL=no
}
