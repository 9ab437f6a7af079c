//! A store that keeps its files in memory: for tests, and to try things out.
//! Has no links, and forgets all files with its last clone.

use crate::{
    BlockWriter, Capabilities, Checks, Entry, EntryKind, Error, Expected, Finished, Read,
    RemovalKind, Result, SMALL_BYTES, Set, Sink, Space, Stat, Store, Write, WriteMode, Xattrs,
    fence::Fences,
    landed::{BlockHashes, LandedRanges, leaves_of},
};
use godwit_core::{
    Algorithm, Block, Chain, Digest, Extents, Hashing, LEAF_BYTES, Version, leaf_range,
};
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, HashMap},
    ops::{Bound, Range},
    path::{Component, Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

/// A store in memory. Clones share their files.
#[derive(Clone, Debug, Default)]
pub struct Memory(Arc<Mutex<Tree>>);

#[derive(Debug, Default)]
struct Tree {
    nodes: BTreeMap<PathBuf, MemoryNode>,
    partials: HashMap<MemoryKey, Partial>,
    fences: Arc<Fences<MemoryKey>>,
    /// The last publication under each name by a writer that counts attempts: upload id, file, and version.
    was: HashMap<PathBuf, (Option<String>, u64, Version)>,
    born: u64,
}

type MemoryKey = (PathBuf, Option<String>);

#[derive(Clone, Debug)]
struct MemoryNode {
    body: Option<Arc<FileBody>>, // None: a directory
    mtime: Duration,
    mode: u32,
    unique: u64,
    /// How far those have come who append to it, and what their last one hashes to.
    appends: BTreeMap<u64, (u64, Digest)>,
    xattrs: Xattrs,
}

/// An upload that was dropped.
#[derive(Debug)]
struct Partial {
    origin: Option<crate::Origin>,
    size: Option<u64>,
    body: FileBody,
    leaves: Vec<(u64, Vec<Range<u64>>, Option<Chain>)>,
}

impl Memory {
    /// Returns an empty store.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Tree {
    fn node(&self, path: &Path) -> Result<MemoryNode> {
        if path.as_os_str().is_empty() {
            return Ok(MemoryNode {
                body: None,
                mtime: Duration::ZERO,
                mode: 0o755,
                unique: 0,
                appends: BTreeMap::new(),
                xattrs: Xattrs::new(),
            });
        }
        self.nodes
            .get(path)
            .cloned()
            .ok_or_else(|| self.absent(path))
    }

    /// Tells a name below a file from one that is just not there.
    fn absent(&self, path: &Path) -> Error {
        let below_file = path
            .ancestors()
            .skip(1)
            .any(|p| self.nodes.get(p).is_some_and(|n| n.body.is_some()));
        match below_file {
            true => Error::not_directory(path),
            false => Error::missing(path),
        }
    }

    fn file(&self, path: &Path) -> Result<(MemoryNode, Arc<FileBody>)> {
        let node = self.node(path)?;
        match node.body.clone() {
            Some(body) => Ok((node, body)),
            None => Err(Error::directory(path)),
        }
    }

    fn folder(&self, path: &Path) -> Result<()> {
        match self.node(path)?.body {
            None => Ok(()),
            Some(_) => Err(Error::not_directory(path)),
        }
    }

    fn place(&self, path: &Path) -> Result<PathBuf> {
        let path = name(path)?;
        self.folder(path.parent().unwrap_or(Path::new("")))?;
        Ok(path)
    }

    fn below(&self, path: &Path) -> impl Iterator<Item = (&PathBuf, &MemoryNode)> {
        let (root, path) = (path.as_os_str().is_empty(), path.to_owned());
        let from = Bound::Excluded(path.clone());
        self.nodes
            .range((from, Bound::Unbounded))
            .take_while(move |(p, _)| root || p.starts_with(&path))
    }

    fn became(&self, path: &Path, id: Option<&str>) -> Option<Version> {
        let (of, unique, version) = self.was.get(path)?;
        let is_it = of.as_deref() == id && *unique == self.nodes.get(path)?.unique;
        is_it.then(|| version.clone())
    }

    fn unique(&mut self) -> u64 {
        self.born += 1;
        self.born
    }

    fn publish(
        &mut self,
        path: &Path,
        body: FileBody,
        mode: Option<u32>,
        mtime: Option<Duration>,
    ) -> MemoryNode {
        let kept = self.nodes.get(path).map(|old| old.mode);
        let node = MemoryNode {
            body: Some(Arc::new(body)),
            mtime: mtime.unwrap_or_else(now),
            mode: mode.or(kept).unwrap_or(0o644),
            unique: self.unique(),
            appends: BTreeMap::new(),
            xattrs: Xattrs::new(),
        };
        self.nodes.insert(path.into(), node.clone());
        node
    }

    /// Appends what has a number, once.
    fn append(
        &mut self,
        path: &Path,
        (writer, seq): (u64, u64),
        body: &FileBody,
        mode: Option<u32>,
    ) -> Result<()> {
        let mut bytes = vec![0; body.len as usize]; // bounded when it was put
        body.copy_out(0, &mut bytes);
        let digest = Digest::of(Algorithm::Blake3, &bytes);
        let mut node = match self.nodes.get(path) {
            Some(node) => node.clone(),
            None => MemoryNode {
                body: Some(Arc::default()),
                mtime: now(),
                mode: mode.unwrap_or(0o644),
                unique: 0,
                appends: BTreeMap::new(),
                xattrs: Xattrs::new(),
            },
        };
        let path = path.to_owned();
        let Some(old) = &node.body else {
            return Err(Error::directory(path));
        };
        let last = node.appends.get(&writer);
        let is_at = last.map_or(0, |(seq, _)| *seq);
        match last {
            Some((at, kept)) if *at == seq && *kept != digest => {
                return Err(Error::changed(
                    path,
                    format!("append {seq} of writer {writer} is there, with other bytes"),
                ));
            }
            _ if seq <= is_at => return Ok(()),
            _ if seq > is_at + 1 => {
                return Err(Error::out_of_turn(path, writer, seq, is_at + 1));
            }
            _ => {}
        }
        let mut all = (**old).clone();
        all.copy_in(all.len, &bytes);
        node.body = Some(Arc::new(all));
        node.mtime = now();
        node.appends.insert(writer, (seq, digest));
        if node.unique == 0 {
            node.unique = self.unique();
        }
        self.nodes.insert(path, node);
        Ok(())
    }
}

impl MemoryNode {
    fn stat(&self) -> Stat {
        let (kind, size) = match &self.body {
            Some(body) => (EntryKind::File, body.len),
            None => (EntryKind::Directory, 0),
        };
        Stat {
            mtime: Some(self.mtime),
            mode: Some(self.mode),
            unique: Some(self.unique.to_string()),
            ..Stat::of(kind, size)
        }
    }
}

impl Store for Memory {
    fn can(&self) -> Result<Capabilities> {
        Ok(Capabilities {
            any_order: true,
            again: true,
            in_place: true,
            append: true,
            attempts: true,
            atomic: true,
            resume: true,
            ranges: true,
            write: true,
            set_mtime: true,
            set_mode: true,
            xattrs: true,
            links: false,
            space: true,
            digests: Algorithm::ALL.to_vec(),
            leaves: false,
            passes_on: false,
        })
    }

    fn stat(&self, path: &Path) -> Result<Stat> {
        Ok(self.0.lock().node(&clean(path)?)?.stat())
    }

    fn list(&self, path: &Path, each: &mut dyn FnMut(Entry) -> Result<()>) -> Result<()> {
        let path = clean(path)?;
        self.0.lock().folder(&path)?;
        let mut last = path.clone();
        loop {
            // Not locked while `each` works: it may use the store.
            let next = {
                let tree = self.0.lock();
                let (from, depth) = (
                    (Bound::Excluded(last), Bound::Unbounded),
                    path.components().count(),
                );
                tree.nodes
                    .range(from)
                    .take_while(|(p, _)| p.starts_with(&path))
                    .find(|(p, _)| p.components().count() == depth + 1)
                    .map(|(p, n)| (p.clone(), n.stat()))
            };
            let Some((found, stat)) = next else {
                return Ok(());
            };
            let name = found.strip_prefix(&path).expect("it is below").to_owned();
            each(Entry { path: name, stat })?;
            last = found;
        }
    }

    fn read(&self, path: &Path, want: &Extents, _: usize, into: &dyn BlockWriter) -> Result<Read> {
        let (node, body) = self.0.lock().file(&clean(path)?)?;
        let mut left = want.and(&Extents::from(0..body.len));
        let mut buffer = vec![0; left.len_bytes().min(LEAF_BYTES) as usize];
        while let Some(range) = left.take_aligned(LEAF_BYTES) {
            let bytes = &mut buffer[..(range.end - range.start) as usize];
            body.copy_out(range.start, bytes);
            into.put(Block::at(range.start, bytes))?;
        }
        Ok(Read {
            stat: node.stat(),
            digest: None,
        })
    }

    fn write(&self, path: &Path, write: &Write<'_>) -> Result<Box<dyn Sink>> {
        if write.attempt == 0 {
            return self.begin(path, write);
        }
        let key = (name(path)?, write.id.map(str::to_owned));
        let fences = Arc::clone(&self.0.lock().fences);
        fences.take_over(&key, (path, write.attempt), |_| self.begin(path, write))
    }

    fn remove(&self, path: &Path, what: RemovalKind) -> Result<()> {
        let path = name(path)?;
        let mut tree = self.0.lock();
        let node = tree.node(&path)?;
        match what {
            RemovalKind::File if node.body.is_none() => return Err(Error::directory(path)),
            RemovalKind::Directory if node.body.is_some() => {
                return Err(Error::not_directory(path));
            }
            RemovalKind::Directory if tree.below(&path).next().is_some() => {
                return Err(Error::not_empty(path));
            }
            _ => tree.nodes.remove(&path),
        };
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let from = name(from)?;
        let mut tree = self.0.lock();
        let to = tree.place(to)?;
        let node = tree.node(&from)?;
        if to == from {
            return Ok(());
        }
        if let Ok(old) = tree.node(&to) {
            match (node.body.is_some(), old.body.is_some()) {
                (true, false) => return Err(Error::directory(to)),
                (false, true) => return Err(Error::not_directory(to)),
                (false, false) if tree.below(&to).next().is_some() => {
                    return Err(Error::not_empty(to));
                }
                _ => {}
            }
        }
        if to.starts_with(&from) {
            return Err(Error::bad_name(to, "is inside what is renamed"));
        }
        let below: Vec<PathBuf> = tree.below(&from).map(|(p, _)| p.clone()).collect();
        for path in below {
            let moved = to.join(path.strip_prefix(&from).expect("it is below"));
            let node = tree.nodes.remove(&path).expect("just seen");
            tree.nodes.insert(moved, node);
        }
        tree.nodes.remove(&from);
        tree.nodes.insert(to, node);
        Ok(())
    }

    fn mkdir(&self, path: &Path) -> Result<()> {
        let mut tree = self.0.lock();
        if tree.node(&clean(path)?).is_ok() {
            return Err(Error::exists(path));
        }
        let path = tree.place(path)?;
        let unique = tree.unique();
        tree.nodes.insert(
            path,
            MemoryNode {
                body: None,
                mtime: now(),
                mode: 0o755,
                unique,
                appends: BTreeMap::new(),
                xattrs: Xattrs::new(),
            },
        );
        Ok(())
    }

    fn set(&self, path: &Path, set: &Set) -> Result<()> {
        if set.link_to.is_some() {
            return Err(Error::unsupported("a link", "memory has none"));
        }
        let path = name(path)?;
        set.check_xattrs(&path)?;
        let mut tree = self.0.lock();
        let mut node = tree.node(&path)?;
        for (name, value) in set.xattrs.clone() {
            match value {
                Some(value) => drop(node.xattrs.insert(name, value)),
                None => drop(node.xattrs.remove(&name)),
            }
        }
        if let Some(length) = set.length {
            let (_, body) = tree.file(&path)?;
            let mut body = (*body).clone();
            body.set_len(length);
            node.body = Some(Arc::new(body));
            node.mtime = now();
        }
        node.mtime = set.mtime.unwrap_or(node.mtime);
        node.mode = set.mode.unwrap_or(node.mode);
        tree.nodes.insert(path, node);
        Ok(())
    }

    fn digest(&self, path: &Path, by: Algorithm, range: Option<Range<u64>>) -> Result<Digest> {
        let (_, body) = self.0.lock().file(&clean(path)?)?;
        let mut left = Extents::from(0..body.len);
        if let Some(range) = range {
            left = left.within(range).collect();
        }
        let (mut hashing, mut buffer) = (Hashing::new(by), vec![0; LEAF_BYTES as usize]);
        while let Some(range) = left.take_aligned(LEAF_BYTES) {
            let bytes = &mut buffer[..(range.end - range.start) as usize];
            body.copy_out(range.start, bytes);
            hashing.update(bytes);
        }
        Ok(hashing.finish())
    }

    crate::has!(self, Facets: transit volume);
}

impl crate::Transit for Memory {
    fn published_as(&self, path: &Path, id: &str) -> Result<Option<Version>> {
        Ok(self.0.lock().became(&name(path)?, Some(id)))
    }
}

impl crate::Volume for Memory {
    fn xattrs(&self, path: &Path) -> Result<Xattrs> {
        Ok(self.0.lock().node(&clean(path)?)?.xattrs)
    }

    fn space(&self, path: &Path) -> Result<Space> {
        self.0.lock().node(&clean(path)?)?;
        let used: u64 = self
            .0
            .lock()
            .nodes
            .values()
            .filter_map(|n| n.body.as_ref())
            .map(|b| b.pages.len() as u64 * PAGE_BYTES)
            .sum();
        Ok(Space {
            total_bytes: ROOM_BYTES,
            free_bytes: ROOM_BYTES.saturating_sub(used),
        })
    }
}

impl Memory {
    fn begin(&self, path: &Path, write: &Write<'_>) -> Result<Box<dyn Sink>> {
        let mut tree = self.0.lock();
        let path = tree.place(path)?;
        let old = match tree.node(&path) {
            Ok(_) => Some(tree.file(&path)?),
            Err(_) => None,
        };
        let key = (path.clone(), write.id.map(str::to_owned));
        let mut landed = LandedRanges::new(write.checks, write.size);
        let mut body = FileBody::default();
        let aim = match &write.how {
            &WriteMode::Append { writer, seq } if seq > 0 => {
                if old.is_none() && seq > 1 {
                    return Err(Error::out_of_turn(path, writer, seq, 1_u64));
                }
                MemoryAim::Append { writer, seq }
            }
            WriteMode::InPlace | WriteMode::Append { .. } => {
                let (_, old) = match old {
                    Some(old) => old,
                    None => {
                        tree.publish(&path, FileBody::default(), write.mode, None);
                        tree.file(&path)?
                    }
                };
                let append = matches!(write.how, WriteMode::Append { .. });
                MemoryAim::InPlace {
                    start: if append { old.len } else { 0 },
                }
            }
            how => {
                let checked = check_version(&path, how, old.as_ref().map(|(node, _)| node));
                // A writer that lost the answer must be able to begin again, to receive it.
                let is_published = write.attempt > 0 && tree.became(&path, write.id).is_some();
                if !is_published {
                    checked?;
                }
                if let Some(partial) = tree.partials.remove(&key)
                    && write.resume
                    && fits(&partial, write)
                {
                    body = partial.body;
                    for (leaf, ranges, chain) in partial.leaves {
                        landed.recorded(leaf, &ranges, chain);
                        if write.attempt > 0 {
                            landed.tell(leaf);
                        }
                    }
                }
                MemoryAim::Publish
            }
        };
        Ok(Box::new(MemoryUpload {
            memory: self.clone(),
            path,
            key,
            attempt: write.attempt,
            how: write.how.clone(),
            aim,
            origin: write.origin.cloned(),
            size: write.size,
            mode: write.mode,
            checks: write.checks,
            draft: Mutex::new(MemoryDraft { body, landed }),
            over: false,
        }))
    }
}

fn clean(path: &Path) -> Result<PathBuf> {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) if name.len() > NAME_BYTES_MAX => {
                return Err(Error::bad_name(path, "name too long"));
            }
            Component::Normal(name) => clean.push(name),
            Component::CurDir => {}
            Component::ParentDir if clean.pop() => {}
            _ => {
                return Err(Error::bad_name(path, "leads outside"));
            }
        }
    }
    Ok(clean)
}

