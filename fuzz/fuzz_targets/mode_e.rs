//! Feeds `mode_e`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| godwit_fuzz::mode_e(bytes));
