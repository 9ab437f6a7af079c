//! The export under the rights of one client. If there is a file of rights, each verb of the store asks it first, on
//! every port.
//!
//! A rule is about paths. So links in a path are resolved before the check, and the directory then follows none: a part
//! of the path that becomes a link meanwhile is refused.

use super::export::Export;
use crate::config::{AccessWord, Porter};
use godwit_core::{Algorithm, Chain, Digest, Extents, Url, Version};
use godwit_store::{
    BlockWriter, Capabilities, Entry, EntryKind, Error, Finished, HopStatus, NextFile, Partial,
    REFERS, Read, Remedy, RemovalKind, Result, Set, Sink, Small, SmallResult, SmallWrite, Space,
    Stat, Store, StoreExt, Write, WriteMode, Xattrs, channel::Watch,
};
use godwit_trust::{Identity, PERMISSIONS, Permission, Rights};
use parking_lot::Mutex;
use std::{
    cell::RefCell,
    collections::VecDeque,
    ffi::OsString,
    fs,
    net::SocketAddr,
    ops::Range,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::MetadataExt,
    },
    path::{Path, PathBuf},
    sync::Arc,
};

/// An export and the rights of one client in it.
#[derive(Clone, Debug)]
pub(crate) struct GuardedExport {
    dir: Export,
    who: Option<Identity>,
    /// Address of the client, for the log.
    from: Option<SocketAddr>,
    /// `None`: what the kernel permits.
    rules: Option<Arc<RightsFile>>,
}

/// A file of rights, read again when it changes; or a program that is asked.
#[derive(Debug)]
pub(crate) struct RightsFile {
    file: PathBuf,
    kept: Mutex<KeptRights>,
    porter: Option<Porter>,
}

#[derive(Debug)]
struct KeptRights {
    rights: Arc<Rights>,
    /// Identifies the version of the file that was read last, valid or not.
    seen: Option<RightsStamp>,
}

/// Something that differs when a file was changed: device, inode, size, time of change.
type RightsStamp = (u64, u64, u64, i64, i64);

impl RightsFile {
    /// Has a program be asked.
    pub(crate) fn of_program(porter: Porter) -> Self {
        let rights = Arc::new(Rights::all());
        Self {
            file: PathBuf::new(),
            kept: Mutex::new(KeptRights { rights, seen: None }),
            porter: Some(porter),
        }
    }

    /// Reads a file that must be good.
    pub(crate) fn read(file: &Path) -> godwit_trust::Result<Self> {
        let seen = look(file);
        let rights = Arc::new(Rights::read(file)?);
        let count = rights.rules().len();
        tracing::info!(file = %file.display(), rules = count, "ask the rights");
        Ok(Self {
            file: file.into(),
            kept: Mutex::new(KeptRights { rights, seen }),
            porter: None,
        })
    }

    /// Tells whether it may only grow.
    fn is_output(&self, path: &Path) -> bool {
        let outputs = self
            .porter
            .as_ref()
            .map_or(&[][..], |porter| porter.outputs);
        outputs.iter().any(|output| path == Path::new(output))
    }

    /// Returns what counts now: what the file says, or said when it was last good.
    fn now(&self) -> Arc<Rights> {
        let mut kept = self.kept.lock();
        if self.porter.is_some() {
            return Arc::clone(&kept.rights);
        }
        let seen = look(&self.file);
        if seen != kept.seen {
            kept.seen = seen;
            match Rights::read(&self.file) {
                Ok(rights) => {
                    tracing::info!(file = %self.file.display(), rules = rights.rules().len(), "read the rights again");
                    kept.rights = Arc::new(rights);
                }
                Err(error) => {
                    tracing::error!(%error, "the rights cannot be read: those of before go on to count");
                }
            }
        }
        Arc::clone(&kept.rights)
    }
}

fn look(file: &Path) -> Option<RightsStamp> {
    let meta = fs::metadata(file).ok()?;
    Some((
        meta.dev(),
        meta.ino(),
        meta.size(),
        meta.ctime(),
        meta.ctime_nsec(),
    ))
}

