//! Feeds `door_calls`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| godwit_fuzz::door_calls(bytes));
