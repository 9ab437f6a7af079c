//! Rules about copies: the node that serves the catalog keeps them by itself.

use crate::{
    Logical, failed,
    nodes::SiteWatch,
    now, settle,
    sites::{Sites, best, is_draining, is_good},
};
use godwit_catalog::{
    CatalogAnswer, CatalogEntry as Named, CatalogHome, CatalogRule, Change, HomeWord as OfHome,
    IntentDeed, Location, Pages, Question, Todo, gather, intents, is_in_draft,
};
use godwit_core::HomeState;
use godwit_store::{Error, Result, engine::CopyOptions};
use godwit_wire::door::call::Name;
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    num::NonZeroU64,
    path::{Path, PathBuf},
    slice,
    time::{Duration, Instant},
};

/// A rule that is read.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Wanted {
    /// The least number of sites with a copy.
    pub copies: usize,
    /// Sites that must have one.
    pub at: Vec<String>,
    /// The site from which copies come.
    pub from: Option<String>,
    /// The time between comparisons, in seconds; `None`: at once after each change.
    pub every_s: Option<u64>,
}

impl Wanted {
    /// Reads a rule: `copies=N`, `at=SITE,...`, `from=SITE`, `every=2d`, with spaces between.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut wanted = Self::default();
        for word in text.split_whitespace() {
            let bad = |why: &str| format!("{word}: {why}");
            match word.split_once('=') {
                Some(("copies", count)) => {
                    let count = count
                        .parse()
                        .ok()
                        .filter(|count| (1..=COPIES_MAX).contains(count));
                    wanted.copies = count.ok_or_else(|| bad("write a count from 1 to 100"))?;
                }
                Some(("at", sites)) if !sites.is_empty() => {
                    wanted.at = sites.split(',').map(ToOwned::to_owned).collect();
                }
                Some(("from", site)) if !site.is_empty() => wanted.from = Some(site.into()),
                Some(("every", time)) => {
                    wanted.every_s =
                        Some(seconds(time).ok_or_else(|| bad("write a time like 12h or 2d"))?);
                }
                _ => return Err(bad("write copies=N, at=SITE,..., from=SITE or every=TIME")),
            }
        }
        match wanted.copies == 0 && wanted.at.is_empty() {
            true => Err("a rule says copies=N, or at=SITE,..., or both".into()),
            false => Ok(wanted),
        }
    }
}

fn seconds(time: &str) -> Option<u64> {
    let (number, unit) = time.split_at_checked(time.len().checked_sub(1)?)?;
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return None,
    };
    number
        .parse::<u64>()
        .ok()?
        .checked_mul(unit)
        .filter(|seconds| *seconds > 0)
}

/// The copies that a file needs.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Needs {
    /// Sites that are to get a copy, each with the site from which it comes, if a rule says.
    pub copies: BTreeMap<String, Option<String>>,
    /// Wishes that cannot be fulfilled, with the reason.
    pub unmet: Vec<String>,
}

impl Needs {
    /// Tells whether the file is as the rules say.
    pub fn is_met(&self) -> bool {
        self.copies.is_empty() && self.unmet.is_empty()
    }
}

