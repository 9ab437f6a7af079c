//! `godwit auth`: the rights of subjects and the rules behind them; passwords and tokens for users
//! without a certificate.

use super::catalog;
use crate::out::{CliError, Facts, Run, Screen, facts};
use clap::{Args, Subcommand, ValueEnum};
use godwit_catalog::{CatalogRule as Ruled, Change};
use godwit_farm::is_of_rights;
use godwit_node::read_right;
use godwit_store::Error;
use godwit_sys::{ask_secret, is_typed};
use godwit_trust::{
    Credential, Gridmap, Identity, Permission, Rights, Ruling, is_name, new_token, password_line,
};
use godwit_wire::{door::call::Name, server::resolve};
use serde_json::json;
use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// Show who may do what, and by which rule; make passwords and tokens
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit auth explain --rights rights.toml --as anonymous read /data/run7.root
  godwit auth explain --rights rights.toml --as /O=Lab/CN=alice read /data --json
  printf 'open sesame' | godwit auth password alice >> passwords
  godwit auth token alice >> passwords

A token is said this once, on standard error; only the line is standard output, of both.

A node with --passwords FILE lets in who says the name and the password, or a token of theirs,
under TLS (AUTH TLS). The file has a line each, holds neither passwords nor tokens, must be
mode 0600, and counts as it is at each login. A token may be said with the name token too.
In rules of rights they are /O=godwit/OU=password/CN=NAME.

A file of rights is TOML, a [[rule]] each; the first that speaks of the person, the deed and
the path decides, and where none does the answer is no:

  [[rule]]
  who = [\"/O=Lab/CN=alice\", \"/O=Grid/*\"]   # subjects, principals (alice@REALM),
                                            # or anyone, identified, anonymous
  may = [\"read\", \"list\"]                   # read write create delete list, or all; stage, run
  under = \"/data/*/public\"                 # and all below; everywhere without it

  [[rule]]
  who = \"/O=Lab/CN=mallory\"
  never = \"all\"

Renaming deletes one name and creates another. A node with --rights FILE obeys them, behind
all links; the modes of files and the account's quotas are asked after them.

Exit status: 0 it is allowed; 13 it is not; 2 a file that is not understood.")]
pub(crate) struct AuthArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Say whether a subject may do something, and which rule decides
    #[command(
        after_help = "Examples:\n  godwit auth explain --rights rights.toml --as anonymous read /data/run7.root\n  godwit auth explain --rights rights.toml --as /O=Lab/CN=alice read /data"
    )]
    Explain(ExplainArgs),
    /// Ask for a password, or read it from standard input, and print the line for --passwords
    #[command(
        after_help = "Examples:\n  printf 'open sesame' | godwit auth password alice >> passwords\n  printf 'open sesame' | godwit auth password bob > bob.line"
    )]
    Password(Named),
    /// Make a token: print the line for --passwords, and say the token on standard error, this once
    #[command(
        after_help = "Examples:\n  godwit auth token alice >> passwords\n  godwit auth token robot 2> token >> passwords"
    )]
    Token(Named),
    /// Keep in the catalog a rule that allows something with the names below a collection
    #[command(after_help = "\
Examples:
  godwit auth allow identified read,list grid:/run7
  godwit auth allow /O=godwit/OU=peer/CN=laptop all grid:/run7

The rule that was said last is asked first. Below a collection with a rule, what none allows is
denied. The node that serves the catalog obeys at the next call, a site (godwit node --site NAME)
within ten seconds. godwit auth rules NAME shows the rules, godwit rule rm NAME RULE removes one.")]
    Allow(Right),
    /// Keep in the catalog a rule that denies something with the names below a collection
    #[command(after_help = "\
Examples:
  godwit auth never anyone write,create,delete grid:/run7
  godwit auth never /O=Lab/CN=mallory all grid:/run7

The first example seals a collection, also for the verbs of its owner. Who has the file or the
account of the database can remove the rule, and can change the tables without godwit.")]
    Never(Right),
    /// List the rights that the catalog keeps, in the order in which they are asked
    #[command(
        after_help = "Examples:\n  godwit auth rules grid:/run7\n  godwit auth rules grid:/ --json"
    )]
    Rules {
        /// The collection; the rules above it and below it are listed too
        #[arg(value_name = "grid:/NAME")]
        name: OsString,
    },
}

