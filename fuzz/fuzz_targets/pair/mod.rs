//! Both ends of a context, for the targets that need them; made in the directory of the run.

use godwit_trust::feeds::Pair;
use std::sync::LazyLock;

pub static PAIR: LazyLock<Pair> = LazyLock::new(|| {
    let name = format!("godwit-fuzz-{}", std::process::id());
    let dir = std::env::temp_dir().join(name);
    Pair::in_dir(&dir).expect("a directory can be made there")
});
