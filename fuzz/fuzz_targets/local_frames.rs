//! Feeds `local_frames`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| godwit_fuzz::local_frames(bytes));
