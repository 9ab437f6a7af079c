//! The nouns of the grid and their algebra: ranges, digests, homes, copies. Values only.
//!
//! No code here opens a file or a socket, starts a thread, reads a clock or the environment. Time
//! and bytes are arguments.

mod ahead;
mod block;
pub mod deeds;
mod digest;
mod errors;
mod extents;
mod fault;
mod glob;
mod hex;
pub mod holding;
mod kind;
mod layout;
mod leaves;
pub mod sharing;
mod striping;
mod url;
mod version;

pub use ahead::{Ahead, STEP_BYTES, WINDOW_BYTES_MAX};
pub use block::Block;
pub use digest::{AdlerPart, AdlerParts, Algorithm, BadDigest, Digest, Hashing};
pub use extents::{BadExtents, Extents};
pub use fault::Fault;
pub use glob::{Choice, matches};
pub use hex::{hex, unescape, unhex};
pub use kind::{Class, Kind};
pub use layout::{Fragment, Home, HomeState, Layout, Move, Unfilled, Weather, moves};
pub use leaves::{Chain, LEAF_BYTES, Leaves, Piece, leaf_range};
pub use striping::Striping;
pub use url::{BadUrl, Host, HostMeant, Scheme, Url};
pub use version::{Strength, Version};