/// The rights at one moment, for one person.
struct CurrentRights<'a> {
    guarded: &'a GuardedExport,
    rules: &'a RightsFile,
    rights: Arc<Rights>,
}

impl CurrentRights<'_> {
    fn may(&self, deed: Permission, path: &Path) -> bool {
        self.word(deed, path) == AccessWord::Yes
    }

    fn word(&self, deed: Permission, path: &Path) -> AccessWord {
        let who = self.guarded.who.as_ref();
        match &self.rules.porter {
            Some(porter) => (porter.decide)(who, deed, path),
            None if self.rights.decide(who, deed, path).allowed => AccessWord::Yes,
            None => AccessWord::No,
        }
    }

    fn must(&self, deed: Permission, path: &Path) -> Result<()> {
        self.must_any(&[deed], path, deed)
    }

    /// Checks for any of these rights; a refusal names `refused`.
    fn must_any(&self, deeds: &[Permission], path: &Path, refused: Permission) -> Result<()> {
        for &deed in deeds {
            match self.word(deed, path) {
                AccessWord::Yes => return Ok(()),
                AccessWord::No => {}
                AccessWord::Elsewhere(url) => {
                    return Err(self.denied(deed, path, "referred", format!("{REFERS}{url}")));
                }
            }
        }
        Err(self.refusal(refused, path))
    }

    fn refusal(&self, deed: Permission, path: &Path) -> Error {
        let who = self.guarded.who.as_ref();
        if self.rules.porter.is_some() {
            let because = "the program that serves it says no";
            return self.denied(deed, path, because, because.into());
        }
        let decision = self.rights.decide(who, deed, path);
        let because = decision.because();
        self.denied(deed, path, &because, decision.refusal())
    }

    /// The log has the rule; the client receives only what it may know.
    fn denied(&self, deed: Permission, path: &Path, because: &str, said: String) -> Error {
        let who = self.guarded.subject();
        let (deed, at, file) = (deed.as_str(), path.display(), self.rules.file.display());
        tracing::info!(who, deed, path = %at, because, %file, "denied");
        Error::denied(path, said)
    }

    /// Rights depend on the path. So the files of a directory must not come under other rules by a rename, and a file
    /// must not become readable by it.
    fn must_rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.must(Permission::Delete, from)?;
        self.must(Permission::Create, to)?;
        if self.may(Permission::Read, to) {
            self.must(Permission::Read, from)?;
        }
        let stat = self.guarded.dir.stat(from);
        if !stat.is_ok_and(|stat| stat.kind == EntryKind::Directory) {
            return Ok(());
        }
        for (deed, path) in [(Permission::Delete, from), (Permission::Create, to)] {
            if let Some(rule) = self.rights.of_below(path) {
                let number = rule.number();
                let said = format!("rule {number} of the rights speaks of a place below");
                return Err(self.denied(deed, path, &format!("rule {number}: {rule}"), said));
            }
        }
        Ok(())
    }
}

impl GuardedExport {
    /// Returns the export under the rights of a client; `who` is `None` if the client gave no name.
    pub(crate) fn new(dir: Export, who: Option<Identity>, rules: Option<Arc<RightsFile>>) -> Self {
        Self {
            dir,
            who,
            from: None,
            rules,
        }
    }

    /// Returns the same for a client at that address.
    pub(crate) fn of_client(self, at: SocketAddr) -> Self {
        Self {
            from: Some(at),
            ..self
        }
    }

    /// Returns how the log calls the client.
    pub(crate) fn subject(&self) -> &str {
        self.who.as_ref().map_or("anonymous", Identity::subject)
    }

    /// Logs an operation with its path and its user.
    pub(crate) fn audited<T, E>(
        &self,
        did: &str,
        path: &Path,
        done: std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        if done.is_ok() {
            let from = self.from.map(tracing::field::display);
            tracing::info!(did, path = %path.display(), who = self.subject(), from, "changed");
        }
        done
    }

    /// Checks the right to list, before a listing is announced.
    pub(crate) fn may_list(&self, path: &Path) -> Result<()> {
        self.asked(path, Permission::List).map(drop)
    }

