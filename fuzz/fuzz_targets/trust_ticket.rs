//! Feeds `ticket` of `trust`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| godwit_trust::feeds::ticket(bytes));
