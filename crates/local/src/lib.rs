//! Client of this machine's node: finds its socket, starts the node if none listens, and holds the
//! connection ([`NodeConnection`]).
//!
//! Calls block. The library starts no thread, and keeps only one socket between calls. So it can be
//! part of any program. The messages are in [`godwit_wire::local`].

mod here;
mod place;
mod start;
mod talk;
mod who;

pub use godwit_wire::local::{Kind, Refusal};
pub use here::{NodeAnswer, NodeConnection, odd};
pub use place::{Environment, NodePlace};
pub use start::{Lock, lock_within};
pub use talk::{Owner, PendingRequest, SharedConnection, gone};
pub use who::{program, who};

/// Result of a request to the node: a refusal has words and a number.
pub type Result<T, E = Refusal> = std::result::Result<T, E>;
