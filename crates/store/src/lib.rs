//! Everything that holds files is a [`Store`]; a writer of one file has a [`Sink`].
//!
//! This crate has the traits and the stores that hold bytes (`Dir`, `Memory`) or ask a server (`Remote`). Two more
//! misbehave on purpose (`Faulty`, `Slow`). A suite (`check`) defines the promises of all of them, and the engine
//! copies from any to any.
//!
//! A store does not know that depots or catalogs exist. Verbs block the calling
//! thread, with a deadline: concurrency is the caller's threads, never hidden.

pub mod channel;
pub mod check;
mod crash;
mod dir;
pub mod door;
pub mod engine;
mod error;
mod faulty;
mod fence;
mod flow;
mod forward;
mod journal;
mod landed;
mod lines;
mod mark;
mod memory;
mod module;
mod remote;
mod slow;
mod store;
mod tuning;
mod watch;
mod width;

pub use dir::{Dir, Opener, Partial};
pub use error::{Error, LoginCredential, REFERS, Result, refused};
pub use faulty::{Defect, Faulty};
pub use flow::Flow;
pub use godwit_core::{Algorithm, Chain, Digest, Extents, Version};
pub use godwit_wire::shield::Level;
pub use godwit_wire::{client::DataHints, door::call::Remedy};
pub use journal::Journal;
pub use lines::LineGuard;
pub use memory::Memory;
pub use module::ModuleStore;
pub use remote::{Appear, LoginBy, Member, Proofs, Remote, RemoteOptions, TrustOptions, Whom};
pub use slow::{Slow, SlowPace};
pub use store::{
    Batch, BlockWriter, BlockWriterExt, Capabilities, Checks, Direct, Entry, EntryKind, Expected,
    Facets, Fast, Finished, HopStatus, LocalFile, NextFile, Nowhere, Origin, PASSED_MAX, Passage,
    Peer, Read, RemovalKind, Resume, SIZE_UNKNOWN, SMALL_BYTES, Set, Sink, SinkExt, SinkFacets,
    Small, SmallResult, SmallWrite, Space, Stat, Store, StoreExt, TAKEN, THERE, Transit, Verified,
    Volume, Walk, Write, WriteMode, Xattrs, same_origin,
};
pub use tuning::{Limit, Measurements, Tuned, Tuning};
pub use width::Width;
