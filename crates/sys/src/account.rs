//! Lookup of names with the rights of another account.
//!
//! A process has one set of rights, so an account has a process of its own: its
//! *opener* ([`opener`]). It looks names up beneath the export and passes open
//! files; bytes are then read and written here, at full speed. A *steward*
//! ([`steward`]) keeps root and does nothing but fork. What may be asked
//! of them is [`message`], and no more: no path outside the export, no
//! descriptor of ours, no account of the system.
//!
//! Other work as an account is an *errand* ([`errand`]). The steward learns it at its start, before
//! an attacker could reach the node.

mod errand;
mod message;
mod opener;
mod passing;
mod rights;
mod steward;

pub use errand::{Errand, ErrandResult};
pub use rights::{UserAccount, drop_root, group_name, user_name};
pub use steward::{Steward, StewardRules};

use crate::{Attributes, DiskSpace, Meta, NameMeta, NewFile, NewFileRequest, OpenMode, Overwrite};
use message::{OpenerReply, OpenerRequest};
use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// An account of this machine, with whose rights names beneath the export are looked up. Clones
/// share its opener, which is forked when needed.
#[derive(Clone, Debug)]
pub struct Account(Arc<AccountInner>);

#[derive(Debug)]
struct AccountInner {
    steward: Steward,
    name: String,
    link: Mutex<Option<Arc<OpenerLink>>>,
}

impl Account {
    pub(crate) fn new(steward: Steward, name: &str) -> Self {
        Self(Arc::new(AccountInner {
            steward,
            name: name.into(),
            link: Mutex::new(None),
        }))
    }

    /// Returns the account's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the directory beneath which names are looked up.
    pub fn export(&self) -> &Path {
        self.0.steward.export()
    }

    /// Tells whether its openers follow no links.
    pub(crate) fn is_plain(&self) -> bool {
        self.0.steward.is_plain()
    }

    /// Makes sure that there is an opener; else tells why there cannot be one.
    pub fn ready(&self) -> io::Result<()> {
        self.link().map(drop)
    }

    /// Returns the number of its opener's process, if there is one.
    pub fn opener_id(&self) -> Option<u32> {
        self.held()
            .as_ref()
            .filter(|l| !l.is_over())
            .map(|l| l.process)
    }

    pub(crate) fn file(&self, path: &Path, how: OpenMode, mode: u32) -> io::Result<File> {
        let path = path.into();
        self.ask(&OpenerRequest::File { path, how, mode })?.1.file()
    }

    pub(crate) fn folder(&self, path: &Path) -> io::Result<Afar> {
        let (link, answer) = self.ask(&OpenerRequest::Folder { path: path.into() })?;
        match answer.reply {
            OpenerReply::Folder(id) => Ok(Afar { link, id }),
            _ => Err(link.broken()),
        }
    }

    pub(crate) fn meta(&self, path: &Path) -> io::Result<Meta> {
        let (link, answer) = self.ask(&OpenerRequest::Meta { path: path.into() })?;
        match answer.reply {
            OpenerReply::Meta(meta) => Ok(meta),
            _ => Err(link.broken()),
        }
    }

    pub(crate) fn dress(&self, path: &Path, attributes: &Attributes) -> io::Result<()> {
        let (path, attributes) = (path.into(), *attributes);
        let (link, answer) = self.ask(&OpenerRequest::Dress { path, attributes })?;
        answer.done(&link)
    }

    /// Returns the names of extended attributes, or the value of one.
    pub(crate) fn xattr(&self, path: &Path, name: Option<&OsStr>) -> io::Result<Vec<u8>> {
        let path = path.into();
        let (link, answer) = self.ask(&match name {
            None => OpenerRequest::Xattrs { path },
            Some(name) => OpenerRequest::Xattr {
                path,
                name: name.to_owned(),
            },
        })?;
        match answer.reply {
            OpenerReply::Bytes(bytes) => Ok(bytes),
            _ => Err(link.broken()),
        }
    }

