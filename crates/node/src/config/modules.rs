//! `[modules.NAME]` of the configuration file: programs that bytes of files may go through.
//!
//! There are none by default. Each module lists the parameters that a client may give it.

use super::{
    ConfigKey, Error, Setting, ValueOrigin,
    keys::keys,
    sources::{distance, text_of},
    values::{parse, parse_bool},
};
use godwit_wire::server::ModuleDirection;
use std::{
    collections::BTreeMap,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    time::Duration,
};

/// A program that bytes of files may go through.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ModuleConfig {
    /// The name for clients.
    pub name: String,
    /// On which way.
    pub way: ModuleDirection,
    /// The program and its arguments; `{}` stands for the parameters.
    pub command: Vec<String>,
    /// The parameters that a client may give.
    pub parameters: Allowed,
    /// The description that clients receive.
    pub about: String,
    /// Whether the program sees only the system's files and `reads`.
    pub confined: bool,
    /// More files that the program may read.
    pub reads: Vec<PathBuf>,
    /// How long it may run.
    pub time: Duration,
    /// How long a processor may work for it.
    pub cpu_seconds: u64,
    /// How much address space it may have.
    pub memory_bytes: u64,
    /// How much it may write.
    pub out_bytes: u64,
    /// How many runs are allowed at once.
    pub at_once: usize,
}

/// Which parameters are allowed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Allowed {
    /// None at all.
    Nothing,
    /// Any text.
    Anything,
    /// Any text of these characters.
    Of(Vec<RangeInclusive<char>>),
}

impl Allowed {
    /// Tells why parameters are refused, if they are.
    pub fn refuses(&self, parameters: &str) -> Option<String> {
        let odd = match self {
            Self::Anything => None,
            Self::Nothing => return (!parameters.is_empty()).then(|| "it takes none".into()),
            Self::Of(known) => parameters
                .chars()
                .find(|odd| !known.iter().any(|range| range.contains(odd))),
        };
        odd.map(|odd| match odd {
            ' ' => "no space may stand there".into(),
            odd => format!("no {odd} may stand there"),
        })
    }

    /// Reads nothing, `*`, or characters like `[0-9,-]`.
    fn read(text: &str) -> Result<Self, String> {
        let inside = |text: &str| Some(text.strip_prefix('[')?.strip_suffix(']')?.to_owned());
        match text {
            "" => return Ok(Self::Nothing),
            "*" => return Ok(Self::Anything),
            _ => {}
        }
        let Some(inside) = inside(text).filter(|inside| !inside.is_empty()) else {
            return Err("* for any, or characters in brackets, like [0-9a-z,-]".into());
        };
        let all: Vec<char> = inside.chars().collect();
        let (mut ranges, mut left) = (Vec::new(), all.as_slice());
        while let [first, rest @ ..] = left {
            let (last, rest) = match rest {
                ['-', last, rest @ ..] => (last, rest),
                rest => (first, rest),
            };
            if last < first {
                return Err(format!("{last} comes before {first}"));
            }
            ranges.push(*first..=*last);
            left = rest;
        }
        Ok(Self::Of(ranges))
    }
}

/// Every key that a module has.
pub const MODULE_KEYS: &[ConfigKey] = keys! {
    "command" = "",
        "the program, by its whole path, and its arguments; {} is what the client says, GODWIT_PARAMETERS too";
    "direction" = "read",
        "read: what files are put through on their way to clients; write: on their way here";
    "parameters" = "",
        "what a client may say: empty nothing, * anything, [0-9,] any number of these";
    "about" = "",
        "what SITE GODWIT MODULES tells of it";
    "confined" = "true",
        "it sees the files of the system, those its command names and reads, writes none, and speaks no TCP";
    "reads" = "",
        "files and directories that it may read as well";
    "seconds" = "600",
        "from its start to its end";
    "cpu_seconds" = "600",
        "of a processor";
    "memory_bytes" = "1073741824",
        "of address space";
    "out_bytes" = "1099511627776",
        "that it may write";
    "at_once" = "4",
        "so many may run; one more is told 450";
};

/// The keys of one module in the file.
#[derive(Clone, Debug)]
pub(super) struct ModuleText {
    name: String,
    values: BTreeMap<&'static str, toml::Value>,
    origin: ValueOrigin,
}

