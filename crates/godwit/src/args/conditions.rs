//! Conditions on files, as options that several verbs share.

use crate::units;
use clap::{
    Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches,
    builder::{OsStringValueParser, TypedValueParser},
};
use godwit_catalog::{Condition, Conditions, Is};
use godwit_sys::why;
use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::Path,
    time::{Duration, UNIX_EPOCH},
};

/// Conditions from the command line.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConditionArgs(pub(crate) Conditions);

/// Each option, its value, and its help.
const OPTIONS: [(&str, &str, &str); 6] = [
    (
        "name",
        "PATTERN",
        "The last part of the path matches a shell pattern",
    ),
    (
        "size",
        "SIZE",
        "Its size is this, more (+) or less (-): 4096, +10M, -1G",
    ),
    (
        "newer",
        "DATE_OR_FILE",
        "It changed after a date (2026-11-21T14:05:09; UTC) or a local file",
    ),
    (
        "attr",
        "KEY[=VALUE]",
        "It has this attribute in the catalog (godwit attr)",
    ),
    (
        "copies",
        "N",
        "So many sites have a whole copy, more (+) or fewer (-): 1, +1, -2",
    ),
    ("at", "SITE", "This site has a whole copy"),
];

impl Args for ConditionArgs {
    fn augment_args(command: Command) -> Command {
        OPTIONS
            .into_iter()
            .fold(command, |command, (id, value, help)| {
                let read = OsStringValueParser::new().try_map(move |text| read(id, &text));
                let arg = Arg::new(id).long(id).value_name(value).help(help);
                let arg = arg.action(ArgAction::Append).allow_hyphen_values(true);
                command.arg(arg.help_heading("Which files").value_parser(read))
            })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ConditionArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let ids = OPTIONS.iter().map(|(id, ..)| *id);
        let all = ids.filter_map(|id| matches.get_many::<Condition>(id));
        Ok(Self(Conditions(all.flatten().cloned().collect())))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Reads the value of an option.
fn read(id: &str, text: &OsStr) -> Result<Condition, String> {
    if id == "name" {
        return Ok(Condition::Name(text.as_bytes().to_vec()));
    }
    if id == "newer" {
        return newer(text).map(Condition::Newer);
    }
    let text = text.to_str().ok_or("it is not UTF-8")?;
    Ok(match id {
        "size" => Condition::Size(Is::read(text, units::parse_size)?),
        "copies" => Condition::Copies(Is::read(text, count)?),
        "attr" => Condition::attribute(text),
        _ => Condition::At(text.into()),
    })
}

fn count(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("{text:?} is no count; write it like 2, +1 or -2"))
}

fn newer(text: &OsStr) -> Result<Duration, String> {
    if let Some(date) = text
        .to_str()
        .and_then(|text| units::parse_instant(text).ok())
    {
        return Ok(date);
    }
    let changed = std::fs::metadata(Path::new(text)).and_then(|meta| meta.modified());
    let changed = changed.map_err(|cause| {
        format!(
            "neither a date like 2026-11-21 nor a file ({})",
            why(&cause)
        )
    })?;
    Ok(changed.duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// Adds the second dash to these options, and to those of `find`: users of find(1) type `-name`.
pub(crate) fn long_options(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let mut words = arguments.iter().skip(1);
    let verb = loop {
        match words.next().map(|word| word.as_bytes()) {
            Some(b"--catalog" | b"--log-format") => drop(words.next()),
            Some(option) if option.starts_with(b"-") => {}
            verb => break verb,
        }
    };
    let mut known: Vec<&str> = OPTIONS.iter().map(|(id, ..)| *id).collect();
    match verb {
        Some(b"find") => known.extend(["type", "maxdepth", "print0"]),
        Some(b"replicate") => {}
        _ => return arguments,
    }
    for argument in &mut arguments {
        if argument == "--" {
            break;
        }
        let option = argument.as_bytes().strip_prefix(b"-").unwrap_or_default();
        if known.iter().any(|known| known.as_bytes() == option) {
            *argument = OsString::from(format!("-{}", argument.to_string_lossy()));
        }
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_may_have_one_dash() {
        let of = |line: &str| {
            long_options(line.split(' ').map(OsString::from).collect()).join(OsStr::new(" "))
        };
        for (line, expected) in [
            ("godwit find -name x", "godwit find --name x"),
            (
                "godwit --json find . -type f",
                "godwit --json find . --type f",
            ),
            (
                "godwit --catalog x replicate -copies 1",
                "godwit --catalog x replicate --copies 1",
            ),
            ("godwit replicate -type f", "godwit replicate -type f"),
            ("godwit ls -name", "godwit ls -name"),
            ("godwit find -- -name", "godwit find -- -name"),
        ] {
            assert_eq!(of(line), expected);
        }
    }

    #[test]
    fn words_become_conditions() {
        let read = |id, text| read(id, OsStr::new(text));
        assert_eq!(
            read("size", "+10M"),
            Ok(Condition::Size(Is::MoreThan(10 << 20)))
        );
        assert_eq!(read("copies", "-2"), Ok(Condition::Copies(Is::LessThan(2))));
        assert!(read("copies", "few").is_err());
        assert!(read("newer", "/no/such/file").is_err());
    }
}
