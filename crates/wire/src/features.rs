//! The features of a server: the replies to FEAT and to SITE HELP.

use crate::reply::Reply;
use godwit_core::Algorithm;
use std::collections::{BTreeMap, BTreeSet};

/// The reply to FEAT: keywords in upper case, each with the rest of its line.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Features {
    lines: BTreeMap<String, String>,
}

impl Features {
    /// Reads the 211; a server that refuses FEAT has no features.
    pub fn from_reply(reply: &Reply) -> Self {
        let mut features = Self::default();
        if reply.code == 211 {
            for line in reply.inner().iter().take(FEATURES_MAX) {
                features.add(&String::from_utf8_lossy(line));
            }
        }
        features
    }

    /// Returns the features of a server with these lines.
    pub fn of<'a>(lines: impl IntoIterator<Item = &'a str>) -> Self {
        let mut features = Self::default();
        lines.into_iter().for_each(|line| features.add(line));
        features
    }

    /// Returns the 211.
    pub fn to_reply(&self) -> Reply {
        let lines = self.lines.iter().map(|(word, rest)| match &rest[..] {
            "" => word.clone(),
            rest => format!("{word} {rest}"),
        });
        let first = ["Extensions supported".to_owned()];
        Reply::of_lines(
            211,
            first.into_iter().chain(lines).chain(["End.".to_owned()]),
        )
    }

    /// Tells whether a keyword was there.
    pub fn has(&self, word: &str) -> bool {
        self.lines.contains_key(word)
    }

    /// Returns what stands behind a keyword.
    pub fn rest(&self, word: &str) -> Option<&str> {
        self.lines.get(word).map(String::as_str)
    }

    /// Tells whether the server speaks the extension of docs/formats/ftp-extensions.md.
    pub fn is_godwit(&self) -> bool {
        self.rest("GODWIT") == Some("1")
    }

    /// Returns how many conversations of ours can have a data port at once.
    pub fn data_ports(&self) -> usize {
        let told = self
            .rest("GODWIT-PORTS")
            .and_then(|ports| ports.parse().ok());
        told.unwrap_or(usize::MAX)
    }

    /// Tells whether the server delivers files to another one.
    pub fn passes_on(&self) -> bool {
        self.has("GODWIT-HOP")
    }

    /// Tells whether the server speaks GFD.20: extended block mode and its kin.
    pub fn is_gridftp(&self) -> bool {
        self.has("PARALLEL") || self.has("SPAS") || self.has("ERET")
    }

    /// Tells whether `REST n` works in stream mode.
    pub fn restarts_streams(&self) -> bool {
        self.rest("REST")
            .is_some_and(|rest| rest.to_ascii_uppercase().contains("STREAM"))
    }

    /// Returns the checksums that `CKSM` computes, the server's favourite first.
    pub fn checksums(&self) -> Vec<Algorithm> {
        let mut all: Vec<(u32, Algorithm)> = self
            .rest("CKSM")
            .unwrap_or_default()
            .split([';', ','])
            .filter_map(|item| {
                let (name, rank) = item.trim().split_once(':').unwrap_or((item.trim(), "99"));
                Some((rank.trim().parse().unwrap_or(99), algorithm(name)?))
            })
            .collect();
        all.sort();
        all.into_iter().map(|(_, algorithm)| algorithm).collect()
    }

    /// Forgets a keyword that turned out to be untrue.
    pub fn remove(&mut self, word: &str) {
        self.lines.remove(word);
    }

    fn add(&mut self, line: &str) {
        let (word, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
        if !word.is_empty() {
            self.lines
                .insert(word.to_ascii_uppercase(), rest.trim().to_owned());
        }
    }
}

/// Returns the word by which `CKSM` and `SCKS` know an algorithm.
pub fn checksum_word(by: Algorithm) -> &'static str {
    match by {
        Algorithm::Blake3 => "BLAKE3",
        Algorithm::Adler32 => "ADLER32",
        Algorithm::Md5 => "MD5",
        Algorithm::Sha1 => "SHA1",
        Algorithm::Sha256 => "SHA256",
        Algorithm::Sha512 => "SHA512",
    }
}

/// Returns the algorithm of a word, of any case; dashes as in `SHA-256` do not matter.
pub fn algorithm(word: &str) -> Option<Algorithm> {
    word.trim().parse().ok()
}

/// Reads the commands that a 214 of `SITE HELP` or `HELP` names, in upper case.
///
/// The list is for people, so all that looks like a command counts; a trailing
/// `*` means *not implemented* (RFC 959's servers of old).
pub fn commands(reply: &Reply) -> BTreeSet<String> {
    reply
        .lines
        .iter()
        .flat_map(|line| line.split(|b| !b.is_ascii_alphanumeric() && *b != b'*'))
        .filter(|word| word.len() > 2 && word.len() < 24)
        .filter(|word| {
            word.iter()
                .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit())
        })
        .take(FEATURES_MAX)
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect()
}

const FEATURES_MAX: usize = 1000; // pure-ftpd, the most talkative, has forty

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn features_read_as_they_were_written(lines in prop::collection::vec("[A-Z]{1,8}( [a-zA-Z0-9;:]{1,8}){0,2}", 0..9)) {
            let features = Features::of(lines.iter().map(String::as_str));
            prop_assert_eq!(Features::from_reply(&features.to_reply()), features);
        }

        #[test]
        fn any_reply_is_read(lines in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 1..9)) {
            let reply = Reply::of_lines(211, lines);
            let _ = (Features::from_reply(&reply).checksums(), commands(&reply));
        }
    }

    #[test]
    fn gct_13_24_is_understood() {
        let features = Features::from_reply(&Reply::of_lines(
            211,
            [
                "Extensions supported",
                "CKSM MD5:10;ADLER32:10;SHA1:10;SHA256:11;SHA512:12;",
                "PARALLEL",
                "REST STREAM",
                "MLST Type*;Size*;Modify*;",
                "End.",
            ],
        ));
        assert!(features.is_gridftp() && features.restarts_streams() && !features.is_godwit());
        let all = [
            Algorithm::Adler32,
            Algorithm::Md5,
            Algorithm::Sha1,
            Algorithm::Sha256,
            Algorithm::Sha512,
        ];
        assert_eq!(features.checksums(), all);
        assert_eq!(
            Features::from_reply(&Reply::new(500, "no")),
            Features::default()
        );
    }

    #[test]
    fn site_help_names_commands() {
        let reply = Reply::of_lines(
            214,
            [
                "The following SITE commands are recognized",
                "UTIME   CHMOD  GROUP*",
                "End",
            ],
        );
        let all: Vec<_> = commands(&reply).into_iter().collect();
        assert_eq!(all, ["CHMOD", "SITE", "UTIME"]);
    }
}
