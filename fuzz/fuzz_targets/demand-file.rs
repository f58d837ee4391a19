//! Bytes for the target `demand-file` of `poolwright_tests::untrusted`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    poolwright_tests::untrusted::read("demand-file", bytes);
});
