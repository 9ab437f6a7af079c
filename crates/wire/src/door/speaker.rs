//! The version of each side: in `user-agent` of each request, and in `server` of each answer.
//!
//! Without another round trip, each side learns what the other understands, and which of the two must be upgraded.

use super::{REVISION, VERSION, is_word};
use std::{cmp::Ordering, fmt};

/// A version of godwit and its protocol: `godwit/0.1.0 door/1.2`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Speaker {
    /// The version of the program.
    pub godwit: String,
    /// The newest version of the protocol that it knows.
    pub version: u32,
    /// The revision within that version.
    pub revision: u32,
}

impl Speaker {
    /// Returns the version of this program.
    pub fn ours() -> Self {
        Self {
            godwit: env!("CARGO_PKG_VERSION").into(),
            version: VERSION,
            revision: REVISION,
        }
    }

    /// Returns the version of a node that sends none, as the first ones did.
    pub fn silent() -> Self {
        Self {
            godwit: "0.1.0".into(),
            version: 1,
            revision: 0,
        }
    }

    /// Returns the version as messages to users name it.
    pub fn name(&self) -> String {
        format!(
            "godwit {} (door {}.{})",
            self.godwit, self.version, self.revision
        )
    }

    /// Reads the version of the other side; `None`: it is another program. The first nodes sent no version, which was
    /// 1.0.
    pub fn read(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let godwit = words.next()?.strip_prefix("godwit/")?;
        if !is_word(godwit, b"-_.+") {
            return None;
        }
        let speaks = words.find_map(|word| {
            let (version, revision) = word.strip_prefix("door/")?.split_once('.')?;
            Some((version.parse().ok()?, revision.parse().ok()?))
        });
        let (version, revision) = speaks.unwrap_or((1, 0));
        Some(Self {
            godwit: godwit.into(),
            version,
            revision,
        })
    }

    /// Compares the protocol version with ours.
    pub fn compared(&self) -> Ordering {
        (self.version, self.revision).cmp(&(VERSION, REVISION))
    }

    /// Returns a message that says which side must be upgraded; `None`: the versions are equal, so the cause is
    /// another.
    pub fn must_upgrade(&self) -> Option<String> {
        let ours = Self::ours();
        match self.compared() {
            Ordering::Equal => None,
            Ordering::Less => Some(format!(
                "the client must be upgraded: it is {}, this node runs {}",
                self.name(),
                ours.name()
            )),
            Ordering::Greater => Some(format!(
                "this node must be upgraded: it runs {}, the client is {}",
                ours.name(),
                self.name()
            )),
        }
    }
}

impl fmt::Display for Speaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "godwit/{} door/{}.{}",
            self.godwit, self.version, self.revision
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speaker_survives_round_trip() {
        let ours = Speaker::ours();
        assert_eq!(Speaker::read(&ours.to_string()), Some(ours));
        let first = Speaker::read("godwit/0.1.0").unwrap();
        assert_eq!((first.version, first.revision), (1, 0));
        let later = Speaker::read("godwit/2.0.0-rc.1 shell/7 door/1.12").unwrap();
        assert_eq!((later.version, later.revision), (1, 12));
        for stranger in [
            "",
            "curl/8.5.0",
            "godwit/",
            "godwit",
            "godwit/\u{1b}[2J",
            "door/1.2",
        ] {
            assert_eq!(Speaker::read(stranger), None, "{stranger}");
        }
    }

    #[test]
    fn who_knows_less_must_be_upgraded() {
        let at = |version, revision| Speaker {
            version,
            revision,
            ..Speaker::ours()
        };
        let told = |speaker: Speaker| speaker.must_upgrade().unwrap_or_default();
        assert_eq!(at(VERSION, REVISION).must_upgrade(), None);
        assert!(told(at(VERSION, REVISION - 1)).starts_with("the client must be upgraded"));
        assert!(told(at(VERSION, REVISION + 1)).starts_with("this node must be upgraded"));
        assert!(told(at(VERSION + 1, 0)).starts_with("this node must be upgraded"));
    }
}
