//! Dialogues as values: how FTP and GridFTP look on the wire.
//!
//! Bytes and time are arguments; bytes and events are results. No function here opens a socket, waits or reads a
//! clock. No peer's bytes cause a panic or make memory grow without bound. Names are raw bytes, since the protocol
//! knows no encoding.

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
