//! Names that the kernel knows, by their numbers.

use crate::{
    asking::{Failed, Result},
    body::Writes,
    facts::Facts,
};
use fuser::{FileAttr, FileType, INodeNo};
use godwit_core::Url;
use std::{
    collections::HashMap,
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    time::{Duration, UNIX_EPOCH},
};

/// All names; the root has the number 1.
pub(crate) struct Nodes {
    nodes: HashMap<u64, Node>,
    by_name: HashMap<(u64, OsString), u64>,
    last: u64,
    owner: (u32, u32),
}

/// One name.
pub(crate) struct Node {
    /// The directory and the name in it; `None`: the name is gone.
    place: Option<(u64, OsString)>,
    /// How many lookups the kernel has not forgotten.
    lookups: u64,
    pub(crate) facts: Facts,
    pub(crate) writes: Writes,
}

impl Nodes {
    pub(crate) fn new() -> Self {
        let (uid, gid) = godwit_sys::ids();
        let root = Node {
            place: None,
            lookups: 1,
            facts: Facts::directory(),
            writes: Writes::None,
        };
        Self {
            nodes: HashMap::from([(ROOT, root)]),
            by_name: HashMap::new(),
            last: ROOT,
            owner: (uid, gid),
        }
    }

    pub(crate) fn get(&mut self, number: u64) -> Result<&mut Node> {
        self.nodes.get_mut(&number).ok_or(STALE)
    }

    pub(crate) fn find(&mut self, parent: u64, name: &OsStr) -> Option<(u64, &mut Node)> {
        let number = *self.by_name.get(&(parent, name.to_owned()))?;
        Some((number, self.nodes.get_mut(&number)?))
    }

    pub(crate) fn all(&mut self) -> impl Iterator<Item = (u64, &mut Node)> {
        self.nodes.iter_mut().map(|(number, node)| (*number, node))
    }

    /// Returns the known names in a directory.
    pub(crate) fn names_in(&self, parent: u64) -> Vec<(OsString, &Node)> {
        let known = self.by_name.iter().filter(|((of, _), _)| *of == parent);
        let named =
            known.filter_map(|((_, name), number)| Some((name.clone(), self.nodes.get(number)?)));
        named.collect()
    }

    /// Tells whether a number is that of the root, or of a server.
    pub(crate) fn is_above_files(&self, number: u64) -> bool {
        let node = self.nodes.get(&number);
        let place = node.and_then(|node| node.place.as_ref());
        number == ROOT || place.is_some_and(|(parent, _)| *parent == ROOT)
    }

    /// Returns the path of a number, as programs name it.
    pub(crate) fn path(&self, number: u64) -> Result<OsString> {
        let mut names = Vec::new();
        let mut at = number;
        while at != ROOT {
            let node = self.nodes.get(&at).ok_or(STALE)?;
            let (parent, name) = node.place.as_ref().ok_or(STALE)?;
            names.push(name);
            at = *parent;
        }
        let mut path = OsString::from("/godwit");
        for name in names.into_iter().rev() {
            path.push("/");
            path.push(name);
        }
        Ok(path)
    }

    /// Returns the URL of a number in the words of the node.
    pub(crate) fn url(&self, number: u64) -> Result<String> {
        worded(&self.path(number)?)
    }

    /// Returns the URL of a name in a directory.
    pub(crate) fn url_in(&self, parent: u64, name: &OsStr) -> Result<String> {
        let mut path = self.path(parent)?;
        path.push("/");
        path.push(name);
        worded(&path)
    }

    /// Counts a lookup of a name by the kernel, and returns its number.
    pub(crate) fn look_up(&mut self, parent: u64, name: &OsStr, facts: Option<Facts>) -> u64 {
        let place = (parent, name.to_owned());
        let number = match self.by_name.get(&place) {
            Some(known) => *known,
            None => {
                self.last += 1;
                self.by_name.insert(place.clone(), self.last);
                self.last
            }
        };
        let node = self.nodes.entry(number).or_insert_with(|| Node {
            place: Some(place),
            lookups: 0,
            facts: Facts::default(),
            writes: Writes::None,
        });
        node.lookups += 1;
        if let Some(facts) = facts {
            node.facts = facts;
        }
        number
    }

    /// Forgets `times` lookups of a number.
    pub(crate) fn forget(&mut self, number: u64, times: u64) {
        let Some(node) = self.nodes.get_mut(&number) else {
            return;
        };
        node.lookups = node.lookups.saturating_sub(times);
        if node.lookups == 0 && number != ROOT && matches!(node.writes, Writes::None) {
            let place = node.place.take();
            self.nodes.remove(&number);
            place.map(|place| self.by_name.remove(&place));
        }
    }

    /// Takes a name away from its number; returns it.
    pub(crate) fn remove(&mut self, parent: u64, name: &OsStr) -> Option<&mut Node> {
        let number = self.by_name.remove(&(parent, name.to_owned()))?;
        let node = self.nodes.get_mut(&number)?;
        node.place = None;
        Some(node)
    }

    /// Gives a number another name; what had that name has none any more.
    pub(crate) fn rename(&mut self, from: (u64, &OsStr), to: (u64, &OsStr)) {
        self.remove(to.0, to.1);
        let Some(number) = self.by_name.remove(&(from.0, from.1.to_owned())) else {
            return;
        };
        let place = (to.0, to.1.to_owned());
        self.by_name.insert(place.clone(), number);
        if let Some(node) = self.nodes.get_mut(&number) {
            node.place = Some(place);
        }
    }

    /// Returns the attributes of a number for the kernel.
    pub(crate) fn attributes(&self, number: u64, facts: &Facts) -> FileAttr {
        let mtime = UNIX_EPOCH + Duration::from_nanos(facts.mtime_ns);
        let (kind, nlink) = match facts.is_directory {
            true => (FileType::Directory, 2),
            false => (FileType::RegularFile, 1),
        };
        FileAttr {
            ino: INodeNo(number),
            size: facts.size,
            blocks: facts.size.div_ceil(512),
            atime: mtime,
            mtime,
            ctime: mtime,
            crtime: mtime,
            kind,
            perm: (facts.mode & 0o7777) as u16,
            nlink,
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            blksize: BLOCK_BYTES,
            flags: 0,
        }
    }
}

/// Returns a path as text, for the node.
fn worded(path: &OsStr) -> Result<String> {
    let url = Url::from_argument(path).map_err(|_| Failed::Plain(libc::ENOENT))?;
    Ok(match path.to_str() {
        Some(text) => text.to_owned(),
        None => url.to_string(),
    })
}

/// Tells whether a name can be a server.
pub(crate) fn is_server(name: &OsStr) -> bool {
    let path = [b"/godwit/", name.as_bytes(), b"/x"].concat();
    Url::from_argument(OsStr::from_bytes(&path)).is_ok()
}

/// The number of the root.
pub(crate) const ROOT: u64 = 1;
const STALE: Failed = Failed::Plain(libc::ESTALE);
const BLOCK_BYTES: u32 = 128 << 10;

impl Node {
    /// Returns the attributes of a file that is written here, or was handed in just now.
    pub(crate) fn written(&self) -> Option<Facts> {
        match &self.writes {
            Writes::None => None,
            Writes::Busy => Some(self.facts),
            Writes::Open(body) => Some(body.facts(&self.facts)),
        }
    }
}