/// Compares a file with rules; `sites`: where its collection has locations, the cheapest first.
/// Copies at sites that are `away` can be read, if at all, and do not count.
fn needs(entry: &Named, rules: &[Wanted], sites: &[String], away: &BTreeSet<String>) -> Needs {
    let mut needs = Needs::default();
    let homes = || entry.homes.iter();
    let good: BTreeSet<&String> = homes()
        .filter(|home| is_good(home, entry))
        .map(|home| &home.site)
        .collect();
    if entry.version == 0 || rules.is_empty() {
        return needs;
    }
    if good.is_empty() {
        needs.unmet.push("no good copy is left".into());
        return needs;
    }
    let counted = good.iter().filter(|site| !away.contains(**site)).count();
    let others = || homes().filter(|home| !good.contains(&home.site));
    // Registered bytes are never replaced by themselves: their owner may have changed them.
    let kept: BTreeSet<&String> = others()
        .filter(|home| !home.ours)
        .map(|home| &home.site)
        .collect();
    let is_wrong =
        |home: &&CatalogHome| matches!(home.state.0, HomeState::Damaged | HomeState::Lost);
    for home in others().filter(is_wrong) {
        if !kept.contains(&home.site) && !away.contains(&home.site) {
            needs.copies.insert(home.site.clone(), None);
        }
    }
    for rule in rules {
        for site in rule.at.iter().filter(|site| !good.contains(site)) {
            match sites.contains(site) {
                true if kept.contains(site) => needs.unmet.push(format!(
                    "the bytes at {site} were registered and are others now; godwit unregister NAME --at {site}, or restore them"
                )),
                true => drop(needs.copies.insert(site.clone(), rule.from.clone())),
                false => needs
                    .unmet
                    .push(format!("the collection has no location at {site}")),
            }
        }
        let is_free = |site: &&String| {
            !good.contains(site) && !kept.contains(site) && !needs.copies.contains_key(*site)
        };
        let left: Vec<_> = sites.iter().filter(is_free).collect();
        let mut left = left.into_iter();
        while counted + needs.copies.len() < rule.copies {
            match left.next() {
                Some(site) => drop(
                    needs
                        .copies
                        .entry(site.clone())
                        .or_insert_with(|| rule.from.clone()),
                ),
                None => {
                    let have = counted + needs.copies.len();
                    needs.unmet.push(format!(
                        "there are locations for {have} copies of {}",
                        rule.copies
                    ));
                    break;
                }
            }
        }
    }
    needs
}

/// Keeps the rules of a catalog.
pub struct Keeper {
    names: Logical,
    options: CopyOptions,
    /// How many bytes a second are read again to compare their digests; `None`: none are.
    scrubs: Option<NonZeroU64>,
    scrubbing: Mutex<Scrubbing>,
    watch: SiteWatch,
    /// Sites that were down or draining at the last comparison of all files.
    away: Mutex<Vec<String>>,
}

/// The position of scrubbing.
struct Scrubbing {
    next: Instant,
    /// The next locations, and the last path of the previous page.
    left: VecDeque<(u64, Option<Name>)>,
    files: VecDeque<Named>,
}

impl Keeper {
    /// Returns a keeper that copies as `options` say, and scrubs at a limited rate. Copies at a site that is silent for
    /// longer than `down_after` count as lost.
    pub fn new(
        names: Logical,
        options: CopyOptions,
        scrubs: Option<NonZeroU64>,
        down_after: Duration,
    ) -> Self {
        let scrubbing = Scrubbing {
            next: Instant::now(),
            left: VecDeque::new(),
            files: VecDeque::new(),
        };
        Self {
            names,
            options,
            scrubs,
            scrubbing: Mutex::new(scrubbing),
            watch: SiteWatch::new(down_after),
            away: Mutex::default(),
        }
    }

    /// Does what there is to do now.
    pub fn turn(&self) -> Result<()> {
        self.forget_drafts()?;
        let rules = self.rules()?;
        if rules.is_empty() || !self.leads()? {
            return Ok(());
        }
        self.watch.look(&self.names.sites)?;
        let is_other = self.compare_away()?;
        for (rule, wanted) in &rules {
            if is_other || rule.due_s <= now().as_secs() {
                self.scan(rule, wanted, &rules)?;
            }
        }
        let todo = todo(self.sites(), None)?;
        self.work_off(todo, &rules)?;
        self.scrub(&rules)
    }

    /// Forgets drafts of processes that have gone, with their bytes.
    fn forget_drafts(&self) -> Result<()> {
        let ended = intents(&*self.sites().catalog, None, true);
        let ended = ended.map_err(|refusal| failed(Path::new(""), refusal))?;
        for intent in ended {
            let name = &intent.name.0;
            let is_of_draft = intent.deed == IntentDeed::Draft || is_in_draft(name);
            if is_of_draft && let Err(error) = settle::one(self.sites(), &intent) {
                tracing::info!(name = %name.display(), %error, "a draft is left for a later turn");
            }
        }
        Ok(())
    }

