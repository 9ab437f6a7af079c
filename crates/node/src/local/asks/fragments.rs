//! Fragments of named files for local programs: the local files themselves.
//!
//! The chaining values of the leaves of each fragment are kept in the state directory, under the digest that they merge
//! to. So a program compares each leaf before it uses a byte of it.

use crate::local::{
    answers::{LocalResult, done, not_open, opened},
    asks::read::fresh_of,
    client::{Client, OpenHandle},
    connection::LocalReply,
    refusals::{self, url},
};
use godwit_catalog::{CatalogEntry, CatalogHome, is_good};
use godwit_core::{Algorithm, Block, Digest, Extents, Hashing, LEAF_BYTES, Leaves, Piece, Url};
use godwit_farm::{CopyAim, FileDraft, FileFacts, FragmentSlot, Logical};
use godwit_local::{Kind, Refusal};
use godwit_store::{
    BlockWriter, Error, Expected, Store,
    engine::{self, CopyOptions, CopyTask, OverwriteRule},
};
use godwit_wire::{
    door::call::{DoorVersion, Text},
    local::{
        Response,
        frame::BODY_BYTES_MAX,
        request::{self, FileTarget},
        response,
    },
};
use parking_lot::Mutex;
use std::{
    fs::{self, File},
    io,
    os::{fd::AsFd, unix::fs::FileExt},
    path::{Component, Path, PathBuf},
    sync::Arc,
};

/// A fragment that a program writes. Dropped without a word, it takes the draft with it.
pub(crate) struct FragmentWriter {
    url: Url,
    index: u64,
    mode: Option<u32>,
    file: File,
    parts: Option<(FileDraft, FragmentTarget)>,
}

/// The place where a fragment is to lie.
enum FragmentTarget {
    /// A file of this machine, and its directory.
    Local(Box<FragmentSlot>, PathBuf),
    /// Another node, which gets the bytes at the end.
    Site(String),
}

impl FragmentWriter {
    /// Leaves the draft to the other processes of its job, without this fragment.
    pub(crate) fn give_up(mut self) {
        if let Some((_, FragmentTarget::Local(slot, _))) = self.parts.take() {
            slot.abandon();
        }
    }
}

impl Drop for FragmentWriter {
    fn drop(&mut self) {
        if let Some((draft, target)) = self.parts.take() {
            if let FragmentTarget::Local(slot, _) = target {
                slot.abandon();
            }
            draft.forget();
        }
    }
}

impl Client {
    fn names(&self) -> Result<Logical, Refusal> {
        match (&self.keeping.bounds.names, &self.other_names) {
            (Some(names), None) => names.logical(&self.keeping.cancel),
            _ => Err(self.other_names.clone().unwrap_or_default()),
        }
    }

    /// Tells the lengths of the fragments of a file; of one piece that it is one.
    pub(crate) fn fragments(&self, place: &FileTarget, reply: &LocalReply) -> LocalResult {
        let url = url(&place.url)?;
        let (version, sizes) = match self.names()?.entry(&url.path_from_root()) {
            Ok(entry) => {
                let sizes: Vec<u64> = entry.fragments.iter().map(|one| one.size).collect();
                let whole = vec![entry.size.unwrap_or_default()];
                (entry.version, if sizes.is_empty() { whole } else { sizes })
            }
            Err(Error::Missing { .. }) => (0, Vec::new()),
            Err(error) => return Err(bad(&url, &error)),
        };
        let body: Vec<u8> = sizes.iter().flat_map(|size| size.to_le_bytes()).collect();
        reply.tell_with(Response::Fragments { version }, &body, &[]);
        Ok(None)
    }

    /// Opens a fragment.
    pub(crate) fn fragment(
        &self,
        asked: &request::FragmentRequest,
        reply: &LocalReply,
    ) -> LocalResult {
        let url = url(&asked.url)?;
        let names = self.names()?;
        match &asked.job {
            Some(job) => self.write_fragment((&names, &url), asked, job, reply),
            None => self.read_fragment((&names, &url), asked, reply),
        }
    }

