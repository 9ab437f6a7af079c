//! One verb, one file: its options, its help with examples, and what it does.

pub(crate) mod attr;
pub(crate) mod audit;
pub(crate) mod auth;
pub(crate) mod ca;
pub(crate) mod cache;
pub(crate) mod cat;
pub(crate) mod catalog;
pub(crate) mod cluster;
pub(crate) mod commit;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod cp;
mod deciding;
pub(crate) mod doctor;
pub(crate) mod drop;
pub(crate) mod du;
pub(crate) mod farm;
pub(crate) mod find;
pub(crate) mod get;
pub(crate) mod help;
pub(crate) mod history;
pub(crate) mod init;
pub(crate) mod join;
pub(crate) mod leave;
pub(crate) mod link;
pub(crate) mod local;
pub(crate) mod locate;
pub(crate) mod location;
pub(crate) mod ls;
pub(crate) mod man;
pub(crate) mod mkdir;
pub(crate) mod mount;
mod mounted;
pub(crate) mod mpi;
pub(crate) mod mv;
pub(crate) mod node;
pub(crate) mod peers;
mod preloaded;
pub(crate) mod proxy;
pub(crate) mod publish;
pub(crate) mod push;
pub(crate) mod put;
pub(crate) mod queue;
pub(crate) mod redirect;
pub(crate) mod register;
pub(crate) mod release;
pub(crate) mod replicate;
pub(crate) mod retry;
pub(crate) mod rm;
pub(crate) mod rule;
pub(crate) mod run;
mod serving;
pub(crate) mod stage;
pub(crate) mod stat;
pub(crate) mod sum;
pub(crate) mod sync;
pub(crate) mod tail;
pub(crate) mod tee;
pub(crate) mod trace;
pub(crate) mod umount;
pub(crate) mod uninit;
pub(crate) mod unregister;
pub(crate) mod unstage;
pub(crate) mod version;

/// What a verb adds to its summary.
pub(crate) type Facts = serde_json::Map<String, serde_json::Value>;

/// Returns facts by their names.
pub(crate) fn facts<const N: usize>(named: [(&str, serde_json::Value); N]) -> Facts {
    named
        .map(|(name, value)| (name.to_owned(), value))
        .into_iter()
        .collect()
}