    /// Tells whether other sites are down or draining than before: then all files are compared again.
    fn compare_away(&self) -> Result<bool> {
        let mut away = self.watch.down();
        let locations = self.sites().all_locations(Path::new(""))?;
        let draining = locations.into_iter().filter(is_draining);
        away.extend(draining.map(|location| location.site));
        let mut before = self.away.lock();
        let is_other = *before != away;
        if is_other {
            tracing::info!(
                sites = away.join(", "),
                "copies at these sites do not count now"
            );
        }
        *before = away;
        Ok(is_other)
    }

    fn sites(&self) -> &Sites {
        &self.names.sites
    }

    /// Tells whether this process is the one that keeps the rules; others wait.
    fn leads(&self) -> Result<bool> {
        let lease = Change::Lease {
            what: "rules".into(),
            holder: self.sites().leases.holder(),
            over: false,
        };
        Ok(self.sites().change(Path::new(""), lease)? == 1)
    }

    fn rules(&self) -> Result<Vec<(CatalogRule, Wanted)>> {
        rules(self.sites(), Path::new(""))
    }

    /// Compares all files of a rule.
    fn scan(
        &self,
        rule: &CatalogRule,
        wanted: &Wanted,
        rules: &[(CatalogRule, Wanted)],
    ) -> Result<()> {
        for page in Pages::new(&*self.sites().catalog, &rule.name.0, true, true) {
            let page = page.map_err(|refusal| failed(&rule.name.0, refusal))?;
            let files = page.into_iter().filter(|entry| !entry.collection);
            let named = files.map(|mut entry| {
                entry.name = Name(rule.name.0.join(&entry.name.0));
                entry
            });
            let each = named.flat_map(Named::into_pieces);
            let of_page = each.map(|entry| Todo {
                entry,
                ..Todo::default()
            });
            self.work(of_page.collect(), &|name| {
                let others = rules
                    .iter()
                    .filter(|(other, said)| other.rule != rule.rule && said.every_s.is_none());
                let others = others.filter(|(other, _)| name.starts_with(&other.name.0));
                others
                    .map(|(_, said)| said.clone())
                    .chain([wanted.clone()])
                    .collect()
            })?;
            self.leads()?;
        }
        let due_s = now().as_secs() + wanted.every_s.unwrap_or(SCANNED_EVERY_S);
        let rule = rule.rule;
        self.sites()
            .change(Path::new(""), Change::Scanned { rule, due_s })
            .map(drop)
    }

    fn work_off(&self, todo: Vec<Todo>, rules: &[(CatalogRule, Wanted)]) -> Result<()> {
        self.work(todo, &|name| {
            let at_once = rules.iter().filter(|(_, wanted)| wanted.every_s.is_none());
            let its = at_once.filter(|(rule, _)| name.starts_with(&rule.name.0));
            its.map(|(_, wanted)| wanted.clone()).collect()
        })
    }

    /// Makes the copies that files need, and notes which are as the rules say.
    fn work(&self, todo: Vec<Todo>, rules_of: &dyn Fn(&Path) -> Vec<Wanted>) -> Result<()> {
        let mut wanted: HashMap<(String, Option<String>), Vec<PathBuf>> = HashMap::new();
        let mut said: HashMap<u64, String> = HashMap::new();
        for one in &todo {
            let name = &one.entry.name.0;
            let needs = self.needs(&one.entry, &rules_of(name))?;
            for copy in needs.copies {
                wanted.entry(copy).or_default().push(name.clone());
            }
            if !needs.unmet.is_empty() {
                said.insert(one.entry.file, needs.unmet.join("; "));
            }
        }
        let mut is_asked: BTreeSet<PathBuf> = BTreeSet::new();
        for ((site, from), names) in wanted {
            let failures = self.names.copy_all(&site, from, &names, &self.options)?;
            for one in &todo {
                if let Some((_, error)) = failures.get(&one.entry.name.0) {
                    said.insert(one.entry.file, format!("{site}: {error}"));
                }
            }
            is_asked.extend(names);
            self.leads()?;
        }
        let mut changes = Vec::new();
        for one in todo {
            let said = said.remove(&one.entry.file);
            // A copy that was made puts the file here again, to be compared once more.
            if said.is_none() && is_asked.contains(&one.entry.name.0)
                || one.seq == 0 && said.is_none()
            {
                continue;
            }
            let pause = PAUSE_S << one.tries.min(7);
            changes.push(Change::Did {
                file: one.entry.file,
                seq: one.seq.max(1),
                again_s: now().as_secs() + pause,
                said,
            });
        }
        let changed = self.sites().catalog.change(&changes.into());
        changed
            .map(drop)
            .map_err(|refusal| failed(Path::new(""), refusal))
    }

