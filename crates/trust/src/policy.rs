//! Signing policies: which names an authority may vouch for.
//!
//! The file beside each authority's certificate, in the words of EACL:
//! `access_id_CA X509 'DN'`, `pos_rights globus CA:sign`,
//! `cond_subjects globus '"/O=Grid/*" "/O=Lab/*"'`.

use crate::{identity::spelled, pattern::fits};

/// Permissions of one file.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Policy {
    entries: Vec<PolicyEntry>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
struct PolicyEntry {
    authority: String,
    may_sign: bool,
    patterns: Vec<String>,
}

impl Policy {
    /// Reads the text of a policy file; a line that is not understood is an error.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut policy = Self::default();
        for (number, line) in text.lines().enumerate() {
            policy
                .take(line)
                .map_err(|what| format!("line {}: {what}", number + 1))?;
        }
        Ok(policy)
    }

    fn take(&mut self, line: &str) -> Result<(), String> {
        let words = words(line)?;
        let [key, authority, value @ ..] = &words[..] else {
            return match words.first() {
                None => Ok(()),
                Some(word) => Err(format!("{word} says nothing")),
            };
        };
        let value = value.first().map_or("", String::as_str);
        match (key.as_str(), self.entries.last_mut()) {
            (kind, _) if kind.starts_with("access_id_") => {
                if self.entries.len() == ENTRIES_MAX {
                    return Err(format!("more than {ENTRIES_MAX} authorities"));
                }
                self.entries.push(PolicyEntry {
                    authority: spelled(value),
                    may_sign: false,
                    patterns: Vec::new(),
                });
            }
            (_, None) => return Err(format!("{key} stands before any access_id_CA")),
            ("pos_rights", Some(entry)) => {
                entry.may_sign |= authority == "globus" && value == "CA:sign"
            }
            // A right that is denied here is one that is not given.
            ("neg_rights", Some(entry)) => entry.may_sign &= value != "CA:sign",
            ("cond_subjects", Some(entry)) => entry.patterns.extend(patterns(value)),
            _ => return Err(format!("{key} is no word of a signing policy")),
        }
        Ok(())
    }

    /// Tells whether `authority` may vouch for `subject`.
    pub(crate) fn allows(&self, authority: &str, subject: &str) -> bool {
        let (authority, subject) = (spelled(authority), spelled(subject));
        let mut own = self
            .entries
            .iter()
            .filter(|entry| entry.may_sign && entry.authority == authority);
        own.any(|entry| {
            entry
                .patterns
                .iter()
                .any(|pattern| fits(pattern.as_bytes(), subject.as_bytes()))
        })
    }
}

/// Splits at blanks outside quotes; `#` begins a remark.
fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut left = line.trim();
    while let Some(first) = left.chars().next() {
        let (word, rest) = match first {
            '#' => break,
            '\'' | '"' => left[1..]
                .split_once(first)
                .ok_or("a quotation mark is not closed")?,
            _ => left.split_once(char::is_whitespace).unwrap_or((left, "")),
        };
        words.push(word.to_owned());
        left = rest.trim_start();
    }
    Ok(words)
}

/// Returns the patterns of a condition: each in double quotes, or the only one without.
fn patterns(value: &str) -> Vec<String> {
    if !value.contains('"') {
        return vec![spelled(value.trim())];
    }
    let quoted = value.split('"').skip(1).step_by(2);
    quoted.map(spelled).collect()
}

const ENTRIES_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GLOBUS: &str = "# a comment\n\
        access_id_CA   X509    '/C=US/O=Globus/CN=Globus CA'\n\
        pos_rights     globus  CA:sign\n\
        cond_subjects  globus  '\"/C=us/O=Globus/*\"  \"/C=US/O=Globus/*\"'\n";

    #[test]
    fn authority_vouches_for_own_names_only() {
        let policy = Policy::parse(GLOBUS).unwrap();
        let may = |ca: &str, subject: &str| policy.allows(ca, subject);
        assert!(may(
            "/C=US/O=Globus/CN=Globus CA",
            "/C=US/O=Globus/CN=alice"
        ));
        assert!(!may("/C=US/O=Globus/CN=Globus CA", "/C=US/O=Grid/CN=alice"));
        assert!(!may(
            "/C=US/O=Globus/CN=Another CA",
            "/C=US/O=Globus/CN=alice"
        ));
    }

    #[test]
    fn policy_without_sign_right_allows_none() {
        let policy = Policy::parse(&GLOBUS.replace("CA:sign", "CA:look")).unwrap();
        assert!(!policy.allows("/C=US/O=Globus/CN=Globus CA", "/C=US/O=Globus/CN=alice"));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for wrong in [
            "pos_rights globus CA:sign",
            "access_id_CA X509 'half",
            "access_id_CA",
            "allow x y",
        ] {
            assert!(Policy::parse(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,200}") {
            let _ = Policy::parse(&text);
        }
    }
}
