//! All that a verb says: results, errors, progress, logs.

pub(crate) mod error;
pub(crate) mod listing;
pub(crate) mod log;
mod meter;
pub(crate) mod progress;
pub(crate) mod screen;
pub(crate) mod silence;
pub(crate) mod transfer_log;
mod waiting;

pub(crate) use error::{CliError, Run, plain};
pub(crate) use screen::{Screen, mark};

use godwit_core::Url;

/// Facts that a verb adds to its summary.
pub(crate) type Facts = serde_json::Map<String, serde_json::Value>;

/// Returns facts by their names.
pub(crate) fn facts<const N: usize>(named: [(&str, serde_json::Value); N]) -> Facts {
    named
        .map(|(name, value)| (name.to_owned(), value))
        .into_iter()
        .collect()
}

/// Returns a URL as it is printed for other programs: of a local file the raw path.
pub(crate) fn shown(url: &Url) -> Vec<u8> {
    match url.is_local() {
        true => url.path().to_vec(),
        false => url.to_string().into_bytes(),
    }
}

/// Returns a URL as it is typed in a shell.
pub(crate) fn typed(url: &Url) -> String {
    let shown = String::from_utf8_lossy(&shown(url)).into_owned();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/.:-_~%@+,=[]".contains(c);
    match shown.chars().all(is_plain) {
        true => shown,
        false => format!("'{}'", shown.replace('\'', "'\\''")),
    }
}