/// Reads the table `modules`.
pub(super) fn read(modules: toml::Value, origin: &ValueOrigin) -> Result<Vec<ModuleText>, Error> {
    let wrong = |key: String, value: &toml::Value, why: &str| Error::BadValue {
        origin: origin.clone(),
        key: key.into(),
        value: text_of(value),
        why: why.into(),
    };
    let toml::Value::Table(modules) = modules else {
        return Err(wrong("modules".into(), &modules, "it is [modules.NAME]"));
    };
    let mut all = Vec::new();
    for (name, inside) in modules {
        let toml::Value::Table(inside) = inside else {
            let why = "a module is [modules.NAME], with its command and more";
            return Err(wrong(format!("modules.{name}"), &inside, why));
        };
        let mut values = BTreeMap::new();
        for (key, value) in inside {
            values.insert(known(&name, &key, origin)?, value);
        }
        all.push(ModuleText {
            name,
            values,
            origin: origin.clone(),
        });
    }
    Ok(all)
}

fn known(module: &str, key: &str, origin: &ValueOrigin) -> Result<&'static str, Error> {
    let all = || MODULE_KEYS.iter().map(|key| key.name);
    all()
        .find(|&name| name == key)
        .ok_or_else(|| Error::UnknownKey {
            origin: origin.clone(),
            key: format!("modules.{module}.{key}"),
            nearest: all()
                .min_by_key(|name| distance(name, key))
                .expect("there are keys"),
        })
}

impl ModuleText {
    /// Returns the module, ready to run.
    pub(super) fn module(&self) -> Result<ModuleConfig, Error> {
        if !is_name(&self.name) {
            let why = "a module is named by 1 to 32 of A-Z a-z 0-9 . _ -, and not P, A or GODWIT";
            return Err(self.wrong("", &self.name, why.into()));
        }
        let command = self.list("command");
        self.check_command(&command)?;
        Ok(ModuleConfig {
            name: self.name.clone(),
            way: self.one("direction", |text| match text {
                "read" => Ok(ModuleDirection::Read),
                "write" => Ok(ModuleDirection::Write),
                _ => Err("read or write".into()),
            })?,
            parameters: self.one("parameters", Allowed::read)?,
            about: self.one("about", |text| match text.contains(char::is_control) {
                true => Err("it is one line".into()),
                false => Ok(text.into()),
            })?,
            confined: self.one("confined", parse_bool)?,
            reads: self.list("reads").into_iter().map(Into::into).collect(),
            time: Duration::from_secs(self.count("seconds")?.min(TIME_MAX)),
            cpu_seconds: self.count("cpu_seconds")?,
            memory_bytes: self.count("memory_bytes")?,
            out_bytes: self.count("out_bytes")?,
            at_once: self.count("at_once")? as usize,
            command,
        })
    }

    /// Returns every key with its value and its source.
    pub(super) fn settings(&self) -> impl Iterator<Item = Setting> {
        MODULE_KEYS.iter().map(|key| Setting {
            key: format!("modules.{}.{}", self.name, key.name).into(),
            value: self.text(key.name),
            origin: match self.values.contains_key(key.name) {
                true => self.origin.clone(),
                false => ValueOrigin::Default,
            },
            about: key.about,
        })
    }

    fn check_command(&self, command: &[String]) -> Result<(), Error> {
        let wrong = |why: &str| Err(self.wrong("command", &command.join(" "), why.into()));
        match command.first() {
            None => wrong("what is to be run? [\"/usr/bin/head\", \"-c\", \"100\"]"),
            Some(program) if !Path::new(program).is_absolute() => {
                wrong("the program is named by its whole path: nothing is searched for")
            }
            Some(program) if !Path::new(program).is_file() => wrong("there is no such program"),
            Some(_) if command.iter().any(|word| word.contains('\0')) => {
                wrong("no argument can have a zero byte")
            }
            Some(_) => Ok(()),
        }
    }

    fn text(&self, key: &'static str) -> String {
        match self.values.get(key) {
            Some(value) => text_of(value),
            None => {
                let known = MODULE_KEYS.iter().find(|known| known.name == key);
                known.map_or("", |known| known.default).into()
            }
        }
    }

    /// An array of words, or one word.
    fn list(&self, key: &'static str) -> Vec<String> {
        match self.values.get(key) {
            Some(toml::Value::Array(items)) => items.iter().map(text_of).collect(),
            Some(other) => vec![text_of(other)],
            None => Vec::new(),
        }
    }

