//! Both ends of a context, for the targets that need them; made in the directory of the run.

use godwit_trust::feeds::FeedPair;
use std::sync::LazyLock;

pub static PAIR: LazyLock<FeedPair> = LazyLock::new(|| {
    let name = format!("godwit-fuzz-{}", std::process::id());
    let dir = std::env::temp_dir().join(name);
    FeedPair::in_dir(&dir).expect("a directory can be made there")
});
