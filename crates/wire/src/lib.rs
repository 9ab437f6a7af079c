//! Dialogues as values: how FTP and GridFTP look on the wire.
//!
//! Bytes and time come in as arguments; bytes and events go out as returns. Here
//! nothing opens a socket, waits or reads a clock. What a peer sends never panics
//! and never makes memory grow without bound. Names are raw bytes: a protocol
//! that knows no encoding must not be given one.

pub mod address;
pub mod base64;
pub mod client;
pub mod command;
pub mod door;
mod error;
pub mod facts;
pub mod features;
pub mod lines;
pub mod listing;
pub mod local;
pub mod marker;
pub mod mode_e;
pub mod reply;
pub mod server;
pub mod shield;
pub mod time;
pub mod transcript;
pub mod tuned;
mod words;

pub use door::refusal::{More, Refusal, Waiting};
pub use error::{Error, Result};
