//! The protocol between programs of this machine and its node, over a UNIX socket.
//!
//! A frame has a head (one object of JSON) and a body of bytes, and arrives in any pieces ([`frame`]). Each [`Request`]
//! has a number, which its [`Response`]s repeat: many are in flight, and are answered in any order. Open files are sent
//! beside the bytes; the head says how many are its own.

pub mod frame;
pub mod records;
pub mod request;
pub mod response;
pub use crate::{Error, Refusal, Result};
pub use frame::{Decoder, Frame};
pub use godwit_core::Kind;
pub use request::Request;
pub use response::Response;

use serde::{Deserialize, Serialize};

/// The version of the protocol. A later node may know more within one version. Unknown members of an object are
/// ignored, and an unknown request is refused by its number.
pub const VERSION: u32 = 1;

/// The number of a request, unique on its connection.
pub type Number = u64;

/// An open file, among those of its connection.
pub type Handle = u64;

/// The longest URL that is taken.
pub const URL_BYTES_MAX: usize = 8192;

/// The head of a request.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct RequestHead {
    /// The number that the answer repeats.
    pub n: Number,
    /// How many descriptors are sent with the frame.
    #[serde(default, skip_serializing_if = "is_none")]
    pub fds: u8,
    /// The request.
    pub ask: Request,
}

/// The head of an answer.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ResponseHead {
    /// Which ask it answers.
    pub n: Number,
    /// How many descriptors are sent with the frame.
    #[serde(default, skip_serializing_if = "is_none")]
    pub fds: u8,
    /// The answer.
    pub tell: Response,
}

fn is_none(count: &u8) -> bool {
    *count == 0
}

impl RequestHead {
    /// Reads a head. An invalid head has no number, and ends the connection.
    pub fn read(head: &[u8]) -> Result<Self> {
        read(head)
    }

    /// Returns the frame of the request.
    pub fn write(&self, body: &[u8]) -> Result<Vec<u8>> {
        write(self, body)
    }
}

impl ResponseHead {
    /// Reads a head.
    pub fn read(head: &[u8]) -> Result<Self> {
        read(head)
    }

    /// Returns the frame of the answer.
    pub fn write(&self, body: &[u8]) -> Result<Vec<u8>> {
        write(self, body)
    }
}

fn read<'a, T: Deserialize<'a>>(head: &'a [u8]) -> Result<T> {
    #[derive(Deserialize)]
    struct Numbered {
        n: Number,
        #[serde(default)]
        fds: u8,
    }
    serde_json::from_slice(head).map_err(|error| {
        let said = error.to_string();
        match serde_json::from_slice::<Numbered>(head) {
            Ok(Numbered { n, fds }) => Error::Unknown { n, fds, said },
            Err(_) => Error::BadHead(said),
        }
    })
}

fn write<T: Serialize>(head: &T, body: &[u8]) -> Result<Vec<u8>> {
    let head = serde_json::to_vec(head).expect("all of it can be written as JSON");
    frame::frame(&head, body)
}