    /// As [`Export::leaves`].
    pub(crate) fn leaves(&self, path: &Path, leaves: Range<u64>) -> Result<Vec<Chain>> {
        self.dir
            .leaves(&self.asked(path, Permission::Read)?, leaves)
    }

    /// As [`Export::partial`]; `None` without the right to upload.
    pub(crate) fn partial(&self, path: &Path, id: Option<&str>) -> Result<Option<Partial>> {
        match self.to_upload(path)? {
            Some(path) => self.dir.partial(&path, id),
            None => Ok(None),
        }
    }

    /// As [`Export::abandon`].
    pub(crate) fn abandon(&self, path: &Path, id: Option<&str>) -> Result<()> {
        match self.to_upload(path)? {
            Some(path) => self.dir.abandon(&path, id),
            None => self.asked(path, Permission::Create).map(drop),
        }
    }

    /// As [`Export::lend`].
    pub(crate) fn lend(&self, path: &Path) -> Result<(fs::File, Stat)> {
        self.dir.lend(&self.asked(path, Permission::Read)?)
    }

    /// Checks the right to run a program beside a file, and returns the path of the file below the export.
    pub(crate) fn may_run(&self, path: &Path) -> Result<PathBuf> {
        let path = self.asked(path, Permission::Read)?;
        self.dir.lend(&path)?;
        self.asked(&path, Permission::Run)
    }

    /// Puts a file that a program wrote under a new name, durably.
    pub(crate) fn place(&self, from: &Path, to: &Path) -> Result<()> {
        let to = self.asked_of_name(to, Permission::Create)?;
        self.dir.rename_new(from, &to)?;
        self.dir.flush(to.parent().unwrap_or(Path::new("")))
    }

    /// Asks whether the client may run a program that is beside no file.
    pub(crate) fn may_run_here(&self) -> Result<()> {
        self.asked(Path::new(""), Permission::Run).map(drop)
    }

    /// As [`Export::spool`], for an upload that was begun.
    pub(crate) fn spool(&self, path: &Path) -> Result<fs::File> {
        match self.to_upload(path)? {
            Some(path) => self.dir.spool(&path),
            None => Err(Error::denied(path, "")),
        }
    }

    /// As [`Export::is_our_own`].
    pub(crate) fn is_our_own(&self) -> bool {
        self.dir.is_our_own()
    }

    /// As [`Export::share`]; what others put together is changed there.
    pub(crate) fn share(&self, path: &Path, write: &Write<'_>) -> Result<Box<dyn Sink>> {
        self.dir.share(&self.asked(path, Permission::Write)?, write)
    }

    /// As [`Export::set_group`].
    pub(crate) fn set_group(&self, path: &Path, group: u32) -> Result<()> {
        let done = self
            .dir
            .set_group(&self.asked(path, Permission::Write)?, group);
        self.audited("set group", path, done)
    }

    /// As [`Export::digest_watched`].
    pub(crate) fn digest_watched(
        &self,
        path: &Path,
        by: Algorithm,
        range: Option<Range<u64>>,
        watch: &Watch,
    ) -> Result<Digest> {
        let path = self.asked(path, Permission::Read)?;
        self.dir.digest_watched(&path, by, range, watch)
    }

    /// As [`Export::stat_of_name`], for a client that may remove the name.
    pub(crate) fn stat_of_name(&self, path: &Path) -> Result<Stat> {
        let path = self.asked_of_name(path, Permission::Delete)?;
        self.dir.stat_of_name(&path)
    }

