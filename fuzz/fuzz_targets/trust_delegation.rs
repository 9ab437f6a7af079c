//! Feeds requests and proxies under protection, of `trust`.
#![no_main]

mod pair;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    pair::PAIR.delegation(bytes);
});