    fn read_fragment(
        &self,
        (names, url): (&Logical, &Url),
        asked: &request::FragmentRequest,
        reply: &LocalReply,
    ) -> LocalResult {
        let entry = current(names, url, asked)?;
        let part = part(&entry, url, asked)?;
        let its = match entry.fragments.is_empty() {
            true => url.clone(),
            false => refusals::url(&format!("{url}#{}/{}", asked.index, asked.count))?,
        };
        let mut found = self.lying(&part);
        if asked.differs
            && let Some((home, _)) = found.take()
        {
            names.mark(&part.name.0, &home);
        }
        if found.is_none() && asked.replicate && !asked.differs {
            self.replicate(names, &its)
                .map_err(|error| bad(url, &error))?;
            let entry = names
                .entry(&part.name.0)
                .map_err(|error| bad(url, &error))?;
            found = self.lying(&entry);
        }
        let digest = blake3_of(&part);
        let Some(((home, file), digest)) = found.zip(digest) else {
            return self.fetch(&its, reply);
        };
        let size = part.size.unwrap_or_default();
        let Some(chains) = self.chains(&file, size, &digest) else {
            names.mark(&part.name.0, &home);
            return self.fetch(&its, reply);
        };
        let told = response::OpenedFile {
            handle: self.keep(OpenHandle::Lying),
            size,
            version: DoorVersion::Strong(Text(digest)),
            was_here: true,
            ..response::OpenedFile::default()
        };
        reply.tell_with(Response::Opened(told), &chains, &[file.as_fd()]);
        Ok(None)
    }

    /// Fetches a fragment as a whole, as long as the program waits for it.
    fn fetch(&self, its: &Url, reply: &LocalReply) -> LocalResult {
        let is_wanted = || !reply.is_over();
        let (depot, fresh) = (&self.keeping.depot, fresh_of(request::Freshness::Usual));
        let reading = depot.read_while(its, &self.who, fresh, &is_wanted);
        let wanted = format!("read {}", its.without_password());
        let reading = reading.map_err(|error| refusals::depot(&wanted, Some(its), &error))?;
        self.hand_over(reading, reply);
        Ok(None)
    }

    /// Finds the home of a fragment on this machine, and opens its file.
    fn lying(&self, part: &CatalogEntry) -> Option<(CatalogHome, File)> {
        let mut homes = part.homes.iter().filter(|home| is_good(home, part));
        homes.find_map(|home| {
            let path = self.local_path(&home.url.parse().ok()?)?;
            let file = File::open(path).ok()?;
            let is_whole = Some(file.metadata().ok()?.len()) == part.size;
            is_whole.then(|| (home.clone(), file))
        })
    }

    /// Returns the path of a URL of this machine's own node.
    fn local_path(&self, url: &Url) -> Option<PathBuf> {
        let (name, export) = self.keeping.bounds.export.as_ref()?;
        let is_ours = url.host().is_some_and(|host| host.to_string() == *name);
        let below = url.as_path().strip_prefix("/").unwrap_or(url.as_path());
        let is_plain = below
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        (is_ours && is_plain).then(|| export.join(below))
    }