    fn one<T>(
        &self,
        key: &'static str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, Error> {
        let text = self.text(key);
        read(text.trim()).map_err(|why| self.wrong(key, &text, why))
    }

    fn count(&self, key: &'static str) -> Result<u64, Error> {
        self.one(key, |text| match parse::<u64>(text)? {
            0 => Err("must be at least 1".into()),
            count => Ok(count),
        })
    }

    fn wrong(&self, key: &'static str, value: &str, why: String) -> Error {
        let module = format!("modules.{}", self.name);
        Error::BadValue {
            origin: self.origin.clone(),
            key: match key {
                "" => module.into(),
                key => format!("{module}.{key}").into(),
            },
            value: value.into(),
            why,
        }
    }
}

fn is_name(name: &str) -> bool {
    let known = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    let is_taken = ["P", "A", "GODWIT"]
        .iter()
        .any(|taken| taken.eq_ignore_ascii_case(name));
    (1..=32).contains(&name.len()) && name.bytes().all(known) && !is_taken
}

/// A year: more than any deadline can be told.
const TIME_MAX: u64 = 365 * 86_400;

#[cfg(test)]
mod tests {
    use super::*;

    fn modules(text: &str) -> Result<Vec<ModuleConfig>, String> {
        let table: toml::Table = text.parse().unwrap();
        let said = read(table["modules"].clone(), &ValueOrigin::Default);
        let said = said.map_err(|error| error.to_string())?;
        let all: Result<Vec<_>, _> = said.iter().map(ModuleText::module).collect();
        all.map_err(|error| error.to_string())
    }

    fn error(text: &str) -> String {
        modules(text).unwrap_err()
    }

    #[test]
    fn module_needs_only_a_command() {
        let all = modules("[modules.first]\ncommand = [\"/usr/bin/head\", \"-c\", \"{}\"]\n");
        let [module] = &all.unwrap()[..] else {
            panic!("one was said");
        };
        assert_eq!(
            (&*module.name, module.way),
            ("first", ModuleDirection::Read)
        );
        assert_eq!(module.command, ["/usr/bin/head", "-c", "{}"]);
        assert_eq!(module.parameters, Allowed::Nothing);
        assert!(module.confined);
        assert_eq!((module.time.as_secs(), module.at_once), (600, 4));
    }

    #[test]
    fn module_that_cannot_run_is_refused() {
        for (text, why) in [
            ("[modules.x]\n", "what is to be run?"),
            ("[modules.x]\ncommand = \"head\"\n", "whole path"),
            (
                "[modules.x]\ncommand = \"/usr/bin/there is none\"\n",
                "no such program",
            ),
            (
                "[modules.p]\ncommand = \"/usr/bin/head\"\n",
                "not P, A or GODWIT",
            ),
            (
                "[modules.\"a b\"]\ncommand = \"/usr/bin/head\"\n",
                "is named by",
            ),
            ("[modules]\nx = 1\n", "a module is [modules.NAME]"),
            (
                "[modules.x]\ncomand = \"/usr/bin/head\"\n",
                "did you mean command?",
            ),
            (
                "[modules.x]\ncommand = \"/usr/bin/head\"\nseconds = 0\n",
                "at least 1",
            ),
            (
                "[modules.x]\ncommand = \"/usr/bin/head\"\nparameters = \"0-9\"\n",
                "in brackets",
            ),
            (
                "[modules.x]\ncommand = \"/usr/bin/head\"\ndirection = \"up\"\n",
                "read or write",
            ),
        ] {
            assert!(error(text).contains(why), "{text}: {}", error(text));
        }
    }

    #[test]
    fn parameters_are_of_what_is_allowed() {
        let allowed = |pattern| Allowed::read(pattern).unwrap();
        for (pattern, good, bad) in [
            ("", "", "x"),
            ("*", "any; thing", ""),
            ("[0-9]", "0123456789", "1 2"),
            ("[0-9,-]", "1-3,7", "a"),
            ("[-a]", "a-a", "b"),
            ("[a]", "aa", "A"),
        ] {
            assert_eq!(allowed(pattern).refuses(good), None, "{pattern}");
            if !bad.is_empty() {
                assert!(allowed(pattern).refuses(bad).is_some(), "{pattern} {bad}");
            }
        }
        for bad in ["[]", "0-9", "[9-0]", "["] {
            assert!(Allowed::read(bad).is_err(), "{bad}");
        }
    }
}
