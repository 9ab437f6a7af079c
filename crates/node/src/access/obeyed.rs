//! Rules of rights that a catalog keeps, of its own names.
//!
//! A rule stands at a collection, and speaks of all below it; the last said is asked first. Below a collection with a rule,
//! what none allows is denied. Elsewhere only the rights of the node count.

use godwit_catalog::{
    Catalog, CatalogAnswer, Change, Changes, Each, Intent, IntentDeed as Doing, Location, Question,
    Refusal, Result,
};
use godwit_core::{Kind, Url};
use godwit_farm::{is_of_node, is_of_rights};
use godwit_trust::{Identity, PERMISSIONS, Permission, Rights};
use godwit_wire::door::{call::Name, path::escaped};
use std::{
    collections::HashMap,
    ffi::OsString,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
    sync::Arc,
};

/// A catalog that obeys its rules of rights.
pub struct Obeyed {
    catalog: Arc<dyn Catalog>,
    asker: Asker,
}

/// A user of the catalog.
#[derive(Clone, Debug)]
pub enum Asker {
    /// A client of a node; `None`: it does not say who it is.
    Client(Option<Identity>),
    /// A process that opened the database itself: only rules with `never` bind it, and it may change the rules.
    Owner,
}

impl Obeyed {
    /// Puts the rules before a catalog.
    pub fn new(catalog: Arc<dyn Catalog>, asker: Asker) -> Self {
        Self { catalog, asker }
    }

    fn rules(&self) -> Result<RuleTexts<'_>> {
        let mut found = godwit_catalog::rules(&*self.catalog, Path::new(""))?;
        found.retain(|rule| is_of_rights(&rule.text));
        let said = found.into_iter().rev().map(|rule| RuleText {
            place: rule.name.0,
            // A rule that cannot be read allows nothing.
            rights: read_right(&rule.text).unwrap_or_default(),
            text: rule.text,
        });
        Ok(RuleTexts {
            asker: &self.asker,
            said: said.collect(),
        })
    }

    fn intents(&self) -> Result<HashMap<u64, Intent>> {
        let found = godwit_catalog::intents(&*self.catalog, None, false)?;
        Ok(found
            .into_iter()
            .map(|intent| (intent.intent, intent))
            .collect())
    }

    /// Returns the collections of all locations.
    fn places(&self) -> Result<HashMap<u64, PathBuf>> {
        let found = godwit_catalog::locations(&*self.catalog, Path::new(""), false)?;
        let place = |location: Location| (location.location, location.name.0);
        Ok(found.into_iter().map(place).collect())
    }

    /// Returns the name of the file that has a copy there.
    fn at(&self, location: u64, path: &Path) -> Result<Option<PathBuf>> {
        let is_past = |last: &Name| last.0.as_os_str().as_bytes() > path.as_os_str().as_bytes();
        let mut after = before(path);
        loop {
            let (mut found, mut last) = (None, None);
            let question = Question::Holdings { location, after };
            self.catalog.ask(&question, &mut |answer| {
                if let CatalogAnswer::Entry(entry) = answer {
                    last = entry.homes.first().map(|home| home.path.clone());
                    if last.as_ref().is_some_and(|last| last.0 == path) {
                        found = Some(entry.name.0);
                    }
                }
                Ok(())
            })?;
            if found.is_some() || last.as_ref().is_none_or(is_past) {
                return Ok(found);
            }
            after = last;
        }
    }

    fn must_change(
        &self,
        rules: &RuleTexts<'_>,
        intents: &HashMap<u64, Intent>,
        change: &Change,
    ) -> Result<()> {
        match change {
            Change::Unregister { location, path, .. } | Change::Discard { location, path, .. } => {
                let name = self.at(*location, &path.0)?;
                name.map_or(Ok(()), |name| rules.must(Permission::Delete, &name))
            }
            Change::Mark { location, path, .. } => {
                let name = self.at(*location, &path.0)?;
                name.map_or(Ok(()), |name| rules.must(Permission::Read, &name))
            }
            Change::Land { intent, .. }
            | Change::Renew { intent, .. }
            | Change::Publish { intent, .. }
            | Change::Assemble { intent, .. }
            | Change::Settle { intent, .. } => {
                let found = intents.get(intent);
                found.map_or(Ok(()), |found| {
                    rules.must(deed_of(found.deed, found.base), &found.name.0)
                })
            }
            _ => rules.must_change(change),
        }
    }
}

