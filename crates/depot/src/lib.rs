//! A depot: a directory of this machine with files of other servers. It caches files that their origin has, and keeps
//! files until their target has them.
//!
//! The rules are those of [`godwit_core::holding`]. A depot does not know which socket a caller uses, nor that catalogs
//! exist.
//!
//! Layers, each of which imports only those behind it:
//! - `store` shows a depot as a store;
//! - `api` has the calls, one family a file;
//! - `work` has the threads, and the steps that calls share with them;
//! - `inner` is the state that all threads share;
//! - `disk` has the bytes and the records;
//! - `plan` has the entries, their names and order, and decides what is delivered next; no file, no clock;
//! - `terms`, `config`, `error`, `id`, `paths`, `clock` and `words` are shared by all.

mod api;
mod clock;
mod config;
mod disk;
mod error;
mod id;
mod inner;
mod paths;
mod plan;
mod store;
mod terms;
#[cfg(test)]
mod tests;
mod words;
mod work;

pub use api::{
    append::Appending,
    cache::{Holds, Usage, count_names},
    depot::Depot,
    edit::{Edit, Editing, IsThere},
    fill::{Add, Adding},
    lazy::{Lazily, Moved},
    names::Attributes,
    queue::{Pending, Stage},
    read::Reading,
    share::{Share, Shared},
    write::{Put, Writing},
};
pub use config::{Connect, Rules, Who};
pub use disk::{
    frames::{Nth, PIECE_MAX as RECORD_BYTES_MAX},
    rows::Tag,
};
pub use error::{Error, Result};
pub use store::Spooled;
pub use terms::{Before, By, Ended, Fresh, IsWanted, Scope, StillWanted, Verified};