    /// Checks the right to stage a file of another server in this machine's depot, or to see the client's files there.
    /// Only a rule gives it, since the file is fetched with this node's credential. Files of this machine, and URLs
    /// with a user, are always refused.
    pub(crate) fn may_stage(&self, url: Option<&Url>) -> Result<()> {
        let place = url.map(|url| url.path_form().ok_or(url)).transpose();
        let place = place.map_err(|url| no_stage(url, "only files of servers, without a user"))?;
        let place = place.map(|place| PathBuf::from(OsString::from_vec(place)));
        let rules = self.rules.as_ref().filter(|rules| rules.porter.is_none());
        let (Some(rules), Some(who)) = (rules, &self.who) else {
            let because = "only users named in the rights of this node may (may = \"stage\")";
            return Err(match url {
                Some(url) => no_stage(url, because),
                None => no_stage(&"its depot", because),
            });
        };
        let rights = rules.now();
        let is_allowed = match &place {
            Some(place) => {
                let other = twin(place);
                let twin = rights.decide(Some(who), Permission::Stage, &other);
                let is_forbidden = twin.rule.is_some() && !twin.allowed;
                rights.decide(Some(who), Permission::Stage, place).allowed && !is_forbidden
            }
            None => rights.may_somewhere(Some(who), Permission::Stage),
        };
        if is_allowed {
            return Ok(());
        }
        let at = place.unwrap_or_else(|| "/".into());
        let decision = rights.decide(Some(who), Permission::Stage, &at);
        let file = rules.file.display();
        tracing::info!(who = who.subject(), deed = "stage", path = %at.display(), because = decision.because(), %file, "denied");
        Err(Error::denied(at, decision.refusal()))
    }

    /// Asks whether the client may do that to the whole export.
    pub(crate) fn may_at_root(&self, deed: Permission) -> Result<()> {
        self.asked(Path::new(""), deed).map(drop)
    }

    fn rights(&self) -> Option<CurrentRights<'_>> {
        let rules = self.rules.as_ref()?;
        Some(CurrentRights {
            guarded: self,
            rules,
            rights: rules.now(),
        })
    }

    /// Returns where something is that may be done so.
    fn asked(&self, path: &Path, deed: Permission) -> Result<PathBuf> {
        let Some(asked) = self.rights() else {
            return Ok(path.into());
        };
        let path = self.dir.without_links(path)?;
        asked.must(deed, &path)?;
        Ok(path)
    }

    /// Checks a right on a name itself, not on the target of a link.
    fn asked_of_name(&self, path: &Path, deed: Permission) -> Result<PathBuf> {
        let Some(asked) = self.rights() else {
            return Ok(path.into());
        };
        let path = self.name(path)?;
        asked.must(deed, &path)?;
        Ok(path)
    }

    fn name(&self, path: &Path) -> Result<PathBuf> {
        match (path.parent(), path.file_name()) {
            (Some(above), Some(name)) => Ok(self.dir.without_links(above)?.join(name)),
            _ => Ok(path.into()),
        }
    }

    /// Returns the path of a name if the client has any right on it.
    fn to_be_told(&self, path: &Path) -> Result<PathBuf> {
        let Some(asked) = self.rights() else {
            return Ok(path.into());
        };
        let path = self.dir.without_links(path)?;
        asked.must_any(&PERMISSIONS, &path, Permission::List)?;
        Ok(path)
    }

    /// Returns the path of a file if the client may write it, or may read it: only then it may wait for its delivery.
    fn to_wait_for(&self, path: &Path) -> Result<PathBuf> {
        match self.to_upload(path)? {
            Some(path) => Ok(path),
            None => self.asked(path, Permission::Read),
        }
    }

    fn to_upload(&self, path: &Path) -> Result<Option<PathBuf>> {
        let Some(asked) = self.rights() else {
            return Ok(Some(path.into()));
        };
        let path = self.dir.without_links(path)?;
        let may = asked.may(Permission::Create, &path) || asked.may(Permission::Write, &path);
        Ok(may.then_some(path))
    }

    /// Checks the rights to write. For a client that may only create, the write then fails if the name is taken
    /// meanwhile.
    fn to_write(&self, path: &Path, how: &WriteMode) -> Result<(PathBuf, WriteMode)> {
        let Some(asked) = self.rights() else {
            return Ok((path.into(), how.clone()));
        };
        let path = self.dir.without_links(path)?;
        if asked.rules.is_output(&path) && !matches!(how, WriteMode::Append { .. }) {
            let said = "what is written here is appended";
            return Err(asked.denied(Permission::Write, &path, said, said.into()));
        }
        let is_there = match self.dir.stat(&path) {
            Ok(_) => true,
            Err(Error::Missing { .. }) => false,
            Err(error) => {
                // A client without the right learns of that only, and not of the error.
                asked.must(Permission::Create, &path)?;
                return Err(error);
            }
        };
        if is_there && *how != WriteMode::New {
            asked.must(Permission::Write, &path)?;
            return Ok((path, how.clone()));
        }
        asked.must(Permission::Create, &path)?;
        let how = match how {
            WriteMode::Replace(_) if !asked.may(Permission::Write, &path) => WriteMode::New,
            WriteMode::InPlace | WriteMode::Append { .. } => {
                asked.must(Permission::Write, &path)?;
                how.clone()
            }
            other => other.clone(),
        };
        Ok((path, how))
    }

    fn rename_asked(&self, from: &Path, to: &Path) -> Result<()> {
        let Some(asked) = self.rights() else {
            return self.dir.rename(from, to);
        };
        let (from, to) = (self.name(from)?, self.name(to)?);
        asked.must_rename(&from, &to)?;
        if asked.may(Permission::Write, &to) {
            return self.dir.rename(&from, &to);
        }
        let renamed = self.dir.rename_new(&from, &to);
        renamed.map_err(|error| match error {
            Error::Exists { .. } => asked.refusal(Permission::Write, &to),
            other => other,
        })
    }

    fn read_one(&self, path: &Path) -> Result<Small> {
        let (mut next, mut read) = (Some(self.asked(path, Permission::Read)?), None);
        self.dir
            .read_small(&mut || next.take(), &mut |_, small| read = Some(small))?;
        read.expect("each file is given once")
    }
}

