//! `ERET` and `ESTO`: transfers with parameters beside the name. A word in front tells which: a part, an upload of a
//! node, or a module that filters bytes.

use super::{
    Command, Parsed, RawName, after_word, needed, number, parse_permissions, parse_time, refuse,
    text, word,
};
use std::time::Duration;

/// A program of the server that bytes go through, as the client names it:
/// `NAME="PARAMETERS"`, or `NAME`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Through {
    /// The server's name of the module.
    pub module: String,
    /// The module's parameters; may be empty.
    pub parameters: String,
}

impl std::fmt::Display for Through {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}=\"{}\"", self.module, self.parameters)
    }
}

impl std::str::FromStr for Through {
    type Err = &'static str;

    /// Reads `NAME` or `NAME=PARAMETERS`, of which a command line can be made.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (module, parameters) = text.split_once('=').unwrap_or((text, ""));
        let through = Self {
            module: module.into(),
            parameters: parameters.into(),
        };
        match parse_through(format!("{through} x").as_bytes()) {
            Ok((read, name)) if read == through && name == b"x" => Ok(read),
            _ => Err(
                "MODULE or MODULE=PARAMETERS: a name of A-Z a-z 0-9 . _ -, and at most \
                      1024 bytes on one line without quotation marks",
            ),
        }
    }
}

/// The facts about an upload in `ESTO GODWIT` and `SITE GODWIT FINISH`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Upload {
    /// Name of the upload.
    pub id: Option<String>,
    /// Length of the whole file.
    pub size: Option<u64>,
    /// Time of change to give it.
    pub modify: Option<Duration>,
    /// Permission bits to give it.
    pub mode: Option<u32>,
    /// The hash that the whole file must have, 64 lower-case hex digits.
    pub blake3: Option<String>,
    /// The end of data does not publish.
    pub hold: bool,
    /// Which existing files the upload may replace.
    pub how: UploadHow,
}

/// How an upload treats the existing file of its name.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[allow(missing_docs)]
pub enum UploadHow {
    New,
    #[default]
    Replace,
    InPlace,
}

pub(super) fn parse_eret(rest: &[u8]) -> Parsed<Command> {
    let (module, behind) = word(rest);
    if !module.eq_ignore_ascii_case(b"P") {
        let (through, name) = parse_through(rest)?;
        return Ok(Command::EretThrough { through, name });
    }
    let (offset, rest) = word(behind);
    let (length, name) = word(rest);
    let (offset, length) = (number(offset)?, number(length)?);
    let Some(end) = offset.checked_add(length) else {
        return refuse(501, "Offset and length are beyond any file.");
    };
    Ok(Command::Eret {
        part: offset..end,
        name: needed(name)?,
    })
}

pub(super) fn parse_esto(rest: &[u8]) -> Parsed<Command> {
    if let Some(rest) = after_word(rest, b"GODWIT=\"") {
        let Some(end) = rest.windows(2).position(|w| w == b"\" ") else {
            return refuse(501, "The parameters of the module have no end.");
        };
        let upload = parse_upload(&rest[..end])?;
        return Ok(Command::EstoGodwit {
            upload,
            name: needed(&rest[end + 2..])?,
        });
    }
    let (module, behind) = word(rest);
    if !module.eq_ignore_ascii_case(b"A") {
        let (through, name) = parse_through(rest)?;
        return Ok(Command::EstoThrough { through, name });
    }
    let (offset, name) = word(behind);
    Ok(Command::Esto {
        offset: number(offset)?,
        name: needed(name)?,
    })
}

/// `module="parameters" name` as GCT has it, whose parameters end at the next quotation
/// mark, or `module name`.
fn parse_through(rest: &[u8]) -> Parsed<(Through, RawName)> {
    let known = |b: &u8| b.is_ascii_alphanumeric() || b"._-".contains(b);
    let end = rest.iter().position(|b| !known(b)).unwrap_or(rest.len());
    let (module, behind) = rest.split_at(end);
    if module.is_empty() || end > MODULE_MAX {
        return refuse(501, "A module is named by at most 32 of A-Z a-z 0-9 . _ -");
    }
    let (parameters, name) = match behind.strip_prefix(b"=\"") {
        None => (&b""[..], behind),
        Some(quoted) => match quoted.iter().position(|&b| b == b'"') {
            Some(end) => (&quoted[..end], &quoted[end + 1..]),
            None => return refuse(501, "The parameters of the module have no end."),
        },
    };
    let Some(name) = name.strip_prefix(b" ") else {
        return refuse(
            501,
            "A module is told as NAME=\"PARAMETERS\" and then a pathname.",
        );
    };
    let parameters = match str::from_utf8(parameters) {
        Ok(text) if text.len() <= PARAMETERS_MAX && !text.contains(char::is_control) => text,
        _ => {
            let why = "Parameters of a module are at most 1024 bytes of UTF-8 on one line.";
            return refuse(501, why);
        }
    };
    let through = Through {
        module: text(module),
        parameters: parameters.into(),
    };
    Ok((through, needed(name)?))
}

