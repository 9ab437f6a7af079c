//! Feeds requests and proxies under protection, of `trust`. What both ends need is made in the directory of the run.
#![no_main]

use godwit_trust::feeds::Pair;
use std::{path::Path, sync::LazyLock};

static PAIR: LazyLock<Pair> = LazyLock::new(|| {
    let name = format!("godwit-fuzz-{}", std::process::id());
    let dir = std::env::temp_dir().join(name);
    Pair::in_dir(Path::new(&dir)).expect("a directory can be made there")
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    PAIR.delegation(bytes);
});
