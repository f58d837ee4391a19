//! Bytes for the target `manifest` of `poolwright_tests::untrusted`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    poolwright_tests::untrusted::read("manifest", bytes);
});