    pub(crate) fn set_xattr(
        &self,
        path: &Path,
        name: &OsStr,
        value: Option<&[u8]>,
    ) -> io::Result<()> {
        let (link, answer) = self.ask(&OpenerRequest::SetXattr {
            path: path.into(),
            name: name.to_owned(),
            value: value.map(<[u8]>::to_vec),
        })?;
        answer.done(&link)
    }

    pub(crate) fn place(
        &self,
        folder: &Path,
        name: &OsStr,
    ) -> io::Result<(Afar, io::Result<NameMeta>)> {
        let (folder, name) = (folder.into(), name.to_owned());
        let (link, answer) = self.ask(&OpenerRequest::Place { folder, name })?;
        match answer.reply {
            OpenerReply::Place(id, told) => {
                let told = told.map_err(io::Error::from_raw_os_error);
                Ok((Afar { link, id }, told))
            }
            _ => Err(link.broken()),
        }
    }

    pub(crate) fn begin(
        &self,
        folder: &Path,
        fresh: &NewFileRequest,
    ) -> io::Result<(Afar, NewFile)> {
        let (folder, fresh) = (folder.into(), fresh.clone());
        let (link, answer) = self.ask(&OpenerRequest::Begin { folder, fresh })?;
        let (id, begun) = answer.begun(&link)?;
        Ok((Afar { link, id }, begun))
    }

    /// Asks for what depends on nothing that an opener holds: if it has ended
    /// before it heard us, another one is asked.
    fn ask(&self, request: &OpenerRequest) -> io::Result<(Arc<OpenerLink>, OpenerAnswer)> {
        let link = self.link()?;
        match link.ask(request) {
            Err(Unanswered::Unheard) => {}
            done => return Ok((Arc::clone(&link), done.map_err(|e| link.why(e))?)),
        }
        let link = self.link()?;
        let answer = link.ask(request).map_err(|e| link.why(e))?;
        Ok((link, answer))
    }

    fn link(&self) -> io::Result<Arc<OpenerLink>> {
        let mut held = self.held();
        if let Some(link) = held.as_ref().filter(|l| !l.is_over()) {
            return Ok(Arc::clone(link));
        }
        let link = Arc::new(OpenerLink::begin(&self.0.steward, &self.0.name)?);
        *held = Some(Arc::clone(&link));
        Ok(link)
    }

    fn held(&self) -> MutexGuard<'_, Option<Arc<OpenerLink>>> {
        self.0.link.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The way to one opener. Once broken it stays so.
#[derive(Debug)]
struct OpenerLink {
    account: String,
    process: u32,
    line: Mutex<OpenerSocket>,
    over: AtomicBool,
}

#[derive(Debug)]
struct OpenerSocket {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

/// Why there was no answer.
#[derive(Debug)]
enum Unanswered {
    /// The opener had ended before.
    Unheard,
    /// The opener ended or timed out, and may have done the request.
    Lost,
    /// The request cannot be done.
    Refused(io::Error),
}

#[derive(Debug)]
struct OpenerAnswer {
    reply: OpenerReply,
    passed: Option<OwnedFd>,
}

impl OpenerAnswer {
    fn file(self) -> io::Result<File> {
        let missing = || io::Error::other("an opener passed no file");
        Ok(File::from(self.passed.ok_or_else(missing)?))
    }

    fn begun(self, link: &OpenerLink) -> io::Result<(u32, NewFile)> {
        let OpenerReply::Begun(id, old) = self.reply else {
            return Err(link.broken());
        };
        let file = self.passed.map(File::from);
        Ok((id, NewFile { old, file }))
    }