    fn needs(&self, entry: &Named, rules: &[Wanted]) -> Result<Needs> {
        needs_of(self.sites(), entry, rules, Some(&self.watch))
    }

    /// Compares digests of files under rules that were not compared for long, no faster than it may.
    fn scrub(&self, rules: &[(CatalogRule, Wanted)]) -> Result<()> {
        let Some(rate) = self.scrubs else {
            return Ok(());
        };
        let mut at = self.scrubbing.lock();
        let until = Instant::now() + SCRUB_FOR;
        while at.next <= Instant::now() && Instant::now() < until {
            self.options.cancel.check()?;
            let Some(entry) = self.next_file(&mut at)? else {
                at.next = Instant::now() + SCRUBBED_AGAIN_AFTER;
                return Ok(());
            };
            let is_ruled = rules
                .iter()
                .any(|(rule, _)| entry.name.0.starts_with(&rule.name.0));
            if let (Some(home), Some(known), true) =
                (entry.homes.first(), best(&entry.digests), is_ruled)
            {
                let bytes = entry.size.unwrap_or(0);
                let place = self.sites().open(&home.url)?;
                let found = self.sites().digest_at(&place, known.algorithm(), None);
                let state = match found {
                    Ok(found) if found == *known => HomeState::Whole,
                    Ok(_) => HomeState::Damaged,
                    Err(Error::Missing { .. }) => HomeState::Lost,
                    // A site that does not answer is asked another time.
                    Err(_) => continue,
                };
                let change = Change::Mark {
                    location: home.location,
                    path: home.path.clone(),
                    state: OfHome(state),
                    verified_s: (state == HomeState::Whole).then(|| now().as_secs()),
                };
                match self.sites().change(&entry.name.0, change) {
                    Err(Error::Missing { .. }) => {}
                    marked => drop(marked?),
                }
                at.next += Duration::from_secs_f64(bytes as f64 / rate.get() as f64);
            }
        }
        at.next = at.next.max(Instant::now());
        Ok(())
    }

    /// Returns the next copy that is to be compared; `None`: all were.
    fn next_file(&self, at: &mut Scrubbing) -> Result<Option<Named>> {
        loop {
            if let Some(file) = at.files.pop_front() {
                return Ok(Some(file));
            }
            if at.left.is_empty() {
                let locations = self.sites().all_locations(Path::new(""))?;
                at.left
                    .extend(locations.iter().map(|location| (location.location, None)));
                // One round ends here.
                at.left.push_back((0, None));
            }
            let Some((location, after)) = at.left.pop_front().filter(|(location, _)| *location > 0)
            else {
                return Ok(None);
            };
            let mut last = after.clone();
            let mut is_last = true;
            let old = now().as_secs().saturating_sub(SCRUBBED_EVERY_S);
            let each = &mut |answer| {
                match answer {
                    CatalogAnswer::Entry(entry) => {
                        last = entry.homes.first().map(|home| home.path.clone());
                        let is_old = |home: &CatalogHome| {
                            is_good(home, &entry) && home.verified_s.is_none_or(|at| at < old)
                        };
                        if entry.homes.first().is_some_and(is_old) {
                            at.files.push_back(*entry);
                        }
                    }
                    CatalogAnswer::More => is_last = false,
                    _ => {}
                }
                Ok(())
            };
            let asked = self
                .sites()
                .catalog
                .ask(&Question::Holdings { location, after }, each);
            asked.map_err(|refusal| failed(Path::new(""), refusal))?;
            if !is_last {
                at.left.push_front((location, last));
            }
        }
    }
}