impl Catalog for Obeyed {
    fn ask(&self, question: &Question, each: &mut Each<'_>) -> Result<()> {
        let rules = self.rules()?;
        match question {
            Question::Locate { names } => {
                let mut names = names.iter();
                names.try_for_each(|name| rules.must(Permission::Read, &name.0))?;
            }
            Question::History { name } => rules.must(Permission::Read, &name.0)?,
            Question::List {
                name, deep, homes, ..
            } => {
                let deed = if *homes {
                    Permission::Read
                } else {
                    Permission::List
                };
                match deep {
                    true => rules.must_deep(deed, &name.0)?,
                    false => rules.must(deed, &name.0)?,
                }
            }
            _ => {}
        }
        let is_held = matches!(question, Question::Holdings { .. });
        self.catalog.ask(question, &mut |answer| {
            let name = match &answer {
                CatalogAnswer::Entry(entry) if is_held => {
                    // A comparison with a part of the list would take the rest for lost.
                    rules.must(Permission::Read, &entry.name.0)?;
                    None
                }
                // Sites learn from locations and rules of rights whom they obey.
                CatalogAnswer::Rule(rule) if !is_of_rights(&rule.text) => Some(&rule.name),
                CatalogAnswer::Intent(intent) => Some(&intent.name),
                CatalogAnswer::Todo(todo) => Some(&todo.entry.name),
                _ => None,
            };
            match name {
                Some(name) if rules.must(Permission::List, &name.0).is_err() => Ok(()),
                _ => each(answer),
            }
        })
    }

    fn make(&self, name: &Path) -> Result<Option<u64>> {
        self.rules()?.must(Permission::Read, name)?;
        self.catalog.make(name)
    }

    fn change(&self, changes: &Changes) -> Result<Vec<u64>> {
        let rules = self.rules()?;
        let intents = match rules.said.is_empty() || !changes.changes.iter().any(is_of_intent) {
            true => HashMap::new(),
            false => self.intents()?,
        };
        let places = match rules.said.is_empty() {
            true => HashMap::new(),
            false => self.places()?,
        };
        for change in &changes.changes {
            rules.must_keep(change)?;
            if !rules.said.is_empty() {
                self.must_change(&rules, &intents, change)?;
                rules.must_lie(change, &places)?;
            }
        }
        self.catalog.change(changes)
    }
}

struct RuleTexts<'a> {
    asker: &'a Asker,
    /// The last said is the first.
    said: Vec<RuleText>,
}

struct RuleText {
    place: PathBuf,
    text: String,
    /// One rule, of everywhere.
    rights: Rights,
}

