//! Feeds `local_heads`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| godwit_fuzz::local_heads(bytes));
