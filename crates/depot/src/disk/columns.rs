//! Values as the records keep them: short text that a person can read.

use crate::paths::path_of;
use godwit_core::{
    Url, Version,
    deeds::{self, What},
    holding::{Base, Held, Mode, Notices, Sealed},
};
use std::time::Duration;

/// Written to a column, and read from it; what cannot be read is `None`.
pub(crate) trait Said: Sized {
    fn say(&self) -> String;
    fn read(text: &str) -> Option<Self>;
}

impl Said for Version {
    fn say(&self) -> String {
        match self {
            Self::Strong(digest) => format!("strong {digest}"),
            Self::Generation { server, name } => format!("generation {server} {name}"),
            Self::Weak {
                size,
                mtime,
                seen_at,
                touched,
            } => {
                let mut said = format!("weak {size} {} {}", mtime.as_nanos(), seen_at.as_nanos());
                if let Some(touched) = touched {
                    said.push_str(&format!(" {}", touched.as_nanos()));
                }
                said
            }
            Self::None => "none".into(),
        }
    }

    fn read(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(' ').unwrap_or((text, ""));
        match kind {
            "strong" => Some(Self::Strong(rest.parse().ok()?)),
            "generation" => {
                let (server, name) = rest.split_once(' ')?;
                let (server, name) = (server.into(), name.into());
                Some(Self::Generation { server, name })
            }
            "weak" => {
                let mut numbers = rest.split(' ');
                let size = numbers.next()?.parse().ok()?;
                let time = |said: &str| Some(Duration::from_nanos(said.parse().ok()?));
                let (mtime, seen_at) = (time(numbers.next()?)?, time(numbers.next()?)?);
                let touched = match numbers.next() {
                    Some(said) => Some(time(said)?),
                    None => None,
                };
                Some(Self::Weak {
                    size,
                    mtime,
                    seen_at,
                    touched,
                })
            }
            "none" => Some(Self::None),
            _ => None,
        }
    }
}

impl Said for Base {
    fn say(&self) -> String {
        match self {
            Self::Absent => "absent".into(),
            Self::Any => "any".into(),
            Self::Seen(version) => format!("seen {}", version.say()),
        }
    }

    fn read(text: &str) -> Option<Self> {
        match text {
            "absent" => Some(Self::Absent),
            "any" => Some(Self::Any),
            _ => Some(Self::Seen(Version::read(text.strip_prefix("seen ")?)?)),
        }
    }
}

impl Said for deeds::Held {
    fn say(&self) -> String {
        match self {
            Self::Conflict => "conflict".into(),
            Self::Missing => "missing".into(),
            Self::Refused(words) => format!("refused {words}"),
            Self::Wanted(words) => format!("wanted {words}"),
        }
    }

    fn read(text: &str) -> Option<Self> {
        let (kind, words) = text.split_once(' ').unwrap_or((text, ""));
        match kind {
            "conflict" => Some(Self::Conflict),
            "missing" => Some(Self::Missing),
            "refused" => Some(Self::Refused(words.into())),
            "wanted" => Some(Self::Wanted(words.into())),
            _ => None,
        }
    }
}

/// Says what a deed is, but for its names.
pub(crate) fn say_what(what: &What) -> String {
    match what {
        What::Publish(_) => "publish".into(),
        What::Rename { over, .. } => format!("rename {}", over.say()),
        What::Unlink => "unlink".into(),
        What::Mkdir => "mkdir".into(),
        What::Set(values) => {
            let mut words = String::from("set");
            for (key, value) in values {
                words.push_str(&format!(" {key}={}", String::from_utf8_lossy(value)));
            }
            words
        }
    }
}

/// Reads what a deed is, whose new name is `to`.
pub(crate) fn what(text: &str, to: Option<&Url>) -> Option<What> {
    let (kind, rest) = text.split_once(' ').unwrap_or((text, ""));
    match kind {
        "rename" => Some(What::Rename {
            to: path_of(to?),
            over: Base::read(rest)?,
        }),
        "unlink" => Some(What::Unlink),
        "mkdir" => Some(What::Mkdir),
        "set" => {
            let values = rest.split(' ').map(|value| {
                let (key, value) = value.split_once('=')?;
                Some((key.to_owned(), value.as_bytes().to_vec()))
            });
            values.collect::<Option<_>>().map(What::Set)
        }
        _ => None,
    }
}