fn needs_of(
    sites: &Sites,
    entry: &Named,
    rules: &[Wanted],
    watch: Option<&SiteWatch>,
) -> Result<Needs> {
    // Each fragment has its own turn.
    if rules.is_empty() || entry.collection || !entry.fragments.is_empty() {
        return Ok(Needs::default());
    }
    let above = entry.name.0.parent().unwrap_or(Path::new(""));
    let known = match sites.nearest(above, &|_| true) {
        // The collection is gone by now.
        Err(Error::Missing { .. }) => return Ok(Needs::default()),
        known => known?,
    };
    let sky = sites.weather.sky();
    let bytes = entry.size.unwrap_or(0);
    let cost = |site: &str| {
        let good = entry.homes.iter().filter(|home| is_good(home, entry));
        let costs = good.map(|home| sky.cost(site, (&home.site, home.location), bytes).seconds);
        costs.fold(f64::MAX, f64::min)
    };
    let is_away =
        |at: &&Location| is_draining(at) || watch.is_some_and(|watch| watch.is_down(&at.site));
    let away: BTreeSet<String> = known
        .iter()
        .filter(is_away)
        .map(|at| at.site.clone())
        .collect();
    let is_offered = |at: &Location| {
        !away.contains(&at.site) && !watch.is_some_and(|watch| watch.is_silent(&at.site))
    };
    let offered = known.into_iter().filter(is_offered).map(|at| at.site);
    let names = cheapest_first(&entry.name.0, offered, cost);
    Ok(needs(entry, rules, &names, &away))
}

/// Orders sites by the cost of a copy there. Sites of about equal cost take turns, by the name of the file: else one of
/// them would get the copies of all files.
fn cheapest_first(
    name: &Path,
    sites: impl Iterator<Item = String>,
    cost: impl Fn(&str) -> f64,
) -> Vec<String> {
    let mut sites: Vec<_> = sites.collect();
    sites.sort_by_cached_key(|site| {
        let mut turn = DefaultHasher::new();
        (name, site).hash(&mut turn);
        #[allow(clippy::cast_possible_truncation)] // saturates
        ((cost(site).log2() / 2.0).floor() as i64, turn.finish())
    });
    sites
}

/// Tells whether a rule is about rights, not about copies.
pub fn is_of_rights(text: &str) -> bool {
    text.starts_with("allow ") || text.starts_with("never ")
}

/// Returns the rules of a collection, of those above it and of those below it. One that cannot be read is left out.
fn rules(sites: &Sites, name: &Path) -> Result<Vec<(CatalogRule, Wanted)>> {
    let found = godwit_catalog::rules(&*sites.catalog, name);
    let found = found.map_err(|refusal| failed(name, refusal))?;
    let about_copies = found.into_iter().filter(|rule| !is_of_rights(&rule.text));
    let read = about_copies.filter_map(|rule| match Wanted::read(&rule.text) {
        Ok(wanted) => Some((rule, wanted)),
        Err(why) => {
            tracing::warn!(rule = rule.text, why, "a rule cannot be read");
            None
        }
    });
    Ok(read.collect())
}

/// Returns the files whose turn it is; or the one of that name, also before its turn.
fn todo(sites: &Sites, name: Option<&Path>) -> Result<Vec<Todo>> {
    let question = Question::Todo {
        name: name.map(|name| Name(name.into())),
    };
    let found = gather(&*sites.catalog, &question, |answer| match answer {
        CatalogAnswer::Todo(todo) => Some(*todo),
        _ => None,
    });
    found.map_err(|refusal| failed(name.unwrap_or(Path::new("")), refusal))
}