    fn done(&self, link: &OpenerLink) -> io::Result<()> {
        match self.reply {
            OpenerReply::Done => Ok(()),
            _ => Err(link.broken()),
        }
    }
}

impl OpenerLink {
    fn begin(steward: &Steward, name: &str) -> io::Result<Self> {
        let socket = steward.opener(name)?;
        passing::patience(&socket, PATIENCE)?;
        let link = Self {
            account: name.into(),
            process: 0, // it says so itself
            line: Mutex::new(OpenerSocket {
                socket,
                buffer: vec![0; message::BYTES_MAX],
            }),
            over: AtomicBool::new(false),
        };
        // The first reply says whether the opener could become the account.
        let greeting = link.answer(&mut link.line()).map_err(|e| link.why(e))?;
        match greeting.reply {
            OpenerReply::Hello { process } => Ok(Self { process, ..link }),
            OpenerReply::Refused(why) => Err(io::Error::new(io::ErrorKind::PermissionDenied, why)),
            _ => Err(link.broken()),
        }
    }

    fn ask(&self, request: &OpenerRequest) -> Result<OpenerAnswer, Unanswered> {
        let mut line = self.line();
        let bytes = request.encode().map_err(Unanswered::Refused)?;
        self.say(&line, &bytes)?;
        self.answer(&mut line)
    }

    fn say(&self, line: &OpenerSocket, bytes: &[u8]) -> Result<(), Unanswered> {
        if self.is_over() {
            return Err(Unanswered::Unheard);
        }
        passing::send(&line.socket, bytes, None).map_err(|_| {
            self.end(line);
            Unanswered::Unheard
        })
    }

    fn answer(&self, line: &mut OpenerSocket) -> Result<OpenerAnswer, Unanswered> {
        let received = passing::receive(&line.socket, &mut line.buffer);
        let answer = received.ok().and_then(|(len, passed)| {
            let reply = OpenerReply::decode(line.buffer.get(..len)?)?;
            Some(OpenerAnswer { reply, passed })
        });
        match answer {
            Some(OpenerAnswer {
                reply: OpenerReply::Failed(errno),
                ..
            }) => Err(Unanswered::Refused(io::Error::from_raw_os_error(errno))),
            Some(answer) => Ok(answer),
            None => {
                // A late answer would be taken for that to the next question.
                self.end(line);
                Err(Unanswered::Lost)
            }
        }
    }

    fn line(&self) -> MutexGuard<'_, OpenerSocket> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn end(&self, line: &OpenerSocket) {
        self.over.store(true, Ordering::Relaxed);
        passing::shut(&line.socket);
    }

    fn why(&self, why: Unanswered) -> io::Error {
        match why {
            Unanswered::Refused(error) => error,
            Unanswered::Unheard | Unanswered::Lost => self.broken(),
        }
    }

    fn broken(&self) -> io::Error {
        let why = format!(
            "the opener of {} has ended, and what it held is lost; another one begins with the next request",
            self.account
        );
        io::Error::new(io::ErrorKind::ConnectionAborted, why)
    }
}

/// A directory that an opener holds for us.
#[derive(Debug)]
pub(crate) struct Afar {
    link: Arc<OpenerLink>,
    id: u32,
}

impl Afar {
    pub(crate) fn open(&self, name: &OsStr, how: OpenMode, mode: u32) -> io::Result<File> {
        let (folder, name) = (self.id, name.to_owned());
        self.ask(&OpenerRequest::Open {
            folder,
            name,
            how,
            mode,
        })?
        .file()
    }

    pub(crate) fn tell(&self, names: &[OsString]) -> io::Result<Vec<io::Result<NameMeta>>> {
        let mut all = Vec::with_capacity(names.len());
        while all.len() < names.len() {
            let (folder, names) = (self.id, message::fitting(&names[all.len()..]));
            match self.ask(&OpenerRequest::Tell { folder, names })?.reply {
                OpenerReply::Told(told) if !told.is_empty() => all.extend(
                    told.into_iter()
                        .map(|told| told.map_err(io::Error::from_raw_os_error)),
                ),
                _ => return Err(self.link.broken()),
            }
        }
        all.truncate(names.len());
        Ok(all)
    }