/// Values that are a word each.
macro_rules! words {
    ($what:ident: $($value:ident = $word:literal),*) => {
        impl Said for $what {
            fn say(&self) -> String {
                match self {
                    $(Self::$value => $word.into(),)*
                }
            }

            fn read(text: &str) -> Option<Self> {
                match text {
                    $($word => Some(Self::$value),)*
                    _ => None,
                }
            }
        }
    };
}

words!(Mode: Replace = "replace", InPlace = "in-place");
words!(Notices: Each = "each", None = "none");

impl Said for Held {
    fn say(&self) -> String {
        match self {
            Self::Conflict(now) => format!("conflict {}", now.say()),
            Self::Refused => "refused".into(),
            Self::Unfinished => "unfinished".into(),
        }
    }

    fn read(text: &str) -> Option<Self> {
        match text {
            "refused" => Some(Self::Refused),
            "unfinished" => Some(Self::Unfinished),
            _ => Some(Self::Conflict(Base::read(text.strip_prefix("conflict ")?)?)),
        }
    }
}

impl Said for Sealed {
    fn say(&self) -> String {
        let altered = u8::from(self.altered);
        format!("{} {} {altered} {}", self.generation, self.size, self.owed)
    }

    fn read(text: &str) -> Option<Self> {
        let mut parts = text.splitn(4, ' ');
        let generation = parts.next()?.parse().ok()?;
        let size = parts.next()?.parse().ok()?;
        let altered = parts.next()? == "1";
        let owed = extents(parts.next()?)?;
        Some(Self {
            generation,
            size,
            owed,
            altered,
        })
    }
}

/// Says what a version is, to a person.
pub(crate) fn shown(version: &Version) -> String {
    match version {
        Version::Strong(digest) => digest.to_string(),
        Version::Generation { name, .. } => format!("generation {name}"),
        Version::Weak { size, .. } => format!("{size} bytes, by size and time"),
        Version::None => "nothing is known of it".into(),
    }
}

/// Reads ranges; none at all are an empty text.
pub(crate) fn extents(text: &str) -> Option<godwit_core::Extents> {
    match text.is_empty() {
        true => Some(godwit_core::Extents::new()),
        false => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use godwit_core::{Algorithm, Digest, Extents};

    fn again<T: Said + PartialEq + std::fmt::Debug>(value: T) {
        assert_eq!(T::read(&value.say()), Some(value));
    }

    #[test]
    fn what_is_written_is_read() {
        let nanos = Duration::new(1_700_000_000, 123_456_789);
        let weak = Version::Weak {
            size: u64::MAX,
            mtime: nanos,
            seen_at: nanos * 2,
            touched: None,
        };
        let touched = Version::Weak {
            size: 5,
            mtime: nanos,
            seen_at: nanos * 2,
            touched: Some(nanos * 3),
        };
        let strong = Version::Strong(Digest::of(Algorithm::Blake3, b"x"));
        let generation = Version::Generation {
            server: "h:1".into(),
            name: "\"a b\"".into(),
        };
        for version in [weak, touched, strong, generation, Version::None] {
            again(version.clone());
            again(Base::Seen(version.clone()));
            again(Held::Conflict(Base::Seen(version)));
        }
        for base in [Base::Absent, Base::Any] {
            again(base);
        }
        again(Held::Refused);
        again(Held::Unfinished);
        again(Mode::Replace);
        again(Mode::InPlace);
        again(Notices::Each);
        again(Notices::None);
        for owed in [Extents::new(), Extents::from_iter([0..3, 7..9])] {
            again(Sealed {
                generation: 3,
                size: 9,
                owed,
                altered: true,
            });
        }
    }

    #[test]
    fn columns_of_newer_version_are_refused() {
        assert_eq!(Base::read("seen odd 1"), None);
        assert_eq!(Held::read("stuck"), None);
        assert_eq!(Sealed::read("1 2"), None);
    }
}