    fn replicate(&self, names: &Logical, its: &Url) -> godwit_store::Result<()> {
        let Some((site, _)) = &self.keeping.bounds.export else {
            return Ok(());
        };
        let aim = CopyAim {
            site: Some(site.clone()),
            copy: true,
            ..CopyAim::default()
        };
        let task = CopyTask {
            source: names.place(its),
            target: names.aimed(aim).place(its),
            tree: false,
            mode: None,
            range: None,
            rule: OverwriteRule::Always,
            delete: false,
        };
        let options = CopyOptions::new(self.keeping.cancel.clone());
        let mut copied = engine::copy(vec![task], &options, &|_: &engine::CopyEvent<'_>| ());
        match copied.errors.is_empty() {
            true => Ok(()),
            false => Err(copied.errors.remove(0)),
        }
    }

    /// Returns the chaining values of a file, which is read once if they are not known; `None`: it has other bytes.
    fn chains(&self, file: &File, size: u64, digest: &Digest) -> Option<Vec<u8>> {
        if size <= LEAF_BYTES {
            return Some(Vec::new());
        }
        if let Ok(kept) = fs::read(self.kept_chains(digest))
            && kept.len() as u64 == size.div_ceil(LEAF_BYTES) * CHAIN_BYTES
        {
            return Some(kept);
        }
        let (mut leaves, mut buffer, mut at) = (Leaves::new(), vec![0; LEAF_BYTES as usize], 0);
        while at < size {
            let len = usize::try_from((size - at).min(LEAF_BYTES)).unwrap_or_default();
            file.read_exact_at(&mut buffer[..len], at).ok()?;
            leaves.add(Piece::of(Block::at(at, &buffer[..len])));
            at += len as u64;
        }
        if leaves.root(size).as_ref() != Some(digest) {
            return None;
        }
        let chains: Vec<u8> = leaves.known(size).flat_map(|(_, chain)| chain.0).collect();
        self.keep_chains(digest, &chains);
        Some(chains)
    }

    fn kept_chains(&self, digest: &Digest) -> PathBuf {
        self.keeping.bounds.state.join("leaves").join(digest.hex())
    }

    /// Keeps chaining values. Without them the fragment is read once more.
    fn keep_chains(&self, digest: &Digest, chains: &[u8]) {
        let path = self.kept_chains(digest);
        let new = path.with_extension(&self.connection);
        let above = path.parent().unwrap_or(Path::new(""));
        let kept = fs::create_dir_all(above)
            .and_then(|()| fs::write(&new, chains))
            .and_then(|()| fs::rename(&new, &path));
        if let Err(cause) = kept {
            tracing::info!(path = %path.display(), %cause, "chaining values are not kept");
        }
    }

    fn write_fragment(
        &self,
        (names, url): (&Logical, &Url),
        asked: &request::FragmentRequest,
        job: &str,
        reply: &LocalReply,
    ) -> LocalResult {
        let failed = |error: Error| bad(url, &error);
        let base = match asked.version {
            0 => None,
            _ => Some(current(names, url, asked)?),
        };
        let old = base
            .as_ref()
            .map(|entry| part(entry, url, asked))
            .transpose()?;
        let ours = self.keeping.bounds.export.as_ref().map(|(name, _)| name);
        let site = asked.site.as_ref().or(ours).ok_or_else(|| {
            let said = "this machine is no node of the farm, and no host is named";
            let next = "make it one: godwit init NAME --export DIR; or name a host: gfs_pio_set_view_index";
            Refusal::new(Kind::Unsupported, format!("write {url}"), said).next(next)
        })?;
        let name = url.path_from_root();
        let sites = names
            .sites(name.parent().unwrap_or(Path::new("")))
            .map_err(failed)?;
        if !sites.contains(site) {
            let said = format!("the catalog has no location at {site} where it could lie");
            let next = format!(
                "godwit location ls shows them; godwit location add {site} URL grid:/ adds one"
            );
            return Err(Refusal::new(Kind::Missing, format!("write {url}"), said).next(next));
        }
        let draft = names
            .join(&name, asked.count, base.as_ref(), job)
            .map_err(failed)?;
        let (file, target) = self.begin_fragment(&draft, asked.index, site, url)?;
        let fragment = FragmentWriter {
            url: url.clone(),
            index: asked.index,
            mode: asked.mode,
            file,
            parts: Some((draft, target)),
        };
        let mut size = 0;
        if let Some(old) = old {
            size = old.size.unwrap_or_default();
            let into = Filling(&fragment.file, "a fragment");
            let read = names.read(&old.name.0, &Extents::from(0..size), 1, &into);
            read.map_err(failed)?;
        }
        let kept = Arc::new(Mutex::new(Some(fragment)));
        let held = kept.lock();
        let handle = self.keep(OpenHandle::Fragment(Arc::clone(&kept)));
        if let Some(fragment) = &*held {
            reply.tell_with(opened(handle, size), b"", &[fragment.file.as_fd()]);
        }
        Ok(None)
    }

    /// Begins the file of a fragment: where it is to lie if that is here, else one without a name.
    fn begin_fragment(
        &self,
        draft: &FileDraft,
        index: u64,
        site: &str,
        url: &Url,
    ) -> Result<(File, FragmentTarget), Refusal> {
        let disk = |cause: io::Error| refusals::disk(&format!("write {url}"), &cause);
        let (export, state) = (&self.keeping.bounds.export, &self.keeping.bounds.state);
        if export.as_ref().is_some_and(|(name, _)| name == site) {
            let slot = draft.slot(index, site).map_err(|error| bad(url, &error))?;
            let path = self.local_path(slot.url()).unwrap_or_default();
            match new_file(&path) {
                Ok(file) => return Ok((file, FragmentTarget::Local(Box::new(slot), path))),
                Err(cause) => {
                    slot.abandon();
                    // Without that directory another one is served than the configuration says.
                    if cause.kind() != io::ErrorKind::NotFound {
                        return Err(disk(cause));
                    }
                }
            }
        }
        let path = state.join(format!("fragment-{index}-{}", self.connection));
        let file = new_file(&path).map_err(disk)?;
        fs::remove_file(&path).map_err(disk)?;
        Ok((file, FragmentTarget::Site(site.into())))
    }

    /// Notes that a fragment is whole, and publishes its file if it was the last.
    pub(crate) fn landed(&self, landed: &request::Landed, chains: &[u8]) -> LocalResult {
        let kept = match self.open.lock().remove(&landed.handle) {
            Some(OpenHandle::Fragment(kept)) => kept,
            _ => return Err(not_open("end a fragment", landed.handle)),
        };
        let Some(mut fragment) = kept.lock().take() else {
            return Err(not_open("end a fragment", landed.handle));
        };
        let wanted = format!("write {}", fragment.url);
        let disk = |cause: io::Error| refusals::disk(&wanted, &cause);
        let (size, digest) = (landed.size, &landed.digest.0);
        if fragment.file.metadata().map_err(disk)?.len() != size {
            let said = "it is not as long as was told; another program writes it";
            return Err(Refusal::new(Kind::Changed, wanted, said));
        }
        let Some((draft, target)) = fragment.parts.take() else {
            return Err(not_open("end a fragment", landed.handle));
        };
        let placed = match target {
            FragmentTarget::Local(slot, path) => {
                let above = path.parent().unwrap_or(Path::new("/"));
                let durable = File::open(above).and_then(|above| above.sync_all());
                match durable {
                    Ok(()) => slot
                        .publish(size, digest)
                        .map_err(|error| bad(&fragment.url, &error)),
                    Err(cause) => {
                        slot.abandon();
                        Err(disk(cause))
                    }
                }
            }
            FragmentTarget::Site(site) => {
                send(&draft, &fragment, &site, size).map_err(|error| bad(&fragment.url, &error))
            }
        };
        if let Err(refusal) = placed {
            draft.forget();
            return Err(refusal);
        }
        let is_whole = chains.len() as u64 == size.div_ceil(LEAF_BYTES) * CHAIN_BYTES;
        if size > LEAF_BYTES && is_whole && chains.len() < BODY_BYTES_MAX {
            self.keep_chains(digest, chains);
        }
        let told = FileFacts {
            mode: fragment.mode,
            ..FileFacts::default()
        };
        let published = draft.publish_if_whole(&told);
        if !published.map_err(|error| bad(&fragment.url, &error))? {
            let mut drafts = self.drafts.lock();
            if drafts.len() >= DRAFTS_MAX {
                drafts.remove(0);
            }
            drafts.push(draft);
        }
        done(response::Done {
            files: 1,
            bytes: size,
            ..response::Done::default()
        })
    }
}

fn new_file(path: &Path) -> io::Result<File> {
    let mut how = File::options();
    how.read(true).write(true).create_new(true).open(path)
}

/// Sends a fragment to its node.
fn send(
    draft: &FileDraft,
    fragment: &FragmentWriter,
    site: &str,
    size: u64,
) -> godwit_store::Result<()> {
    let sink = draft.sink(fragment.index, site, Some(size))?;
    let (mut buffer, mut at) = (vec![0; LEAF_BYTES as usize], 0);
    while at < size {
        let len = usize::try_from((size - at).min(LEAF_BYTES)).unwrap_or_default();
        let read = fragment.file.read_exact_at(&mut buffer[..len], at);
        read.map_err(|cause| Error::io("a fragment", cause))?;
        sink.put(Block::at(at, &buffer[..len]))?;
        at += len as u64;
    }
    sink.finish(&Expected::of_size(size)).map(drop)
}

/// Finds the version of a file that a program has seen.
fn current(
    names: &Logical,
    url: &Url,
    asked: &request::FragmentRequest,
) -> Result<CatalogEntry, Refusal> {
    let entry = names
        .entry(&url.path_from_root())
        .map_err(|error| bad(url, &error))?;
    if entry.version == asked.version {
        return Ok(entry);
    }
    let said = "another version of it was published since it was opened";
    Err(Refusal::new(Kind::Changed, format!("open {url}"), said).next("open it again"))
}

/// Returns a fragment; a file in one piece is its own only one.
fn part(
    entry: &CatalogEntry,
    url: &Url,
    asked: &request::FragmentRequest,
) -> Result<CatalogEntry, Refusal> {
    let mut parts = entry.parts();
    if parts.is_empty() {
        parts.push(CatalogEntry {
            name: godwit_wire::door::call::Name(url.path_from_root()),
            ..entry.clone()
        });
    }
    let count = parts.len() as u64;
    let index = usize::try_from(asked.index).unwrap_or(usize::MAX);
    if count == asked.count && index < parts.len() {
        return Ok(parts.swap_remove(index));
    }
    let said = format!("it has {count} fragments");
    Err(Refusal::new(
        Kind::Invalid,
        format!("open fragment {index} of {url}"),
        said,
    ))
}

fn blake3_of(entry: &CatalogEntry) -> Option<Digest> {
    let mut digests = entry.digests.iter().map(|Text(digest)| digest);
    digests
        .find(|digest| digest.algorithm() == Algorithm::Blake3)
        .cloned()
}

fn bad(url: &Url, error: &Error) -> Refusal {
    refusals::store(&format!("use {url}"), url, error)
}

/// Writes bytes into a file in any order; the name is for errors.
pub(crate) struct Filling<'a>(pub(crate) &'a File, pub(crate) &'static str);

impl BlockWriter for Filling<'_> {
    fn put(&self, block: Block<'_>) -> godwit_store::Result<()> {
        let written = self.0.write_all_at(block.bytes, block.offset);
        written.map_err(|cause| Error::io(self.1, cause))
    }
}

/// Returns the BLAKE3 digest of the first bytes of a file.
pub(crate) fn digest(file: &File, size: u64) -> io::Result<Digest> {
    let mut hashing = Hashing::new(Algorithm::Blake3);
    let mut buffer = vec![0; LEAF_BYTES as usize];
    let mut offset = 0;
    while offset < size {
        let len = usize::try_from((size - offset).min(LEAF_BYTES)).unwrap_or_default();
        file.read_exact_at(&mut buffer[..len], offset)?;
        hashing.update(&buffer[..len]);
        offset += len as u64;
    }
    Ok(hashing.finish())
}

const CHAIN_BYTES: u64 = 32;
/// The most drafts of jobs of which a program keeps the leases.
const DRAFTS_MAX: usize = 1024;
