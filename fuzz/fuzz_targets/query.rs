//! Bytes for the target `query` of `poolwright_tests::untrusted`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    poolwright_tests::untrusted::read("query", bytes);
});
