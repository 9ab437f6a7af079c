//! Feeds tokens of `ADAT`, of `trust`.
#![no_main]

mod pair;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    pair::PAIR.tokens(bytes);
});
