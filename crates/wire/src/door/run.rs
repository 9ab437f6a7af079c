//! Messages about a program that a node runs beside a file.

use super::{
    call::{Bytes, Name, Text},
    staging::Staging,
};
use godwit_core::Digest;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{ffi::OsString, os::unix::ffi::OsStringExt};

/// Asks to run a program.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AskRun {
    /// The program and its arguments; `{in}` stands for the path of the file.
    pub program: Vec<Word>,
    /// The file: the fragment that the program works on; empty: none.
    pub path: Name,
    /// The index of the fragment.
    pub fragment: u64,
    /// The count of fragments.
    pub fragments: u64,
    /// The job that it belongs to.
    pub job: String,
    /// `NAME=VALUE`, each a variable of its environment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<Word>,
    /// The BLAKE3 of the file. A program's output from other bytes is void.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Text<Digest>>,
    /// The new file that the program writes as `{out}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out: Option<Name>,
    /// The new file that receives the standard output; the answer then has no lines of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub printed: Option<Name>,
    /// Files that the node brings to it, and takes from it.
    #[serde(default, skip_serializing_if = "Staging::is_empty")]
    pub staging: Staging,
}

/// A file that a program wrote, durable under its name.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Placed {
    /// The file.
    pub path: Name,
    /// The length in bytes.
    pub size: u64,
    /// The BLAKE3 of its bytes.
    pub digest: Text<Digest>,
}

/// The word in an argument that stands for the path of the file that the program is to write.
pub const OUT: &str = "{out}";

/// The word in an argument that stands for the path of the file.
pub const IN: &str = "{in}";

/// An argument of a program: a string, or if it is no text an object that holds its bytes.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Word(pub OsString);

#[derive(Deserialize, Serialize)]
#[serde(untagged)]
enum Written {
    Text(String),
    Other(RawBytes),
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct RawBytes {
    bytes: Bytes,
}

impl Serialize for Word {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let written = match self.0.to_str() {
            Some(text) => Written::Text(text.into()),
            None => Written::Other(RawBytes {
                bytes: Bytes(self.0.as_encoded_bytes().into()),
            }),
        };
        written.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let word = match Written::deserialize(from)? {
            Written::Text(text) => text.into(),
            Written::Other(RawBytes { bytes }) => OsString::from_vec(bytes.0),
        };
        match word.as_encoded_bytes().contains(&0) {
            true => Err(de::Error::custom("an argument has no byte 0")),
            false => Ok(Self(word)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back_as_they_were() {
        for (bytes, written) in [
            (&b"grep {in} \xc3\xa4"[..], "\"grep {in} \u{e4}\""),
            (b"", "\"\""),
            (b"\xff\n", "{\"bytes\":\"/wo=\"}"),
        ] {
            let word = Word(OsString::from_vec(bytes.into()));
            assert_eq!(serde_json::to_string(&word).unwrap(), written);
            assert_eq!(serde_json::from_str::<Word>(written).unwrap(), word);
        }
        for bad in ["\"a\\u0000\"", "{\"bytes\":\"AA==\"}", "{}", "3"] {
            assert!(serde_json::from_str::<Word>(bad).is_err(), "{bad}");
        }
    }
}
