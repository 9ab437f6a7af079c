//! Patterns with stars and question marks, as signing policies and rights have them.

/// Tells whether a name fits a pattern: `*` matches any text, `?` one character.
pub(crate) fn fits(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    // Position to retry from: behind the last star, and one byte further in the name.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p + 1, n));
                p += 1;
            }
            Some(&c) if c == b'?' || c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match star {
                Some((behind, from)) => {
                    star = Some((behind, from + 1));
                    (p, n) = (behind, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pattern_matches_like_simple_matcher(pattern in "[ab*?]{0,8}", name in "[ab]{0,8}") {
            fn dumb(p: &[u8], n: &[u8]) -> bool {
                match (p.first(), n.first()) {
                    (None, None) => true,
                    (Some(b'*'), _) => dumb(&p[1..], n) || (!n.is_empty() && dumb(p, &n[1..])),
                    (Some(b'?'), Some(_)) => dumb(&p[1..], &n[1..]),
                    (Some(a), Some(b)) if a == b => dumb(&p[1..], &n[1..]),
                    _ => false,
                }
            }
            prop_assert_eq!(fits(pattern.as_bytes(), name.as_bytes()), dumb(pattern.as_bytes(), name.as_bytes()));
        }
    }

    #[test]
    fn many_stars_cost_at_most_square() {
        let (pattern, name) = ("*a".repeat(2000), "a".repeat(1999));
        assert!(!fits(pattern.as_bytes(), name.as_bytes()));
    }
}