impl RuleTexts<'_> {
    fn must(&self, deed: Permission, name: &Path) -> Result<()> {
        let covers = |said: &&RuleText| name.starts_with(&said.place);
        let Some(nearest) = self.said.iter().find(covers) else {
            return Ok(());
        };
        let owner = Identity::named(OWNER);
        let who = match self.asker {
            Asker::Client(who) => who.as_ref(),
            Asker::Owner => Some(&owner),
        };
        let speaks =
            |said: &&RuleText| said.rights.decide(who, deed, Path::new("/")).rule.is_some();
        let rule = self.said.iter().filter(covers).find(speaks);
        let is_owner = matches!(self.asker, Asker::Owner);
        match rule {
            Some(said) if said.text.starts_with(ALLOW) => return Ok(()),
            None if is_owner => return Ok(()),
            _ => {}
        }
        let why = match rule {
            Some(said) => format!("{} at grid:/{}", said.text, escaped(&said.place)),
            None => "no rule of the catalog allows it".to_owned(),
        };
        let (deed, place) = (deed.as_str(), escaped(&rule.unwrap_or(nearest).place));
        let (shown, subject) = match who {
            _ if is_owner => ("the owner of the catalog", "anyone"),
            Some(who) => (who.subject(), who.subject()),
            None => ("a client without a name", "anonymous"),
        };
        let said = format!("{shown} may not {deed} grid:/{}: {why}", escaped(name));
        let next = match rule {
            Some(said) => format!("godwit rule rm 'grid:/{place}' '{}'", said.text),
            None => format!("godwit auth allow '{subject}' {deed} 'grid:/{place}'"),
        };
        let next = format!("the owner of the catalog says: {next}");
        Err(Refusal::of_kind(Kind::Denied, said).next(next))
    }

    /// Refuses a deed at a collection or at any rule below it.
    fn must_deep(&self, deed: Permission, name: &Path) -> Result<()> {
        let below = self.said.iter().filter(|said| said.place.starts_with(name));
        let mut places = below.map(|said| said.place.as_path());
        self.must(deed, name)?;
        places.try_for_each(|place| self.must(deed, place))
    }

    fn must_all(&self, deeds: &[Permission], name: &Path) -> Result<()> {
        deeds.iter().try_for_each(|deed| self.must(*deed, name))
    }

    /// Refuses a client that changes the rules, or removes the collection where they stand.
    ///
    /// The node copies as itself to where locations and rules of copies say. So a client names no place on this machine,
    /// and while the catalog keeps rights, only its owner changes locations and rules.
    fn must_keep(&self, change: &Change) -> Result<()> {
        let Asker::Client(_) = self.asker else {
            return Ok(());
        };
        let is_place = |url: &str| url.parse::<Url>().is_ok_and(|url| !url.is_local());
        let is_elsewhere = match change {
            Change::AddLocation { url, .. } => is_place(url),
            Change::SetLocation { url, .. } => is_place(url),
            Change::Load(entry) => entry.homes.iter().all(|home| is_place(&home.url)),
            _ => true,
        };
        if !is_elsewhere {
            let said =
                "a client of a catalog names places on servers, not on the machine of the catalog";
            let next =
                "write godwit://NODE/PATH, or say it on that machine with --catalog sqlite:PATH";
            return Err(Refusal::of_kind(Kind::Denied, said).next(next));
        }
        if let (
            Change::AddLocation { site, url, .. } | Change::SetLocation { site, url, .. },
            Asker::Client(who),
        ) = (change, self.asker)
            && is_of_node(site, url)
            && who.as_ref().is_none_or(|who| !is_of_peer(who, site))
        {
            let said = format!("a node makes itself one of the farm, and the client is not {site}");
            let next = format!("say on {site}: godwit farm join INVITE --slots N");
            return Err(Refusal::of_kind(Kind::Denied, said).next(next));
        }
        let mut said = self.said.iter();
        let is_of_owner = match change {
            Change::AddRule { text, .. } => is_of_rights(text) || !self.said.is_empty(),
            Change::RemoveRule { .. }
            | Change::AddLocation { .. }
            | Change::SetLocation { .. }
            | Change::RemoveLocation { .. }
            | Change::Load(_) => !self.said.is_empty(),
            Change::Remove { name, .. } => said.any(|said| said.place == name.0),
            _ => false,
        };
        if !is_of_owner {
            return Ok(());
        }
        let said =
            "only the owner of a catalog with rules of rights changes its rules and locations";
        let next = "say the same on its machine, with --catalog sqlite:PATH";
        Err(Refusal::of_kind(Kind::Denied, said).next(next))
    }

    /// Refuses to give a name to bytes that lie where the rules of another collection count: the node would copy them
    /// for a client that may not read them.
    fn must_lie(&self, change: &Change, places: &HashMap<u64, PathBuf>) -> Result<()> {
        let (deed, location, path) = match change {
            Change::Register {
                home: Some(home), ..
            } => (Permission::Read, home.location, &home.path),
            Change::Intend {
                deed,
                location,
                path,
                base,
                ..
            } => (deed_of(*deed, *base), *location, path),
            _ => return Ok(()),
        };
        let place = places.get(&location);
        place.map_or(Ok(()), |place| self.must(deed, &place.join(&path.0)))
    }

    fn must_change(&self, change: &Change) -> Result<()> {
        match change {
            Change::Collect { name, .. } => self.must(Permission::Create, &name.0),
            Change::Register { name, .. } => self.must_all(NEW, &name.0),
            Change::Load(entry) => self.must_all(NEW, &entry.name.0),
            Change::Intend {
                deed, name, base, ..
            } => self.must(deed_of(*deed, *base), &name.0),
            Change::Draft { name, base, .. } => self.must(deed_of(Doing::Draft, *base), &name.0),
            Change::Remove { name, .. } => self.must(Permission::Delete, &name.0),
            Change::Rename { from, to } => {
                self.must_deep(Permission::Delete, &from.0)?;
                self.must_all(NEW, &to.0)
            }
            Change::Link { from, to } => {
                // No rule of the old name binds those who come by the new one.
                let mut deeds = PERMISSIONS.iter();
                deeds.try_for_each(|deed| self.must_deep(*deed, &from.0))?;
                self.must_all(NEW, &to.0)
            }
            Change::RemoveLocation { name, .. } => self.must_deep(Permission::Delete, &name.0),
            Change::SetLocation { name, .. } => self.must_deep(Permission::Write, &name.0),
            Change::AddRule { text, .. } if is_of_rights(text) => Ok(()),
            Change::Set { name, .. }
            | Change::Attribute { name, .. }
            | Change::AddLocation { name, .. }
            | Change::AddRule { name, .. } => self.must(Permission::Write, &name.0),
            _ => Ok(()),
        }
    }
}