/// Returns the other form of a URL's path: from the root, or from the login directory. A server may take both for one
/// file, so a refusal of one form refuses both.
fn twin(place: &Path) -> PathBuf {
    let bytes = place.as_os_str().as_bytes();
    let mut slashes = (0..bytes.len()).filter(|at| bytes[*at] == b'/');
    let Some(third) = slashes.nth(2) else {
        return place.into();
    };
    let (server, path) = bytes.split_at(third + 1);
    let twin = match path.strip_prefix(b"%2F") {
        Some(below) => [server, below].concat(),
        None => [server, b"%2F", path].concat(),
    };
    OsString::from_vec(twin).into()
}

fn no_stage(what: &dyn std::fmt::Display, said: &str) -> Error {
    Error::denied(what.to_string(), said)
}

impl Store for GuardedExport {
    fn can(&self) -> Result<Capabilities> {
        self.dir.can()
    }

    fn stat(&self, path: &Path) -> Result<Stat> {
        self.dir.stat(&self.to_be_told(path)?)
    }

    /// Names that may not be listed are left out.
    fn list(&self, path: &Path, each: &mut dyn FnMut(Entry) -> Result<()>) -> Result<()> {
        let Some(asked) = self.rights() else {
            return self.dir.list(path, each);
        };
        let path = self.asked(path, Permission::List)?;
        self.dir.list(
            &path,
            &mut |entry| match asked.may(Permission::List, &path.join(&entry.path)) {
                true => each(entry),
                false => Ok(()),
            },
        )
    }

    fn read(
        &self,
        path: &Path,
        want: &Extents,
        streams: usize,
        into: &dyn BlockWriter,
    ) -> Result<Read> {
        self.dir
            .read(&self.asked(path, Permission::Read)?, want, streams, into)
    }

    fn write(&self, path: &Path, write: &Write<'_>) -> Result<Box<dyn Sink>> {
        let (path, how) = self.to_write(path, &write.how)?;
        self.dir.write(
            &path,
            &Write {
                how,
                ..write.clone()
            },
        )
    }

    fn remove(&self, path: &Path, what: RemovalKind) -> Result<()> {
        let removed = self
            .dir
            .remove(&self.asked_of_name(path, Permission::Delete)?, what);
        self.audited("remove", path, removed)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let renamed = self.rename_asked(from, to);
        let both = PathBuf::from(format!("{} -> {}", from.display(), to.display()));
        self.audited("rename", &both, renamed)
    }

    fn mkdir(&self, path: &Path) -> Result<()> {
        let made = self
            .dir
            .mkdir(&self.asked_of_name(path, Permission::Create)?);
        self.audited("make directory", path, made)
    }

