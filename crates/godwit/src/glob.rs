//! Shell patterns for names, on bytes: `*`, `?`, `[a-z]`, `[!a-z]`, `\x`.

/// Tells whether the whole of `name` matches `pattern`.
///
/// Remembers the last star and goes back to it, so the time is at most the
/// product of the two lengths, whatever the pattern.
pub(crate) fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p + 1, n));
            p += 1;
        } else if let Some(next) = one(pattern, p, name[n]) {
            p = next;
            n += 1;
        } else if let Some((after, from)) = star {
            star = Some((after, from + 1));
            (p, n) = (after, from + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&b| b == b'*')
}

/// Returns where the pattern goes on if its next part matches `byte`.
fn one(pattern: &[u8], at: usize, byte: u8) -> Option<usize> {
    match *pattern.get(at)? {
        b'?' => Some(at + 1),
        b'[' => match set(&pattern[at + 1..], byte) {
            Some((true, len)) => Some(at + 1 + len),
            Some((false, _)) => None,
            // A bracket that is never closed is just a bracket.
            None => (byte == b'[').then_some(at + 1),
        },
        b'\\' if pattern.len() > at + 1 => (pattern[at + 1] == byte).then_some(at + 2),
        plain => (plain == byte).then_some(at + 1),
    }
}

/// Reads a set up to its closing bracket; returns whether `byte` is in it and its length.
fn set(text: &[u8], byte: u8) -> Option<(bool, usize)> {
    let negated = matches!(text.first(), Some(b'!' | b'^'));
    let start = usize::from(negated);
    let (mut at, mut found) = (start, false);
    loop {
        let low = *text.get(at)?;
        if low == b']' && at > start {
            return Some((found != negated, at + 1));
        }
        let range = text.get(at + 1) == Some(&b'-') && text.get(at + 2).is_some_and(|&b| b != b']');
        let high = if range { text[at + 2] } else { low };
        found |= (low..=high).contains(&byte);
        at += if range { 3 } else { 1 };
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_as_in_a_shell() {
        for (pattern, name, expected) in [
            ("*.root", "run7.root", true),
            ("*.root", "run7.root.bak", false),
            ("run?", "run7", true),
            ("run?", "run", false),
            ("", "", true),
            ("*", "", true),
            ("**a*", "bbab", true),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]]", "]", true),
            ("[", "[", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("a\\", "a\\", true),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), name.as_bytes()),
                expected,
                "{pattern} {name}"
            );
        }
    }

    #[test]
    fn a_hostile_pattern_ends_soon() {
        let pattern = "*a".repeat(200);
        assert!(!matches(pattern.as_bytes(), &[b'a'; 199]));
        assert!(!matches(
            format!("{pattern}b").as_bytes(),
            &vec![b'a'; 5000]
        ));
    }
}
