//! Rust text without what is not code: comments and literals become blanks of
//! the same length, so that lines keep their numbers. A scanner, not a parser.

/// Returns `text` with comments, strings and character literals blanked.
pub(crate) fn only_code(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let word_before = code.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let skip = match skipped(rest) {
            // `r` of `for"…"` begins no raw string; nor does the `'` of `x'`.
            Some(_) if word_before && first.is_alphanumeric() => None,
            skip => skip,
        };
        match skip {
            Some(len) => {
                let (gone, after) = rest.split_at(len);
                code.extend(gone.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
                rest = after;
            }
            None => {
                code.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    code
}

/// Returns the text up to the unit tests of a file.
pub(crate) fn without_tests(code: &str) -> &str {
    let tests = code.find("#[cfg(test)]\nmod tests");
    &code[..tests.unwrap_or(code.len())]
}

/// Returns the words of a line of code: identifiers and key words.
pub(crate) fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
}

/// Divides an identifier: `NameOfAThing` and `name_of_a_thing` give the same.
pub(crate) fn parts(identifier: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for c in identifier.chars() {
        let last = parts.last_mut().expect("there is always one");
        let begins = c == '_' || (c.is_uppercase() && last.ends_with(char::is_lowercase));
        if begins {
            parts.push(String::new());
        }
        if c != '_' {
            let last = parts.last_mut().expect("there is always one");
            last.extend(c.to_lowercase());
        }
    }
    parts
}

/// How many bytes at the start of `text` are a comment or literal.
fn skipped(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    if text.starts_with("/*") {
        return Some(block_comment(text));
    }
    let after_prefix = text.trim_start_matches(['b', 'c']);
    if text.len() - after_prefix.len() <= 1 {
        let prefix = text.len() - after_prefix.len();
        if let Some(raw) = after_prefix.strip_prefix('r') {
            let hashes = raw.len() - raw.trim_start_matches('#').len();
            if raw[hashes..].starts_with('"') {
                let close = format!("\"{}", "#".repeat(hashes));
                let body = hashes + 1;
                let end = raw[body..].find(&close).map(|at| body + at + close.len());
                return Some(prefix + 1 + end.unwrap_or(raw.len()));
            }
        }
        if after_prefix.starts_with('"') {
            return Some(prefix + quoted(after_prefix, '"'));
        }
        if after_prefix.starts_with('\'') && is_char(after_prefix) {
            return Some(prefix + quoted(after_prefix, '\''));
        }
    }
    None
}

fn block_comment(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// The length of a literal that begins with `quote` and may contain escapes.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Tells `'a'` from the lifetime `'a`.
fn is_char(text: &str) -> bool {
    let mut chars = text.chars().skip(1);
    let two = (chars.next(), chars.next());
    matches!(two, (Some('\\'), _) | (Some(_), Some('\'')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_no_code() {
        let text = r##"let a = "x // unsafe"; // unsafe
let b = r#"unsafe "quoted" "#; /* unsafe /* nested */ unsafe */ let c = b'"';
fn f<'a>(x: &'a str) -> char { '\'' } // the lifetime opens no literal
let d = "a \" unsafe";"##;
        let code = only_code(text);
        assert!(!code.contains("unsafe"), "{code}");
        assert_eq!(code.lines().count(), text.lines().count());
        for kept in [
            "let a =",
            "let b =",
            "let c =",
            "fn f<'a>(x: &'a str)",
            "let d =",
        ] {
            assert!(code.contains(kept), "{kept} in {code}");
        }
    }

    #[test]
    fn identifiers_divide_into_words() {
        assert_eq!(parts("FileHandler"), ["file", "handler"]);
        assert_eq!(parts("file_handler"), ["file", "handler"]);
        assert_eq!(parts("HTTPHandlers").last().unwrap(), "handlers");
    }
}
