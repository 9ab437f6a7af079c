//! Rights: rules for users, deeds and paths.
//!
//! The first rule that fits the user, the deed and the path decides; without one the answer is no.
//! Accounts of the machine, quotas and file modes are checked elsewhere, after the rights.

use crate::{
    Error, Identity, Result,
    credential::read,
    identity::{is_name, spelled},
    pattern::fits,
};
use serde::Deserialize;
use std::{
    ffi::OsStr,
    fmt,
    os::unix::ffi::OsStrExt,
    path::{Component, Path},
};

/// Rules in order. Cheap to ask.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Rights {
    rules: Vec<AccessRule>,
}

/// One rule.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AccessRule {
    number: usize,
    who: Vec<RuleSubject>,
    under: Vec<Under>,
    deeds: Vec<Permission>,
    allows: bool,
}

/// Operation that a client asks for. A rename deletes one name and creates another.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Permission {
    /// Bytes of a file, its digest.
    Read,
    /// Other bytes, times or modes for a file that exists.
    Write,
    /// A name that was not there.
    Create,
    /// A name away.
    Delete,
    /// Names and facts.
    List,
    /// Copy a file of another server into the local depot. The path is the URL's name below
    /// `/godwit/`. Not among [`PERMISSIONS`]: a right to all deeds must not cause fetches.
    Stage,
    /// A program beside a file, as the account of the node. Not among [`PERMISSIONS`] either.
    Run,
}

/// Answer to a question.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Ruling<'a> {
    /// Whether the deed is allowed.
    pub allowed: bool,
    /// Rule that decided; `None`: no rule fits.
    pub rule: Option<&'a AccessRule>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum RuleSubject {
    Anyone,
    Anonymous,
    Identified,
    Called(String),
}

/// A place and all below it: its components, each a pattern.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Under {
    text: String,
    parts: Vec<String>,
}

/// Says in one line where a text is not as TOML has it, and why.
pub fn not_toml(text: &str, error: &toml::de::Error) -> String {
    let why = error.message().replace('\n', ", ");
    match error.span().and_then(|span| text.get(..span.start)) {
        Some(before) => format!("line {}: {why}", before.matches('\n').count() + 1),
        None => why,
    }
}

impl Rights {
    /// Reads the rules of a file.
    pub fn read(path: &Path) -> Result<Self> {
        let bad = |what: String| Error::bad_file(path, what);
        let text = String::from_utf8(read(path)?).map_err(|_| bad("is not text".into()))?;
        Self::parse(&text).map_err(bad)
    }

    /// Reads rules as TOML has them, a `[[rule]]` each.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: RulesFile = toml::from_str(text).map_err(|error| not_toml(text, &error))?;
        let rules = file.rule.into_iter().enumerate();
        let rules = rules.map(|(at, written)| written.rule(at + 1));
        Ok(Self {
            rules: rules.collect::<Result<_, _>>()?,
        })
    }

    /// Allows every client every deed: the rights of a node without a file of rights.
    pub fn all() -> Self {
        let rule = AccessRule {
            number: 1,
            who: vec![RuleSubject::Anyone],
            under: vec![Under::parse("/").expect("the root is a place")],
            deeds: PERMISSIONS.to_vec(),
            allows: true,
        };
        Self { rules: vec![rule] }
    }

    /// Decides. `who` is `None` for a client without a proved name. The path is within the export,
    /// with its links resolved.
    pub fn decide(&self, who: Option<&Identity>, deed: Permission, path: &Path) -> Ruling<'_> {
        let rule = parts(path).and_then(|path| {
            let speaks = |rule: &&AccessRule| rule.speaks_of(who, deed, &path);
            self.rules.iter().find(speaks)
        });
        Ruling {
            allowed: rule.is_some_and(|rule| rule.allows),
            rule,
        }
    }

    /// Returns the first rule, for any client, that fits a place below a path and not the path
    /// itself. A renamed directory would move its files under other rules.
    pub fn of_below(&self, path: &Path) -> Option<&AccessRule> {
        let path = parts(path)?;
        let is_below = |under: &Under| {
            under.parts.len() > path.len() && under.begins_as(Permission::List, &path)
        };
        let is_of_what_is_served =
            |rule: &&AccessRule| !matches!(rule.deeds[..], [Permission::Stage | Permission::Run]);
        let mut rules = self.rules.iter().filter(is_of_what_is_served);
        rules.find(|rule| rule.under.iter().any(is_below))
    }

    /// Tells whether a client may do the deed at any path.
    pub fn may_somewhere(&self, who: Option<&Identity>, deed: Permission) -> bool {
        let allows = |rule: &AccessRule| rule.allows && rule.deeds.contains(&deed);
        let mut rules = self.rules.iter().filter(|rule| allows(rule));
        rules.any(|rule| rule.who.iter().any(|one| one.is(who)))
    }

    /// Returns the rules in their order.
    pub fn rules(&self) -> &[AccessRule] {
        &self.rules
    }
}