fn name(path: &Path) -> Result<PathBuf> {
    let path = clean(path)?;
    match path.as_os_str().is_empty() {
        true => Err(Error::directory(path)),
        false => Ok(path),
    }
}

fn now() -> Duration {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}

fn fits(partial: &Partial, write: &Write<'_>) -> bool {
    let size = partial.size.is_none() || write.size.is_none() || partial.size == write.size;
    size && crate::store::same_origin(partial.origin.as_ref(), write.origin)
}

fn check_version(path: &Path, how: &WriteMode, old: Option<&MemoryNode>) -> Result<()> {
    match (how, old) {
        (WriteMode::New, Some(_)) => Err(Error::exists(path)),
        (WriteMode::Replace(Some(_)), None) => Err(Error::changed(path, "it is gone")),
        (WriteMode::Replace(Some(version)), Some(node)) => {
            let differs = match version {
                Version::Strong(digest) => {
                    let body = node.body.clone().unwrap_or_default();
                    let mut all = vec![0; body.len as usize];
                    body.copy_out(0, &mut all);
                    &Digest::of(digest.algorithm(), &all) != digest
                }
                weak => !crate::store::is_no_conflict(weak, &node.stat().version(now())),
            };
            match differs {
                true => Err(Error::changed(path, "size or time")),
                false => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// One file being written.
struct MemoryUpload {
    memory: Memory,
    path: PathBuf,
    key: MemoryKey,
    attempt: u64,
    how: WriteMode,
    aim: MemoryAim,
    origin: Option<crate::Origin>,
    size: Option<u64>,
    mode: Option<u32>,
    checks: Checks,
    draft: Mutex<MemoryDraft>,
    over: bool,
}

enum MemoryAim {
    /// A new body that takes the name at the end.
    Publish,
    /// The body under the name; `start` is where offset 0 is.
    InPlace { start: u64 },
    /// Behind the end of it, at the end.
    Append { writer: u64, seq: u64 },
}

struct MemoryDraft {
    body: FileBody,
    landed: LandedRanges,
}

impl MemoryUpload {
    fn change(&self, change: impl FnOnce(&mut FileBody)) -> Result<()> {
        let mut tree = self.memory.0.lock();
        let (mut node, old) = tree.file(&self.path)?;
        drop(node.body.take());
        tree.nodes.remove(&self.path);
        let mut body = Arc::try_unwrap(old).unwrap_or_else(|shared| (*shared).clone());
        change(&mut body);
        node.body = Some(Arc::new(body));
        node.mtime = now();
        tree.nodes.insert(self.path.clone(), node);
        Ok(())
    }
}

impl BlockWriter for MemoryUpload {
    fn put(&self, block: Block<'_>) -> Result<()> {
        let hashed = BlockHashes::of(block, self.checks);
        let end = block.offset.checked_add(block.bytes.len() as u64);
        if end.is_none_or(|end| end > ROOM_BYTES) {
            return Err(Error::no_space(self.path.clone(), String::new()));
        }
        let mut draft = self.draft.lock();
        if matches!(self.aim, MemoryAim::Append { .. }) && end.is_some_and(|end| end > SMALL_BYTES)
        {
            return Err(Error::too_long_to_append(SMALL_BYTES));
        }
        draft.landed.begin(block.range());
        match self.aim {
            MemoryAim::Publish | MemoryAim::Append { .. } => {
                draft.body.copy_in(block.offset, block.bytes)
            }
            MemoryAim::InPlace { start } => {
                self.change(|body| body.copy_in(start + block.offset, block.bytes))?;
            }
        }
        draft.landed.landed(block.range(), hashed);
        Ok(())
    }

    fn said(&self, leaf: u64, chain: Chain) -> Result<()> {
        self.draft.lock().landed.said(leaf, chain);
        Ok(())
    }
}

impl Sink for MemoryUpload {
    fn done(&self) -> Extents {
        self.draft.lock().landed.done().clone()
    }

    fn commit(&self) -> Result<Extents> {
        Ok(Extents::new()) // A power cut leaves nothing.
    }

    fn finish(mut self: Box<Self>, whole: &Expected) -> Result<Finished> {
        let mut draft = self.draft.lock();
        let MemoryDraft { body, landed } = &mut *draft;
        let mut finished = match self.aim {
            MemoryAim::Publish | MemoryAim::Append { .. } => {
                landed.settle(&self.path, whole, &|at, bytes| {
                    body.copy_out(at, bytes);
                    Ok(())
                })?
            }
            MemoryAim::InPlace { .. } => {
                let digest = whole.digest.as_ref();
                if let Some(expected) = digest {
                    let found = self.memory.digest(&self.path, expected.algorithm(), None)?;
                    if &found != expected {
                        return Err(Error::corrupt(
                            self.path.clone(),
                            expected.to_string(),
                            found.to_string(),
                        ));
                    }
                }
                Finished {
                    digests: digest.cloned().into_iter().collect(),
                    in_place: true,
                    ..Finished::default()
                }
            }
        };
        let mut tree = self.memory.0.lock();
        let node = match self.aim {
            MemoryAim::Publish => {
                let old = tree.nodes.get(&self.path).cloned();
                if old.as_ref().is_some_and(|n| n.body.is_none()) {
                    return Err(Error::directory(self.path.clone()));
                }
                check_version(&self.path, &self.how, old.as_ref())?;
                let mut body = std::mem::take(body);
                body.set_len(whole.size.or(self.size).unwrap_or(body.len));
                let mode = whole.mode.or(if old.is_none() { self.mode } else { None });
                tree.publish(&self.path, body, mode, whole.mtime)
            }
            MemoryAim::InPlace { .. } | MemoryAim::Append { .. } => {
                if let MemoryAim::Append { writer, seq } = self.aim {
                    tree.append(&self.path, (writer, seq), body, self.mode)?;
                    finished.in_place = true;
                }
                let mut node = tree.node(&self.path)?;
                node.mtime = whole.mtime.unwrap_or(node.mtime);
                node.mode = whole.mode.unwrap_or(node.mode);
                tree.nodes.insert(self.path.clone(), node.clone());
                node
            }
        };
        finished.version = node.stat().version(now());
        if self.attempt > 0 {
            let (path, id) = self.key.clone();
            let was = (id, node.unique, finished.version.clone());
            tree.was.insert(path, was);
        }
        drop((tree, draft));
        self.over = true;
        Ok(finished)
    }

    fn abandon(mut self: Box<Self>) -> Result<()> {
        self.over = true;
        Ok(())
    }

    crate::has!(self, SinkFacets: resume);
}

impl crate::Resume for MemoryUpload {
    fn newly_whole(&self, count_max: usize) -> Vec<(u64, Chain)> {
        self.draft.lock().landed.newly_whole(count_max)
    }

    fn unseen(&self) -> Extents {
        match self.attempt {
            0 => Extents::new(),
            _ => self.done(),
        }
    }

    fn show(&self, block: Block<'_>) -> Result<()> {
        let mut draft = self.draft.lock();
        let MemoryDraft { body, landed } = &mut *draft;
        let mut found = vec![0; block.bytes.len()];
        body.copy_out(block.offset, &mut found);
        if self.attempt > 0 && found != block.bytes {
            landed.lose(block.range());
        }
        Ok(())
    }
}

impl Drop for MemoryUpload {
    /// Keeps the partial for a resume.
    fn drop(&mut self) {
        if self.over || !matches!(self.aim, MemoryAim::Publish) {
            return;
        }
        let mut draft = self.draft.lock();
        let MemoryDraft { body, landed } = &mut *draft;
        let leaves: Vec<_> = landed
            .done()
            .iter()
            .flat_map(leaves_of)
            .map(|leaf| {
                (
                    leaf,
                    landed.done().within(leaf_range(leaf)).collect(),
                    landed.chain(leaf),
                )
            })
            .collect();
        if leaves.is_empty() {
            return;
        }
        let partial = Partial {
            origin: self.origin.clone(),
            size: self.size,
            body: std::mem::take(body),
            leaves,
        };
        drop(draft);
        self.memory
            .0
            .lock()
            .partials
            .insert(self.key.clone(), partial);
    }
}

/// The bytes of a file; pages that are all zero are absent.
#[derive(Clone, Debug, Default)]
struct FileBody {
    pages: BTreeMap<u64, Box<[u8]>>,
    len: u64,
}

impl FileBody {
    fn copy_out(&self, offset: u64, bytes: &mut [u8]) {
        for (page, within, part) in parts(offset, bytes.len()) {
            match self.pages.get(&page) {
                Some(found) => {
                    bytes[part.clone()].copy_from_slice(&found[within..within + part.len()])
                }
                None => bytes[part].fill(0),
            }
        }
    }

    fn copy_in(&mut self, offset: u64, bytes: &[u8]) {
        self.len = self.len.max(offset + bytes.len() as u64);
        for (page, within, part) in parts(offset, bytes.len()) {
            let new = &bytes[part];
            if new.iter().all(|&b| b == 0) && !self.pages.contains_key(&page) {
                continue;
            }
            let kept = self
                .pages
                .entry(page)
                .or_insert_with(|| vec![0; PAGE_BYTES as usize].into());
            kept[within..within + new.len()].copy_from_slice(new);
        }
    }

    fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.pages.split_off(&len.div_ceil(PAGE_BYTES));
            if let Some(last) = self.pages.get_mut(&(len / PAGE_BYTES)) {
                last[(len % PAGE_BYTES) as usize..].fill(0);
            }
        }
        self.len = len;
    }
}

/// Cuts bytes at the pages: page, offset in it, and which of the bytes.
fn parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, Range<usize>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let (page, within) = (
            (offset + at as u64) / PAGE_BYTES,
            ((offset + at as u64) % PAGE_BYTES) as usize,
        );
        let part = at..len.min(at + PAGE_BYTES as usize - within);
        at = part.end;
        (!part.is_empty()).then_some((page, within, part))
    })
}

const PAGE_BYTES: u64 = 1 << 16;

/// The room that the store reports; a file cannot be longer.
const ROOM_BYTES: u64 = 1 << 44;

/// The limit of Linux.
const NAME_BYTES_MAX: usize = 255;

const _: () = assert!(SMALL_BYTES.is_multiple_of(PAGE_BYTES));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_every_store_promises() {
        crate::check::all(&|| Box::new(Memory::new()));
    }
}
