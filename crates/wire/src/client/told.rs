//! Facts about an upload for a node's FTP port, and facts of a file in its answers (docs/formats/ftp-extensions.md).

use super::{Line, Unspeakable};
use crate::{reply::Reply, time, tuned::TunedStreams};
use godwit_core::{Algorithm, Digest, Extents};
use std::{fmt, time::Duration};

/// The facts in a node's final reply; `None`: the reply lacks that fact.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ReplyFacts {
    /// Length of the file.
    pub size: Option<u64>,
    /// Time of its last change.
    pub modify: Option<Duration>,
    /// When anything of it was last changed, which no user sets.
    pub touched: Option<Duration>,
    /// The hash of the whole file, if it was known without another read.
    pub blake3: Option<Digest>,
    /// Length of the file that a module made of an upload.
    pub kept: Option<u64>,
    /// The ranges of an upload that landed.
    pub done: Option<Extents>,
    /// Whether an upload is under its name now.
    pub published: Option<bool>,
    /// Bytes that were read again to tell a digest.
    pub reread: Option<u64>,
    /// Whether readers saw the file change, though it was to be replaced.
    pub in_place: bool,
    /// How the sender tuned its streams.
    pub tuned: Option<TunedStreams>,
    /// Room in all.
    pub total: Option<u64>,
    /// Room left.
    pub free: Option<u64>,
}

impl ReplyFacts {
    /// Reads `GODWIT fact=value;…`, which stands on the first line or one behind
    /// it; `None` if there is none, or a fact of ours that makes no sense.
    pub fn from_reply(reply: &Reply) -> Option<Self> {
        let line = reply
            .lines
            .iter()
            .find_map(|l| l.strip_prefix(b"GODWIT "))?;
        let mut told = Self::default();
        for fact in str::from_utf8(line).ok()?.trim().split(';') {
            let Some((name, value)) = fact.split_once('=') else {
                continue;
            };
            match name {
                "size" => told.size = Some(value.parse().ok()?),
                "modify" => told.modify = Some(time::parse(value.as_bytes())?),
                "touched" => told.touched = Some(time::parse(value.as_bytes())?),
                "blake3" => told.blake3 = Some(Digest::from_hex(Algorithm::Blake3, value).ok()?),
                "kept" => told.kept = Some(value.parse().ok()?),
                "done" if value.is_empty() => told.done = Some(Extents::new()),
                "done" => told.done = Some(value.parse().ok()?),
                "published" => told.published = Some(value == "1"),
                "inplace" => told.in_place = value == "1",
                "reread" => told.reread = Some(value.parse().ok()?),
                "tuned" => told.tuned = value.parse().ok(),
                "total" => told.total = Some(value.parse().ok()?),
                "free" => told.free = Some(value.parse().ok()?),
                _ => {}
            }
        }
        Some(told)
    }
}

/// The facts about an upload that a node's FTP port receives.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Upload<'a> {
    /// Length of the file.
    pub size: Option<u64>,
    /// Time of change to give it.
    pub modify: Option<Duration>,
    /// Permission bits to give it.
    pub mode: Option<u32>,
    /// Name of the upload.
    pub id: Option<&'a str>,
    /// The hash that the whole file must have.
    pub blake3: Option<&'a Digest>,
    /// Whether the end of data does not publish it.
    pub hold: bool,
    /// `new`, `replace` or `inplace`; `replace` if not said.
    pub how: Option<&'static str>,
}

impl Upload<'_> {
    /// Returns the command that begins or continues it.
    pub fn esto(&self, name: &[u8]) -> Result<Line, Unspeakable> {
        Line::new("ESTO")
            .and(format_args!("GODWIT=\"{self}\""))
            .bytes(name)
    }

    /// Returns the command that publishes it.
    pub fn finish(&self, name: &[u8]) -> Result<Line, Unspeakable> {
        Line::new("SITE GODWIT FINISH").and(self).bytes(name)
    }

    /// Returns the command that asks what landed of it.
    pub fn done(&self, name: &[u8]) -> Result<Line, Unspeakable> {
        Line::new("SITE GODWIT DONE").and(self).bytes(name)
    }

    /// Returns the command that forgets it.
    pub fn abandon(&self, name: &[u8]) -> Result<Line, Unspeakable> {
        Line::new("SITE GODWIT ABANDON").and(self).bytes(name)
    }
}

/// Writes `size=N;id=ID;`; a lone `;` if there is nothing to tell.
impl fmt::Display for Upload<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let facts = [
            self.size.map(|n| format!("size={n}")),
            self.modify
                .map(|at| format!("modify={}", time::Written(at))),
            self.mode.map(|mode| format!("mode={mode:04o}")),
            self.id.map(|id| format!("id={id}")),
            self.blake3.map(|digest| format!("blake3={}", digest.hex())),
            self.hold.then(|| "hold=1".to_owned()),
            self.how.map(|how| format!("how={how}")),
        ];
        let facts: Vec<_> = facts.into_iter().flatten().collect();
        write!(f, "{};", facts.join(";"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_226_of_ours_tells_facts() {
        let reply = Reply::of_lines(
            226,
            [
                "Transfer Complete.",
                "GODWIT size=5;modify=20261121020036.5;done=0-2,4-5;published=0;new=1",
                "End.",
            ],
        );
        let told = ReplyFacts::from_reply(&reply).unwrap();
        assert_eq!((told.size, told.published), (Some(5), Some(false)));
        assert_eq!(told.done, Some("0-2,4-5".parse().unwrap()));
        assert_eq!(
            ReplyFacts::from_reply(&Reply::new(226, "Transfer Complete.")),
            None
        );
        assert_eq!(
            ReplyFacts::from_reply(&Reply::new(250, "GODWIT size=x")),
            None
        );
        let none = ReplyFacts::from_reply(&Reply::new(250, "GODWIT size=9;done=")).unwrap();
        assert_eq!(none.done, Some(Extents::new()));
    }

    #[test]
    fn an_upload_is_told_in_one_line() {
        let upload = Upload {
            size: Some(7),
            id: Some("a-1"),
            mode: Some(0o644),
            hold: true,
            ..Upload::default()
        };
        let line = upload.esto(b"x y").unwrap();
        assert_eq!(
            line.as_bytes(),
            b"ESTO GODWIT=\"size=7;mode=0644;id=a-1;hold=1;\" x y\r\n"
        );
    }
}