/// Tells whether a client is the peer of that name.
fn is_of_peer(who: &Identity, name: &str) -> bool {
    let peer = godwit_trust::door::peer(name);
    who.subject().eq_ignore_ascii_case(peer.subject())
}

fn is_of_intent(change: &Change) -> bool {
    use Change::{Assemble, Land, Publish, Renew, Settle};
    matches!(
        change,
        Land { .. } | Renew { .. } | Publish { .. } | Assemble { .. } | Settle { .. }
    )
}

/// Returns a path shortly before another one, in the order of bytes.
fn before(path: &Path) -> Option<Name> {
    let mut bytes = path.as_os_str().as_bytes().to_vec();
    let last = bytes.pop()?.checked_sub(1)?;
    bytes.extend([last, u8::MAX]);
    Some(Name(OsString::from_vec(bytes).into()))
}

fn deed_of(doing: Doing, base: u64) -> Permission {
    match doing {
        Doing::Write | Doing::Draft if base == 0 => Permission::Create,
        Doing::Write | Doing::Draft => Permission::Write,
        // Another site comes to have the bytes; the file stays as it is.
        Doing::Copy => Permission::Read,
        Doing::Delete => Permission::Delete,
    }
}

/// Reads the text of a rule: `allow WHO DEEDS` or `never WHO DEEDS`.
pub fn read_right(text: &str) -> Result<Rights, String> {
    Rights::parse(&in_toml(text)?)
}

/// Writes a rule as a file of rights has it, without a place.
pub(crate) fn in_toml(text: &str) -> Result<String, String> {
    let form = || "a rule is allow WHO DEEDS or never WHO DEEDS".to_owned();
    let (verb, rest) = text.split_once(' ').ok_or_else(form)?;
    let (who, deeds) = rest.rsplit_once(' ').ok_or_else(form)?;
    let verb = if verb == ALLOW { "may" } else { "never" };
    let (who, deeds) = (quoted([who]), quoted(deeds.split(',')));
    Ok(format!("[[rule]]\nwho = {who}\n{verb} = {deeds}\n"))
}

/// Writes a list of strings in TOML.
pub(crate) fn quoted<T: Into<serde_json::Value>>(texts: impl IntoIterator<Item = T>) -> String {
    serde_json::Value::from_iter(texts).to_string()
}

pub(crate) const ALLOW: &str = "allow";

/// Deeds of a change that makes a name, or writes one that exists.
const NEW: &[Permission] = &[Permission::Create, Permission::Write];

/// A subject that rules of everyone bind.
const OWNER: &str = "/O=godwit/CN=owner";