#[derive(Args, Debug)]
struct Right {
    /// Whom: a subject, a principal, or anyone, identified, anonymous
    #[arg(value_name = "WHO")]
    who: String,
    /// What: read, write, create, delete, list, with commas between, or all
    #[arg(value_name = "DEEDS")]
    deeds: String,
    /// The collection
    #[arg(value_name = "grid:/NAME")]
    name: OsString,
}

#[derive(Args, Debug)]
struct Named {
    /// Of whom: letters, digits and . _ - @
    #[arg(value_name = "NAME")]
    name: String,
}

#[derive(Args, Debug)]
struct ExplainArgs {
    /// The act that is asked about
    #[arg(value_enum, value_name = "DEED")]
    deed: Word,
    /// Where, counted from the export
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// The rules
    #[arg(long, value_name = "FILE")]
    rights: PathBuf,
    /// Who: a subject, or anonymous [default: whom your own credential names]
    #[arg(long = "as", value_name = "SUBJECT")]
    who: Option<String>,
    /// Say also which account that is, by this grid-mapfile
    #[arg(long, value_name = "FILE")]
    gridmap: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Word {
    Read,
    Write,
    Create,
    Delete,
    List,
    Stage,
}

impl AuthArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        match self.action {
            Action::Explain(explain) => explain.run(screen),
            Action::Password(named) => named.password(screen),
            Action::Token(named) => named.token(screen),
            Action::Allow(right) => right.keep("allow"),
            Action::Never(right) => right.keep("never"),
            Action::Rules { name } => rules(screen, &name),
        }
    }
}

impl Right {
    fn keep(self, verb: &str) -> Run<Facts> {
        let name = catalog::name(&self.name)?;
        let wanted = format!("keep a right of {}", catalog::shown(&name.0));
        let text = format!("{verb} {} {}", self.who, self.deeds);
        read_right(&text).map_err(|why| CliError::asked(&*wanted, why))?;
        // A rule that is said again is asked first again.
        let mut changes = Vec::new();
        for known in rights_of(&name)? {
            if known.name == name && known.text == text {
                changes.push(Change::RemoveRule { rule: known.rule });
            }
        }
        changes.push(Change::AddRule { name, text });
        catalog::change(&wanted, changes)?;
        Ok(Facts::new())
    }
}

/// Returns the rights that the catalog keeps, the last said first.
fn rights_of(name: &Name) -> Run<Vec<Ruled>> {
    let found = godwit_catalog::rules(&*catalog::open()?, &name.0);
    let mut found = found.map_err(|refusal| catalog::refused("list the rights", &refusal))?;
    found.retain(|rule| is_of_rights(&rule.text));
    found.reverse();
    Ok(found)
}

fn rules(screen: &Screen, name: &OsStr) -> Run<Facts> {
    let found = rights_of(&catalog::name(name)?)?;
    for Ruled {
        rule, name, text, ..
    } in &found
    {
        let name = catalog::shown(&name.0);
        let shown = match screen.json() {
            true => {
                screen.object(&json!({"event": "right", "rule": rule, "name": name, "text": text}))
            }
            false => screen.line(format!("{name}  {text}")),
        };
        shown.map_err(|error| CliError::store("list the rights", error))?;
    }
    Ok(facts([("rights", found.len().into())]))
}

impl Named {
    fn password(self, screen: &Screen) -> Run<Facts> {
        let wanted = format!("make the line of {}", self.name);
        let trouble = |error| CliError::store(&wanted, error);
        let ask = |prompt: &str| {
            let asked = ask_secret(prompt);
            asked.map_err(|cause| trouble(Error::io("standard input", cause)))
        };
        let password = ask("Password")?;
        if is_typed() && ask("The same again")? != password {
            return Err(CliError::asked(&wanted, "the two are not the same"));
        }
        let line = password_line(&self.name, &password);
        let line = line.map_err(|error| CliError::trust(&wanted, error))?;
        let said = match screen.json() {
            true => screen.object(&json!({"event": "password", "name": self.name, "line": line})),
            false => screen.line(line),
        };
        said.map_err(trouble)?;
        Ok(Facts::new())
    }

