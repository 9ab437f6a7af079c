//! Messages about files that come to a program before it runs, and go somewhere after it ended.

use super::call::{Name, Text};
use godwit_core::Digest;
use serde::{Deserialize, Serialize};

/// Files that a node brings to a program and takes from it. In each URL `${NAME}` stands for one of [`VARIABLES`].
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Staging {
    /// The program itself; `None`: the first word names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executable: Option<Executable>,
    /// Files that lie in its directory before it begins.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<Staged>,
    /// Files of its directory that are delivered once it ended well.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<Staged>,
    /// The standard input; `None`: nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reads: Option<StagedPlace>,
    /// The URL to which its standard output is appended, instead of being told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub out: Option<String>,
    /// The URL to which its standard error is appended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub words: Option<String>,
}

/// A program that is no file of the node's own.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Executable {
    /// A client has put it to [`kept`] of the export.
    Kept(Text<Digest>),
    /// The node fetches it.
    Url(String),
}

/// A file of the directory of a program, and its other end.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Staged {
    /// The name in the directory.
    pub name: Name,
    /// The place to read from or to write to.
    pub place: StagedPlace,
    /// The BLAKE3 of a file that arrives; `None`: any bytes are right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Text<Digest>>,
}

/// The other end of a file.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StagedPlace {
    /// A server that the node asks.
    Url(String),
    /// A file of the export.
    Path(Name),
}

/// The variables of URLs: two that the node has, and those of the process.
pub const VARIABLES: [&str; 5] = [
    "GODWIT_ARCH",
    "GODWIT_OS",
    "GODWIT_JOB",
    "GODWIT_FRAGMENT",
    "GODWIT_FRAGMENTS",
];

/// The directory of an export that keeps programs.
pub const PROGRAMS: &str = ".farm/bin";

/// Returns where an export keeps a program.
pub fn kept(digest: &Digest) -> String {
    format!("{PROGRAMS}/{}", digest.hex())
}

impl Staging {
    /// Tells whether a program needs none of it.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Returns a text with the value of each `${NAME}` in it; the error is the name of a variable that has none.
pub fn filled(text: &str, value: impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let (mut rest, mut filled) = (text, String::new());
    while let Some((before, after)) = rest.split_once("${") {
        let (name, behind) = after.split_once('}').unwrap_or((after, ""));
        filled.push_str(before);
        filled.push_str(&value(name).ok_or(name)?);
        rest = behind;
    }
    filled.push_str(rest);
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_without_value_are_named() {
        let value = |name: &str| (name == "GODWIT_OS").then(|| "linux".to_owned());
        let of = |text| filled(text, value);
        assert_eq!(
            of("x/${GODWIT_OS}$/${GODWIT_OS}-"),
            Ok("x/linux$/linux-".into())
        );
        assert_eq!(of("a$b{c}"), Ok("a$b{c}".into()));
        for (text, name) in [("a/${B}/c", "B"), ("${", ""), ("${GODWIT_OS", "GODWIT_OS")] {
            let found = of(text);
            match name {
                "GODWIT_OS" => assert_eq!(found, Ok("linux".into())),
                name => assert_eq!(found, Err(name.into())),
            }
        }
    }
}