/// The rules that cover a file with the missing copies of each, and the last attempt.
pub type RuleStatus = (Vec<(CatalogRule, Needs)>, Option<Todo>);

impl Logical {
    /// Returns the missing copies for each rule that covers a file, and why the last attempt failed.
    pub fn why(&self, name: &Path) -> Result<RuleStatus> {
        let entry = self.sites.file(name)?;
        let above = name.parent().unwrap_or(Path::new(""));
        let mut all = Vec::new();
        for (rule, wanted) in rules(&self.sites, above)? {
            if name.starts_with(&rule.name.0) {
                let mut needs = needs_of(&self.sites, &entry, slice::from_ref(&wanted), None)?;
                for part in entry.parts() {
                    let more = needs_of(&self.sites, &part, slice::from_ref(&wanted), None)?;
                    needs.copies.extend(more.copies);
                    needs.unmet.extend(more.unmet);
                }
                all.push((rule, needs));
            }
        }
        Ok((all, todo(&self.sites, Some(name))?.pop()))
    }
}

const COPIES_MAX: usize = 100;
/// How long one turn compares digests.
const SCRUB_FOR: Duration = Duration::from_secs(1);
/// How often all files of a rule are compared, even without a change.
const SCANNED_EVERY_S: u64 = 86_400;
/// The pause after the first failure; each further one doubles it.
const PAUSE_S: u64 = 5;
/// How old a comparison of digests may become.
const SCRUBBED_EVERY_S: u64 = 7 * 86_400;
/// The pause after all copies were compared.
const SCRUBBED_AGAIN_AFTER: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read() {
        let wanted = Wanted::read("copies=2 at=lab,tape from=lab every=2d").unwrap_or_default();
        let expected = Wanted {
            copies: 2,
            at: vec!["lab".into(), "tape".into()],
            from: Some("lab".into()),
            every_s: Some(172_800),
        };
        assert_eq!(wanted, expected);
        for bad in [
            "",
            "copies=0",
            "copies=x",
            "at=",
            "every=2",
            "from=lab",
            "keep=3",
            "every=0d copies=1",
        ] {
            assert!(Wanted::read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sites_of_equal_cost_take_turns() {
        let sites = || {
            ["one", "two", "three", "dear"]
                .map(String::from)
                .into_iter()
        };
        let cost = |site: &str| match site {
            "dear" => 100.0,
            "two" => 1.2,
            _ => 1.1,
        };
        let mut firsts = BTreeMap::<_, usize>::new();
        for fragment in 0..300 {
            let name = PathBuf::from(format!("f#{fragment}"));
            let order = cheapest_first(&name, sites(), cost);
            assert_eq!(order[3], "dear");
            assert_eq!(order, cheapest_first(&name, sites(), cost));
            *firsts.entry(order[0].clone()).or_default() += 1;
        }
        assert!(firsts.values().all(|count| *count > 60), "{firsts:?}");
    }

    #[test]
    fn registered_copies_are_not_replaced() {
        let home = |site: &str, state, ours| CatalogHome {
            site: site.into(),
            version: 1,
            state: OfHome(state),
            ours,
            ..CatalogHome::default()
        };
        let entry = Named {
            version: 1,
            homes: vec![
                home("one", HomeState::Whole, true),
                home("two", HomeState::Damaged, false),
                home("three", HomeState::Lost, true),
            ],
            ..Named::default()
        };
        let sites: Vec<String> = ["one", "two", "three", "four"].map(Into::into).to_vec();
        let of = |rule: &str| {
            needs(
                &entry,
                &[Wanted::read(rule).unwrap_or_default()],
                &sites,
                &BTreeSet::new(),
            )
        };
        let copies: Vec<_> = of("copies=3").copies.into_keys().collect();
        assert_eq!(copies, ["four", "three"]);
        let unmet = of("at=two").unmet;
        assert!(
            unmet.len() == 1 && unmet[0].contains("godwit unregister"),
            "{unmet:?}"
        );
    }
}