    fn token(self, screen: &Screen) -> Run<Facts> {
        let wanted = format!("make a token of {}", self.name);
        let made = new_token(&self.name).map_err(|error| CliError::trust(&wanted, error))?;
        let (token, line) = made;
        let said = match screen.json() {
            true => screen.object(
                &json!({"event": "token", "name": self.name, "token": token, "line": line}),
            ),
            false => screen.line(line).and_then(|()| screen.flush()),
        };
        said.map_err(|error| CliError::store(&wanted, error))?;
        // Not where the line goes: that is a file which holds no secrets.
        if !screen.json() {
            screen.aside(&format!("token: {token}"));
        }
        Ok(Facts::new())
    }
}

impl ExplainArgs {
    fn run(self, screen: &Screen) -> Run<Facts> {
        let wanted = format!("explain the rights of {}", self.rights.display());
        let trouble = |error| CliError::trust(&wanted, error);
        let rights = Rights::read(&self.rights).map_err(trouble)?;
        let who = self.identity(&wanted)?;
        let accounts = match (&self.gridmap, &who) {
            (Some(file), Some(who)) => Some(Gridmap::read(file).map_err(trouble)?.accounts(who)),
            _ => None,
        };
        let deed = self.deed.deed();
        let name = who
            .as_ref()
            .map_or_else(|| "anonymous".into(), Identity::to_string);
        let act = format!("let {name} {} {}", deed.as_str(), self.path.display());
        // As the node does it with the names that clients say.
        let path = resolve(Path::new(""), self.path.as_os_str().as_bytes())
            .map_err(|refused| CliError::denied(&act, refused.said))?;
        let decision = rights.decide(who.as_ref(), deed, &path);
        self.say(screen, who.as_ref(), accounts.as_deref(), decision)
            .map_err(|error| CliError::store(&wanted, error))?;
        if decision.allowed {
            return Ok(Facts::new());
        }
        Err(CliError::denied(act, decision.because()))
    }

    fn identity(&self, wanted: &str) -> Run<Option<Identity>> {
        match self.who.as_deref() {
            Some("anonymous") => Ok(None),
            Some(subject) if is_name(subject) => Ok(Some(Identity::named(subject))),
            Some(other) => Err(CliError::asked(
                wanted,
                format!(
                    "{other:?} is nobody: a subject begins with a slash, a principal has a realm behind @, \
                     or it is the word anonymous"
                ),
            )),
            None => match Credential::discover().map_err(|error| CliError::trust(wanted, error))? {
                Some(credential) => Ok(Some(credential.identity())),
                None => {
                    Err(CliError::asked(wanted, "you have no credential").next("say who with --as"))
                }
            },
        }
    }

    fn say(
        &self,
        screen: &Screen,
        who: Option<&Identity>,
        accounts: Option<&[String]>,
        decision: Ruling<'_>,
    ) -> Result<(), godwit_store::Error> {
        if screen.json() {
            return screen.object(&json!({
                "event": "decision",
                "who": who.map_or("anonymous", Identity::subject),
                "deed": self.deed.deed().as_str(),
                "path": self.path.to_string_lossy(),
                "allowed": decision.allowed,
                "rule": decision.rule.map(godwit_trust::AccessRule::number),
                "because": decision.because(),
                "accounts": accounts,
            }));
        }
        if decision.allowed {
            screen.line(format!("allowed: {}", decision.because()))?;
        }
        match accounts {
            Some([]) => screen.line("account: none; the grid-mapfile does not name this subject"),
            Some(accounts) => screen.line(format!("account: {}", accounts.join(", "))),
            None => Ok(()),
        }
    }
}

impl Word {
    fn deed(self) -> Permission {
        match self {
            Self::Read => Permission::Read,
            Self::Write => Permission::Write,
            Self::Create => Permission::Create,
            Self::Delete => Permission::Delete,
            Self::List => Permission::List,
            Self::Stage => Permission::Stage,
        }
    }
}
