//! Feeds `door_packs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| godwit_fuzz::door_packs(bytes));
