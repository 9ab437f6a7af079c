//! The node of this machine, as programs reach it: where its socket is, how it is started if nobody listens,
//! and a conversation with it ([`Here`]).
//!
//! It blocks, starts no thread, and keeps nothing between calls but one socket, so that it can be part of any
//! program. What is said is in [`godwit_wire::local`].

mod here;
mod place;
mod start;
mod talk;
mod who;

pub use godwit_wire::local::{Kind, Refusal};
pub use here::{Answer, Here, odd};
pub use place::{Environment, Place};
pub use start::{Lock, lock_within};
pub use talk::{Owner, Talk, Ticket, gone};
pub use who::{program, who};

/// The result of what is asked of the node: why not, in words and as a number.
pub type Result<T, E = Refusal> = std::result::Result<T, E>;