impl Ruling<'_> {
    /// Returns the reason, for a user who may know the rules.
    pub fn because(&self) -> String {
        match self.rule {
            Some(rule) => format!("rule {}: {rule}", rule.number()),
            None => "no rule speaks of it, and what is not allowed is denied".into(),
        }
    }

    /// Returns the reason for a refusal, in words that any client may see.
    pub fn refusal(&self) -> String {
        match self.rule {
            Some(rule) => format!("rule {} of the rights denies it", rule.number()),
            None => "no rule of the rights allows it".into(),
        }
    }
}

impl AccessRule {
    /// Returns its place among the rules, from 1.
    pub fn number(&self) -> usize {
        self.number
    }

    fn speaks_of(&self, who: Option<&Identity>, deed: Permission, path: &[&OsStr]) -> bool {
        self.deeds.contains(&deed)
            && self.under.iter().any(|under| under.covers(deed, path))
            && self.who.iter().any(|one| one.is(who))
    }
}

/// A sentence: `alice may read and list under /data`.
impl fmt::Display for AccessRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who: Vec<_> = self.who.iter().map(ToString::to_string).collect();
        let deeds: Vec<_> = self.deeds.iter().map(|deed| deed.as_str()).collect();
        let under: Vec<_> = self.under.iter().map(|under| under.text.as_str()).collect();
        let may = if self.allows { "may" } else { "may never" };
        write!(
            f,
            "{} {may} {} under {}",
            who.join(" or "),
            deeds.join(", "),
            under.join(" or ")
        )
    }
}

impl Permission {
    /// Returns the word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Create => "create",
            Self::Delete => "delete",
            Self::List => "list",
            Self::Stage => "stage",
            Self::Run => "run",
        }
    }
}

/// All deeds on served files.
pub const PERMISSIONS: [Permission; 5] = [
    Permission::Read,
    Permission::Write,
    Permission::Create,
    Permission::Delete,
    Permission::List,
];

impl RuleSubject {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "anyone" => Ok(Self::Anyone),
            "anonymous" => Ok(Self::Anonymous),
            "identified" => Ok(Self::Identified),
            subject if is_name(subject) => Ok(Self::Called(spelled(subject))),
            other => Err(format!(
                "{other:?} is nobody: a subject begins with a slash, a principal has a realm behind @, or say anyone, identified or anonymous"
            )),
        }
    }

    fn is(&self, who: Option<&Identity>) -> bool {
        match (self, who) {
            (Self::Anyone, _) | (Self::Anonymous, None) | (Self::Identified, Some(_)) => true,
            (Self::Called(pattern), Some(who)) => {
                // A certificate may end like a principal: *@REALM is not about it.
                let is_alike = pattern.starts_with('/') == who.subject().starts_with('/');
                is_alike && fits(pattern.as_bytes(), spelled(who.subject()).as_bytes())
            }
            _ => false,
        }
    }
}

impl fmt::Display for RuleSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Anyone => "anyone",
            Self::Anonymous => "anonymous",
            Self::Identified => "identified",
            Self::Called(subject) => subject,
        })
    }
}

impl Under {
    fn parse(text: &str) -> Result<Self, String> {
        if !text.starts_with('/') {
            return Err(format!("{text:?} is no place: it begins with a slash"));
        }
        let Some(parts) = parts(Path::new(text)) else {
            return Err(format!("{text:?} leads upward"));
        };
        if text.contains("**") {
            return Err(format!(
                "{text:?} is no place: * stands for one name, and a rule speaks of all that is below"
            ));
        }
        Ok(Self {
            text: text.into(),
            parts: parts
                .iter()
                .map(|part| part.to_string_lossy().into_owned())
                .collect(),
        })
    }