    pub(crate) fn tell_one(&self, name: &OsStr) -> io::Result<NameMeta> {
        let told = self.tell(&[name.to_owned()])?.pop();
        told.unwrap_or_else(|| Err(self.link.broken()))
    }

    pub(crate) fn rename(
        &self,
        name: &OsStr,
        to: &Self,
        new: &OsStr,
        over: Overwrite,
    ) -> io::Result<()> {
        if !Arc::ptr_eq(&self.link, &to.link) {
            return Err(self.link.broken()); // One of the two openers has.
        }
        let (name, new) = (name.to_owned(), new.to_owned());
        self.done(&OpenerRequest::Rename {
            folder: self.id,
            name,
            to: to.id,
            new,
            over,
        })
    }

    pub(crate) fn remove_file(&self, name: &OsStr) -> io::Result<()> {
        let (folder, name) = (self.id, name.to_owned());
        self.done(&OpenerRequest::RemoveFile { folder, name })
    }

    pub(crate) fn remove_folder(&self, name: &OsStr) -> io::Result<()> {
        let (folder, name) = (self.id, name.to_owned());
        self.done(&OpenerRequest::RemoveFolder { folder, name })
    }

    pub(crate) fn make_folder(&self, name: &OsStr) -> io::Result<()> {
        let (folder, name) = (self.id, name.to_owned());
        self.done(&OpenerRequest::MakeFolder { folder, name })
    }

    pub(crate) fn make_link(&self, name: &OsStr, target: &Path) -> io::Result<()> {
        let (folder, name, target) = (self.id, name.to_owned(), PathBuf::from(target));
        self.done(&OpenerRequest::MakeLink {
            folder,
            name,
            target,
        })
    }

    pub(crate) fn dress(
        &self,
        name: &OsStr,
        file: &File,
        attributes: &Attributes,
    ) -> io::Result<()> {
        let is = crate::meta(file)?;
        self.done(&OpenerRequest::DressIn {
            folder: self.id,
            name: name.to_owned(),
            device: is.device,
            inode: is.inode,
            attributes: *attributes,
        })
    }

    pub(crate) fn begin(&self, fresh: &NewFileRequest) -> io::Result<NewFile> {
        let (folder, fresh) = (self.id, fresh.clone());
        let answer = self.ask(&OpenerRequest::BeginIn { folder, fresh })?;
        Ok(answer.begun(&self.link)?.1)
    }

    pub(crate) fn publish(
        &self,
        fresh: &OsStr,
        file: &File,
        attributes: &Attributes,
        name: &OsStr,
        over: Overwrite,
    ) -> io::Result<()> {
        let is = crate::meta(file)?;
        self.done(&OpenerRequest::Publish {
            folder: self.id,
            fresh: fresh.to_owned(),
            device: is.device,
            inode: is.inode,
            attributes: *attributes,
            name: name.to_owned(),
            over,
        })
    }

    pub(crate) fn room(&self) -> io::Result<DiskSpace> {
        match self.ask(&OpenerRequest::Room { folder: self.id })?.reply {
            OpenerReply::Room(room) => Ok(room),
            _ => Err(self.link.broken()),
        }
    }

    fn done(&self, request: &OpenerRequest) -> io::Result<()> {
        self.ask(request)?.done(&self.link)
    }

    /// The directory is lost with its opener: no other opener has it.
    fn ask(&self, request: &OpenerRequest) -> io::Result<OpenerAnswer> {
        self.link.ask(request).map_err(|e| self.link.why(e))
    }
}

impl Drop for Afar {
    fn drop(&mut self) {
        let line = self.link.line();
        if let Ok(bytes) = (OpenerRequest::Release { folder: self.id }).encode() {
            // If the opener has ended, it holds no directory.
            let _ = self.link.say(&line, &bytes);
        }
    }
}

/// How long an opener may be silent. It does what disks do in microseconds, and
/// a network file system that hangs may take until its own timeout.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);
