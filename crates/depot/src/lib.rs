//! This machine's disk of other people's files: what may be forgotten, since
//! its origin has it, and what is owed, since its target has not.
//!
//! The rules are those of [`godwit_core::holding`]; here are the disk, the
//! records, the threads that fetch and deliver, and who waits for whom. A depot
//! does not know who asks by which socket, nor that catalogs exist.

mod adding;
mod appending;
mod ballast;
mod called;
mod coming;
mod crowd;
mod depot;
mod disk;
mod editing;
mod error;
mod exclusive;
mod fetching;
#[cfg(test)]
mod full_disk;
mod gathering;
mod held;
mod into;
mod keeping;
mod lazy;
mod leftovers;
mod listing;
mod listings;
mod looking;
#[cfg(test)]
mod meanwhile;
mod moving;
mod names;
mod odd_deeds;
mod passed;
mod picking;
mod prefetching;
mod promises;
mod queue;
mod reading;
mod records;
mod room;
mod rot;
mod said;
mod scrubbing;
mod shared;
#[cfg(test)]
mod simulated;
mod spooled;
mod superseding;
mod tags;
#[cfg(test)]
mod tested;
mod words;
mod writing;

pub use adding::{Add, Adding};
pub use appending::{Appending, Nth, PIECE_MAX as RECORD_BYTES_MAX};
pub use depot::{Connect, Depot, Rules, Who};
pub use editing::{Edit, Editing, Ended, IsThere};
pub use error::{Error, Result};
pub use fetching::StillWanted;
pub use lazy::{Lazily, Moved};
pub use listing::{Holds, Usage, Verified, count_names};
pub use names::{Attributes, By};
pub use queue::{Before, Owed, Scope, Stage};
pub use reading::{Fresh, Reading};
pub use shared::{Share, Shared};
pub use spooled::Spooled;
pub use tags::Tag;
pub use writing::{IsWanted, Put, Writing};