    fn set(&self, path: &Path, set: &Set) -> Result<()> {
        let path = match set.link_to {
            Some(_) => self.asked_of_name(path, Permission::Create)?,
            None => self.asked(path, Permission::Write)?,
        };
        let done = self.dir.set(&path, set);
        self.audited("set attributes", &path, done)
    }

    fn digest(&self, path: &Path, by: Algorithm, range: Option<Range<u64>>) -> Result<Digest> {
        self.dir
            .digest(&self.asked(path, Permission::Read)?, by, range)
    }

    godwit_store::has!(self, Facets: transit batch volume);
}

impl godwit_store::Batch for GuardedExport {
    fn hidden(&self, path: &Path) -> Result<Vec<PathBuf>> {
        let Some(asked) = self.rights() else {
            return self.dir.hidden(path);
        };
        let real = self.asked(path, Permission::List)?;
        let found = self.dir.hidden(&real)?.into_iter();
        let found = found.filter(|found| asked.may(Permission::List, found));
        let below = found.filter_map(|found| Some(path.join(found.strip_prefix(&real).ok()?)));
        Ok(below.collect())
    }

    fn read_small(
        &self,
        next: &mut NextFile<'_, PathBuf>,
        each: &mut SmallResult<'_, Small>,
    ) -> Result<()> {
        if self.rules.is_none() {
            return self.dir.read_small(next, each);
        }
        while let Some(path) = next() {
            let small = self.read_one(&path);
            each(path, small);
        }
        Ok(())
    }

    fn write_small(
        &self,
        next: &mut NextFile<'_, SmallWrite>,
        each: &mut SmallResult<'_, Finished>,
    ) -> Result<()> {
        if self.rules.is_none() {
            return self.dir.write_small(next, each);
        }
        // As they were called, and those that may not be written; the store tells of the others.
        let asked = RefCell::new(VecDeque::new());
        let mut may = || {
            while let Some(given) = next() {
                match self.to_write(&given.path, &given.how) {
                    Ok((path, how)) => {
                        asked.borrow_mut().push_back((given.path, None));
                        return Some(SmallWrite { path, how, ..given });
                    }
                    Err(error) => asked.borrow_mut().push_back((given.path, Some(error))),
                }
            }
            None
        };
        let mut tell = |mut finished: Option<Result<Finished>>| {
            loop {
                let first = asked.borrow_mut().pop_front();
                let Some((path, refused)) = first else { return };
                match (refused, finished.take()) {
                    (Some(error), of_next) => {
                        each(path, Err(error));
                        finished = of_next;
                    }
                    (None, Some(finished)) => return each(path, finished),
                    (None, None) => return asked.borrow_mut().push_front((path, None)),
                }
            }
        };
        self.dir
            .write_small(&mut may, &mut |_, finished| tell(Some(finished)))?;
        tell(None);
        Ok(())
    }
}

impl godwit_store::Transit for GuardedExport {
    fn flush(&self, path: &Path) -> Result<()> {
        self.dir.flush(&self.to_be_told(path)?)
    }

    fn push(&self, path: &Path, watch: Option<&Watch>) -> Result<()> {
        self.dir.push(&self.to_wait_for(path)?, watch)
    }

    fn published_as(&self, path: &Path, id: &str) -> Result<Option<Version>> {
        match self.to_upload(path)? {
            Some(path) => self.dir.published_as(&path, id),
            None => self.asked(path, Permission::Write).map(|_| None),
        }
    }

    fn trace(&self, path: &Path, passed: &[String]) -> Result<Vec<HopStatus>> {
        self.dir.trace(&self.to_wait_for(path)?, passed)
    }

    /// Checks the right to write the name: it includes the decision about a change on hold.
    fn decide(&self, path: &Path, what: Remedy, passed: &[String]) -> Result<()> {
        let path = self.asked_of_name(path, Permission::Write)?;
        let done = self.dir.decide(&path, what, passed);
        self.audited("decide", &path, done)
    }
}

impl godwit_store::Volume for GuardedExport {
    fn xattrs(&self, path: &Path) -> Result<Xattrs> {
        self.dir.xattrs(&self.asked(path, Permission::Read)?)
    }

    fn space(&self, path: &Path) -> Result<Space> {
        self.dir.space(&self.to_be_told(path)?)
    }
}