    fn covers(&self, deed: Permission, path: &[&OsStr]) -> bool {
        self.parts.len() <= path.len() && self.begins_as(deed, path)
    }

    /// Tells whether patterns and names fit as far as there are both.
    fn begins_as(&self, deed: Permission, path: &[&OsStr]) -> bool {
        let mut pairs = self.parts.iter().zip(path).enumerate();
        pairs.all(|(nth, (pattern, part))| {
            let (pattern, part) = (pattern.as_bytes(), part.as_bytes());
            match deed {
                // A staged file belongs to a host, whose name ignores case.
                Permission::Stage if nth == HOST => {
                    fits(&pattern.to_ascii_lowercase(), &part.to_ascii_lowercase())
                }
                _ => fits(pattern, part),
            }
        })
    }
}

/// Returns the names of a path from the root; `None` if the path leads upward, which is always
/// refused.
fn parts(path: &Path) -> Option<Vec<&OsStr>> {
    let mut parts = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => parts.push(name),
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    Some(parts)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RulesFile {
    #[serde(default)]
    rule: Vec<WrittenRule>,
}

/// A rule as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRule {
    who: OneOrMore,
    #[serde(default)]
    under: Option<OneOrMore>,
    #[serde(default)]
    may: Option<OneOrMore>,
    #[serde(default)]
    never: Option<OneOrMore>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl OneOrMore {
    fn texts(&self) -> &[String] {
        match self {
            Self::One(text) => std::slice::from_ref(text),
            Self::More(texts) => texts,
        }
    }
}

impl WrittenRule {
    fn rule(self, number: usize) -> Result<AccessRule, String> {
        self.parse(number)
            .map_err(|what| format!("rule {number}: {what}"))
    }

    fn parse(self, number: usize) -> Result<AccessRule, String> {
        let (deeds, allows) = match (&self.may, &self.never) {
            (Some(deeds), None) => (deeds, true),
            (None, Some(deeds)) => (deeds, false),
            _ => return Err("says either what they may, or what they may never do".into()),
        };
        let everywhere = OneOrMore::One("/".into());
        let under = self.under.as_ref().unwrap_or(&everywhere);
        let rule = AccessRule {
            number,
            who: parse(&self.who, RuleSubject::parse)?,
            under: parse(under, Under::parse)?,
            deeds: parse(deeds, deeds_of)?.concat(),
            allows,
        };
        match rule.who.is_empty() || rule.under.is_empty() || rule.deeds.is_empty() {
            true => Err("an empty list speaks of nothing".into()),
            false => Ok(rule),
        }
    }
}

fn parse<T>(texts: &OneOrMore, one: fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    texts.texts().iter().map(|text| one(text)).collect()
}

fn deeds_of(text: &str) -> Result<Vec<Permission>, String> {
    if text == "all" {
        return Ok(PERMISSIONS.to_vec());
    }
    let all = PERMISSIONS
        .into_iter()
        .chain([Permission::Stage, Permission::Run]);
    let known = all.into_iter().find(|deed| deed.as_str() == text);
    known.map(|deed| vec![deed]).ok_or_else(|| {
        format!(
            "{text:?} is no deed; there are read, write, create, delete and list, which all stands for, stage and run"
        )
    })
}

/// Index of the host in the name of a URL: `/godwit/HOST/path`.
const HOST: usize = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RULES: &str = r#"
        [[rule]]
        who = "/O=Lab/CN=mallory"
        never = "all"

        [[rule]]
        who = "anyone"
        may = ["read", "list"]
        under = "/public"

        [[rule]]
        who = ["/O=Lab/CN=alice", "/O=Grid/*"]
        may = "all"
        under = ["/home/alice", "/scratch/*/shared"]
    "#;

    fn decided(who: Option<&str>, deed: Permission, path: &str) -> (bool, Option<usize>) {
        let rights = Rights::parse(RULES).unwrap();
        let who = who.map(Identity::named);
        let decision = rights.decide(who.as_ref(), deed, Path::new(path));
        (decision.allowed, decision.rule.map(AccessRule::number))
    }

    #[test]
    fn realm_rule_ignores_certificates() {
        let rule = "[[rule]]\nwho = \"*@LAB\"\nmay = \"read\"";
        let rights = Rights::parse(rule).unwrap();
        let may = |who: &str| {
            let who = Identity::named(who);
            rights
                .decide(Some(&who), Permission::Read, Path::new("/a"))
                .allowed
        };
        assert!(may("alice@LAB") && may("alice/admin@LAB"));
        for other in ["alice@LAB.EVIL", "/O=Evil/CN=alice@LAB", "alice"] {
            assert!(!may(other), "{other}");
        }
        Rights::parse("[[rule]]\nwho = \"@LAB\"\nmay = \"read\"").unwrap_err();
    }

    #[test]
    fn first_fitting_rule_decides() {
        let alice = Some("/O=Lab/CN=alice");
        for (who, deed, path, answer) in [
            (None, Permission::Read, "/public/a", (true, Some(2))),
            (None, Permission::List, "/public", (true, Some(2))),
            (None, Permission::Write, "/public/a", (false, None)),
            (None, Permission::Read, "/publicity", (false, None)),
            (None, Permission::Read, "/", (false, None)),
            (alice, Permission::Delete, "/home/alice/x", (true, Some(3))),
            (alice, Permission::Delete, "/home/bob/x", (false, None)),
            (
                alice,
                Permission::Write,
                "/scratch/s1/shared/x",
                (true, Some(3)),
            ),
            (
                alice,
                Permission::Write,
                "/scratch/s1/mine/x",
                (false, None),
            ),
            (
                Some("/O=Grid/CN=x"),
                Permission::Create,
                "/home/alice/y",
                (true, Some(3)),
            ),
            (
                Some("/O=Lab/CN=mallory"),
                Permission::Read,
                "/public/a",
                (false, Some(1)),
            ),
            (alice, Permission::Read, "/home/alice/../bob", (false, None)),
            (
                alice,
                Permission::Read,
                "/public/../../public",
                (false, None),
            ),
            (alice, Permission::Read, "//public/./a", (true, Some(2))),
        ] {
            assert_eq!(decided(who, deed, path), answer, "{who:?} {deed:?} {path}");
        }
    }

    #[test]
    fn empty_rules_deny_and_all_allows() {
        for deed in PERMISSIONS {
            assert!(!Rights::default().decide(None, deed, Path::new("/")).allowed);
            assert!(Rights::all().decide(None, deed, Path::new("/x/y")).allowed);
        }
    }

    #[test]
    fn whoever_may_do_all_has_nothing_fetched() {
        let rules = "[[rule]]\nwho = \"/CN=a\"\nmay = \"all\"\n\
                     [[rule]]\nwho = \"/CN=b\"\nmay = \"stage\"\nunder = \"/godwit/lab/data\"";
        let rights = Rights::parse(rules).unwrap();
        let may = |who: &str, path: &str| {
            let who = Some(Identity::named(who));
            let decision = rights.decide(who.as_ref(), Permission::Stage, Path::new(path));
            (
                decision.allowed,
                rights.may_somewhere(who.as_ref(), Permission::Stage),
            )
        };
        assert_eq!(may("/CN=a", "/godwit/lab/data/f"), (false, false));
        assert_eq!(may("/CN=b", "/godwit/lab/data/f"), (true, true));
        assert_eq!(may("/CN=b", "/godwit/lab/other"), (false, true));
        assert_eq!(may("/CN=b", "/godwit/lab:1/data/f"), (false, true));
        let rights = Rights::parse(&rules.replace("/lab/", "/Lab/")).unwrap();
        let may = |path: &str| {
            let b = Identity::named("/CN=b");
            let decision = rights.decide(Some(&b), Permission::Stage, Path::new(path));
            decision.allowed
        };
        assert!(may("/godwit/lab/data/f") && !may("/godwit/lab/Data/f"));
        let rights = Rights::parse(rules).unwrap();
        let b = Identity::named("/CN=b");
        let read = rights.decide(Some(&b), Permission::Read, Path::new("/godwit/lab/data/f"));
        assert!(!read.allowed);
        // The rule's place is no place of served files.
        assert_eq!(rights.of_below(Path::new("/godwit")), None);
    }

    #[test]
    fn rule_below_is_found_from_above() {
        let rights = Rights::parse(RULES).unwrap();
        for (path, rule) in [
            ("/", Some(2)),
            ("/public", None),
            ("/public/a", None),
            ("/home", Some(3)),
            ("/scratch/s1", Some(3)),
            ("/scratch/s1/shared", None),
            ("/scratch/s1/mine", None),
        ] {
            let found = rights.of_below(Path::new(path)).map(AccessRule::number);
            assert_eq!(found, rule, "{path}");
        }
    }

    #[test]
    fn a_rule_reads_as_a_sentence() {
        let rights = Rights::parse(RULES).unwrap();
        let said: Vec<_> = rights.rules().iter().map(ToString::to_string).collect();
        assert_eq!(said[1], "anyone may read, list under /public");
        assert_eq!(
            said[0],
            "/O=Lab/CN=mallory may never read, write, create, delete, list under /"
        );
    }

    #[test]
    fn error_names_the_rule() {
        for (text, said) in [
            (
                "[[rule]]\nwho = \"alice\"\nmay = \"read\"",
                "rule 1: \"alice\" is nobody",
            ),
            (
                "[[rule]]\nwho = \"anyone\"\nmay = \"fly\"",
                "rule 1: \"fly\" is no deed",
            ),
            ("[[rule]]\nwho = \"anyone\"", "rule 1: says either"),
            (
                "[[rule]]\nwho = []\nmay = \"read\"",
                "rule 1: an empty list",
            ),
            (
                "[[rule]]\nwho = \"anyone\"\nmay = \"read\"\nunder = \"../x\"",
                "rule 1: \"../x\" is no place",
            ),
            (
                "[[rule]]\nwho = \"anyone\"\nmay = \"read\"\nunder = \"/../x\"",
                "leads upward",
            ),
            (
                "[[rule]]\nwho = \"anyone\"\nnever = \"all\"\nunder = \"/a/**/x\"",
                "* stands for one name",
            ),
            (
                "[[rule]]\nwho = \"anyone\"\nmay = \"read\"\nwhere = \"/\"",
                "where",
            ),
            ("[rule]", ""),
        ] {
            let error = Rights::parse(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn decisions_are_those_of_the_dumbest_reading(
            rules in proptest::collection::vec((0usize..3, 0usize..5, 0usize..4, any::<bool>()), 0..6),
            who in 0usize..3, deed in 0usize..5, path in 0usize..5,
        ) {
            const PEOPLE: [Option<&str>; 3] = [None, Some("/CN=a"), Some("/CN=b")];
            const NAMES: [&str; 3] = ["anonymous", "/CN=a", "identified"];
            const PLACES: [&str; 4] = ["/", "/x", "/x/y", "/z"];
            const PATHS: [&str; 5] = ["/", "/x", "/x/y/z", "/xy", "/z"];
            let mut text = String::new();
            for (name, deed, place, allows) in &rules {
                let verb = if *allows { "may" } else { "never" };
                text += &format!(
                    "[[rule]]\nwho = {:?}\n{verb} = {:?}\nunder = {:?}\n",
                    NAMES[*name], PERMISSIONS[*deed].as_str(), PLACES[*place]
                );
            }
            let is_called = |name: usize| match name {
                0 => who == 0,
                1 => who == 1,
                _ => who != 0,
            };
            let is_under = |place: usize| {
                PLACES[place] == "/" || PATHS[path] == PLACES[place] || PATHS[path].starts_with(&format!("{}/", PLACES[place]))
            };
            let first = rules.iter().position(|&(name, done, place, _)| is_called(name) && done == deed && is_under(place));
            let rights = Rights::parse(&text).unwrap();
            let who = PEOPLE[who].map(Identity::named);
            let decision = rights.decide(who.as_ref(), PERMISSIONS[deed], Path::new(PATHS[path]));
            prop_assert_eq!(decision.rule.map(|rule| rule.number() - 1), first);
            prop_assert_eq!(decision.allowed, first.is_some_and(|first| rules[first].3));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,200}") {
            let _ = Rights::parse(&text);
        }
    }
}