/// Reads `size=N;modify=T;…`. Every fact is optional; an unknown one is refused, because its sender relies on it.
pub(super) fn parse_upload(facts: &[u8]) -> Parsed<Upload> {
    let mut upload = Upload::default();
    for fact in text(facts).split(';').filter(|fact| !fact.is_empty()) {
        let (key, value) = fact.split_once('=').unwrap_or((fact, ""));
        match key.to_ascii_lowercase().as_str() {
            "id" => upload.id = Some(parse_id(value)?),
            "size" => upload.size = Some(number(value.as_bytes())?),
            "modify" => upload.modify = Some(parse_time(value.as_bytes())?),
            "mode" => upload.mode = Some(parse_permissions(value.as_bytes())?),
            "blake3" => upload.blake3 = Some(parse_blake3(value)?),
            "hold" => upload.hold = value == "1",
            "how" => upload.how = parse_how(value)?,
            _ => return refuse(501, format!("Unknown fact {key}.")),
        }
    }
    Ok(upload)
}

pub(super) fn parse_id(value: &str) -> Parsed<String> {
    let known = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    // A name of dots alone would lead out of the directory of partials.
    let dots = value.bytes().all(|b| b == b'.');
    if dots || value.len() > 64 || !value.bytes().all(known) {
        return refuse(501, "An upload id is 1 to 64 of A-Z a-z 0-9 . _ -");
    }
    Ok(value.into())
}

fn parse_blake3(value: &str) -> Parsed<String> {
    if value.len() != 64 || !value.bytes().all(|b| b.is_ascii_hexdigit()) {
        return refuse(501, "A BLAKE3 digest has 64 hex digits.");
    }
    Ok(value.to_ascii_lowercase())
}

fn parse_how(value: &str) -> Parsed<UploadHow> {
    match value {
        "new" => Ok(UploadHow::New),
        "replace" => Ok(UploadHow::Replace),
        "inplace" => Ok(UploadHow::InPlace),
        _ => refuse(501, "how is new, replace or inplace."),
    }
}

const MODULE_MAX: usize = 32;
const PARAMETERS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::tests::{code, parse};

    #[test]
    fn an_upload_says_what_it_is() {
        let Command::EstoGodwit { upload, name } = parse(
            "ESTO GODWIT=\"size=5;id=a.b;mode=0644;hold=1;how=new;modify=20200101000000.5;\" a b",
        ) else {
            panic!()
        };
        assert_eq!(
            (upload.size, upload.mode, upload.hold),
            (Some(5), Some(0o644), true)
        );
        assert_eq!(
            upload.modify,
            Some(Duration::new(1_577_836_800, 500_000_000))
        );
        assert_eq!(
            (upload.id.as_deref(), name.as_slice()),
            (Some("a.b"), &b"a b"[..])
        );
        for bad in [
            "id=../x",
            "id=..",
            "id=",
            "size=x",
            "how=so",
            "blake3=00",
            "colour=red",
            "mode=9",
        ] {
            assert_eq!(code(&format!("ESTO GODWIT=\"{bad}\" x")), 501, "{bad}");
        }
        assert_eq!(code("ESTO GODWIT=\"size=5 x"), 501);
    }

    #[test]
    fn module_is_parsed_with_optional_parameters() {
        let through = |module: &str, parameters: &str| Through {
            module: module.into(),
            parameters: parameters.into(),
        };
        for (line, module, parameters, name) in [
            (r#"reduce="7 8" a b"#, "reduce", "7 8", "a b"),
            (r#"reduce="" x"#, "reduce", "", "x"),
            ("reduce x", "reduce", "", "x"),
            (r#"Re-1.2_c="é"  x"#, "Re-1.2_c", "é", " x"),
            (r#"head="5" a" b"#, "head", "5", "a\" b"),
        ] {
            let (through, name) = (through(module, parameters), name.as_bytes().to_vec());
            let (eret, esto) = (format!("ERET {line}"), format!("ESTO {line}"));
            let read = Command::EretThrough {
                through: through.clone(),
                name: name.clone(),
            };
            assert_eq!(parse(&eret), read, "{eret}");
            assert_eq!(
                parse(&esto),
                Command::EstoThrough { through, name },
                "{esto}"
            );
        }
        assert_eq!("reduce".parse(), Ok(through("reduce", "")));
        assert_eq!("reduce=a=b".parse(), Ok(through("reduce", "a=b")));
        for bad in ["", "=7", "re duce", "reduce=a\"b", "reduce=a\nb"] {
            assert!(bad.parse::<Through>().is_err(), "{bad}");
        }
        let long = format!("ERET reduce=\"{}\" x", "p".repeat(1025));
        for bad in [
            "ERET",
            "ERET reduce",
            "ERET reduce=7 x",
            "ERET reduce=\"7 x",
            "ERET reduce=\"7\"x",
            "ERET reduce=\"7\" ",
            "ERET reduce=\"7\u{7f}\" x",
            "ERET ../reduce x",
            "ERET =\"7\" x",
            "ERET a23456789012345678901234567890123 x",
            &long,
        ] {
            assert_eq!(code(bad), 501, "{bad}");
        }
    }
}
