//! The nodes of a farm: those that answer, those that do not, and those that are being emptied.

use crate::{
    Logical, failed,
    sites::{DRAINING, STATE, Sites, is_draining},
};
use godwit_catalog::{Change, Location};
use godwit_store::{Error, Result, door::Door};
use godwit_wire::door::call::Hello;
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

/// A node that keeps files of the catalog.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// The site.
    pub site: String,
    /// True if it answered.
    pub is_up: bool,
    /// True if its copies are moved away.
    pub is_draining: bool,
    /// How many programs it runs at a time; `None`: it is no node of godwit, or silent.
    pub slots: Option<u64>,
    /// How many it runs now.
    pub running: Option<u64>,
    /// The bytes that its disk has left, if it tells.
    pub free_bytes: Option<u64>,
    /// The platform of its programs, if it tells: x86_64-linux.
    pub platform: Option<String>,
}

impl Logical {
    /// Asks all nodes of a collection how they are; each has [`ANSWERS_WITHIN`].
    pub fn nodes(&self, collection: &Path) -> Result<Vec<Node>> {
        let mut nodes = Vec::new();
        self.ask_nodes(collection, &mut |node| nodes.push(node))?;
        nodes.sort_by(|a: &Node, b: &Node| a.site.cmp(&b.site));
        Ok(nodes)
    }

    /// Asks all nodes; tells each when it answers, and the silent ones last.
    pub(crate) fn ask_nodes(&self, collection: &Path, each: &mut dyn FnMut(Node)) -> Result<()> {
        let mut sites: BTreeMap<String, Location> = BTreeMap::new();
        for location in self.sites.all_locations(collection)? {
            sites.entry(location.site.clone()).or_insert(location);
        }
        let (tell, heard) = std::sync::mpsc::channel();
        let mut nodes: BTreeMap<String, Node> = BTreeMap::new();
        for (site, location) in sites {
            let node = Node {
                is_draining: is_draining(&location),
                site: site.clone(),
                ..Node::default()
            };
            nodes.insert(site, node.clone());
            let (names, tell) = (self.sites.clone(), tell.clone());
            // One that hangs is left behind.
            thread::spawn(move || tell.send(ask(&names, &location, node)));
        }
        drop(tell);
        let until = Instant::now() + ANSWERS_WITHIN;
        while let Ok(node) = heard.recv_timeout(until.saturating_duration_since(Instant::now())) {
            nodes.remove(&node.site);
            each(node);
        }
        nodes.into_values().for_each(each);
        Ok(())
    }

    /// Has the copies at a site moved away, or lets files come there again.
    pub fn drain(&self, site: &str, is_draining: bool) -> Result<()> {
        let root = Path::new("");
        let mut changes = Vec::new();
        for location in self.sites.all_locations(root)? {
            if location.site == site {
                changes.push(Change::Attribute {
                    name: location.name,
                    site: Some(location.site),
                    key: STATE.into(),
                    value: is_draining.then(|| DRAINING.into()),
                });
            }
        }
        if changes.is_empty() {
            return Err(Error::missing(site));
        }
        let changed = self.sites.catalog.change(&changes.into());
        changed.map(drop).map_err(|refusal| failed(root, refusal))
    }
}

fn ask(sites: &Sites, location: &Location, node: Node) -> Node {
    let Ok(place) = sites.open(&location.url) else {
        return node;
    };
    let hello = Door::open(&place.url, &sites.stores.options().remote());
    let hello = hello.and_then(|door| door.hello());
    let is_up = hello.is_ok() || place.store.stat(&place.path).is_ok();
    let hello = hello.ok();
    let told = |what: fn(&Hello) -> Option<u64>| hello.as_ref().and_then(what);
    let volume = place.store.facets().volume;
    let space = volume.and_then(|volume| volume.space(Path::new("")).ok());
    Node {
        is_up,
        slots: told(|hello| hello.slots),
        running: told(|hello| hello.running),
        free_bytes: space.map(|space| space.free_bytes),
        platform: hello.and_then(|hello| hello.platform),
        ..node
    }
}

/// Tells whether a location is that of a node of the farm: `.farm` of the node that has the site's name.
pub fn is_of_node(site: &str, url: &str) -> bool {
    let host = url.strip_prefix("godwit://");
    let host = host.and_then(|rest| rest.strip_suffix("/.farm"));
    host.is_some_and(|host| host.eq_ignore_ascii_case(site))
}

/// The sites that answer, as the keeper of the rules sees them.
pub(crate) struct SiteWatch {
    /// When each site was heard last, and whether it is being asked.
    seen: Arc<Mutex<HashMap<String, (Instant, bool)>>>,
    next: Mutex<Instant>,
    /// The silence after which the copies of a site count as lost.
    down_after: Duration,
}

impl SiteWatch {
    pub(crate) fn new(down_after: Duration) -> Self {
        Self {
            seen: Arc::default(),
            next: Mutex::new(Instant::now()),
            down_after,
        }
    }

    /// Asks all sites, each in a thread of its own, if it is time; returns those that went down or came back.
    pub(crate) fn look(&self, sites: &Arc<Sites>) -> Result<()> {
        {
            let mut next = self.next.lock();
            if *next > Instant::now() {
                return Ok(());
            }
            *next = Instant::now() + BEAT_EVERY;
        }
        for location in sites.all_locations(Path::new(""))? {
            let mut seen = self.seen.lock();
            let known = seen
                .entry(location.site.clone())
                .or_insert((Instant::now(), false));
            if std::mem::replace(&mut known.1, true) {
                continue;
            }
            let (sites, seen) = (sites.clone(), self.seen.clone());
            thread::spawn(move || {
                let place = sites.open(&location.url);
                let heard = place.and_then(|place| match place.store.stat(&place.path) {
                    // A directory that is not there yet is an answer too.
                    Err(Error::Missing { .. }) => Ok(()),
                    told => told.map(drop),
                });
                let mut seen = seen.lock();
                if let Some(known) = seen.get_mut(&location.site) {
                    known.1 = false;
                    if heard.is_ok() {
                        known.0 = Instant::now();
                    }
                }
            });
        }
        Ok(())
    }

    /// Tells whether a site's silence is so long that its copies count as lost.
    pub(crate) fn is_down(&self, site: &str) -> bool {
        self.is_silent_for(site, self.down_after)
    }

    /// Tells whether a site is not offered for new copies.
    pub(crate) fn is_silent(&self, site: &str) -> bool {
        self.is_silent_for(site, SILENT_AFTER)
    }

    fn is_silent_for(&self, site: &str, time: Duration) -> bool {
        let seen = self.seen.lock();
        seen.get(site).is_some_and(|(at, _)| at.elapsed() > time)
    }

    /// Returns the sites that are down.
    pub(crate) fn down(&self) -> Vec<String> {
        let seen = self.seen.lock();
        let down = seen
            .iter()
            .filter(|(_, (at, _))| at.elapsed() > self.down_after);
        let mut down: Vec<String> = down.map(|(site, _)| site.clone()).collect();
        down.sort();
        down
    }
}

const BEAT_EVERY: Duration = Duration::from_secs(3);
const SILENT_AFTER: Duration = Duration::from_secs(10);
/// The time in which a node answers how it is.
pub const ANSWERS_WITHIN: Duration = Duration::from_secs(3);
