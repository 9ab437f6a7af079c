//! Opener: the process that has the rights of one account, and its requests.

use super::{
    message::{BYTES_MAX, OpenerReply, OpenerRequest},
    passing,
};
use crate::{
    Attributes, NameMeta, NewFile, NewFileRequest, OpenMode, Overwrite, beneath::Beneath,
    folder::OpenDir, xattrs,
};
use rustix::io::Errno;
use std::{
    collections::HashMap,
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

/// Answers until the other side closes. Returns when the process must end.
pub(super) fn serve(line: &OwnedFd, root: Beneath) {
    let mut opener = OpenerProcess {
        root,
        folders: HashMap::new(),
        next: 0,
        folders_max: folders_max(),
    };
    let mut buffer = vec![0; BYTES_MAX];
    let mut closing = false;
    loop {
        // A descriptor that is sent along was not requested, and is closed.
        let len = match passing::receive(line, &mut buffer) {
            Ok((len, _)) => len,
            Err(error) if passing::is_silence(&error) && !opener.folders.is_empty() => continue,
            Err(error) if passing::is_silence(&error) && !closing => {
                // Requests sent before this moment are still answered.
                passing::shut_ear(line);
                closing = true;
                continue;
            }
            Err(_) => return,
        };
        let Some(request) = OpenerRequest::decode(&buffer[..len]) else {
            return;
        };
        if let OpenerRequest::Release { folder } = request {
            opener.folders.remove(&folder);
            continue;
        }
        let (reply, passed) = match opener.answer(request) {
            Ok(OpenerResult::File(file)) => (OpenerReply::Passed, Some(file)),
            Ok(OpenerResult::Word(reply)) => (reply, None),
            Ok(OpenerResult::Begun(reply, file)) => (reply, Some(file)),
            Err(error) => (OpenerReply::Failed(number(&error)), None),
        };
        let passed = passed.as_ref().map(AsFd::as_fd);
        if passing::send(line, &reply.encode(), passed).is_err() {
            return;
        }
    }
}

struct OpenerProcess {
    root: Beneath,
    folders: HashMap<u32, OpenDir>,
    next: u32,
    folders_max: usize,
}

enum OpenerResult {
    File(File),
    Word(OpenerReply),
    Begun(OpenerReply, File),
}

impl OpenerResult {
    fn begun(folder: u32, begun: NewFile) -> Self {
        let reply = OpenerReply::Begun(folder, begun.old);
        match begun.file {
            Some(file) => Self::Begun(reply, file),
            None => Self::Word(reply),
        }
    }
}

impl OpenerProcess {
    fn answer(&mut self, request: OpenerRequest) -> io::Result<OpenerResult> {
        match request {
            OpenerRequest::File { path, how, mode } => {
                self.root.file(&path, how, mode).map(OpenerResult::File)
            }
            OpenerRequest::Folder { path } => {
                Ok(OpenerResult::Word(OpenerReply::Folder(self.hold(&path)?.0)))
            }
            OpenerRequest::Meta { path } => word(self.root.meta(&path).map(OpenerReply::Meta)),
            OpenerRequest::Dress { path, attributes } => {
                done(attributes.put_on(&self.root.file(&path, OpenMode::Name, 0)?))
            }
            OpenerRequest::Open {
                folder,
                name,
                how,
                mode,
            } => {
                let file = self.folder(folder)?.open(plain(&name)?, how, mode)?;
                Ok(OpenerResult::File(file))
            }
            OpenerRequest::Tell { folder, names } => {
                let told = tell(self.folder(folder)?, &names);
                Ok(OpenerResult::Word(OpenerReply::Told(told)))
            }
            OpenerRequest::Rename {
                folder,
                name,
                to,
                new,
                over,
            } => self.rename((folder, &name), (to, &new), over),
            OpenerRequest::RemoveFile { folder, name } => {
                done(self.folder(folder)?.remove_file(plain(&name)?))
            }
            OpenerRequest::RemoveFolder { folder, name } => {
                done(self.folder(folder)?.remove_folder(plain(&name)?))
            }
            OpenerRequest::MakeFolder { folder, name } => {
                done(self.folder(folder)?.make_folder(plain(&name)?))
            }
            OpenerRequest::MakeLink {
                folder,
                name,
                target,
            } => done(self.folder(folder)?.make_link(plain(&name)?, &target)),
            OpenerRequest::DressIn {
                folder,
                name,
                device,
                inode,
                attributes,
            } => {
                let folder = self.folder(folder)?;
                done(dress(folder, &name, (device, inode), &attributes))
            }
            OpenerRequest::Room { folder } => {
                word(self.folder(folder)?.room().map(OpenerReply::Room))
            }
            OpenerRequest::Place { folder, name } => {
                plain(&name)?;
                let (id, held) = self.hold(&folder)?;
                let told = held.told(&name).map_err(|e| number(&e));
                Ok(OpenerResult::Word(OpenerReply::Place(id, told)))
            }
            OpenerRequest::Begin { folder, fresh } => {
                let (id, held) = self.hold(&folder)?;
                let begun = begin(held, &fresh);
                if begun.is_err() {
                    self.folders.remove(&id);
                }
                Ok(OpenerResult::begun(id, begun?))
            }
            OpenerRequest::BeginIn { folder, fresh } => {
                let begun = begin(self.folder(folder)?, &fresh)?;
                Ok(OpenerResult::begun(folder, begun))
            }
            OpenerRequest::Publish {
                folder,
                fresh,
                device,
                inode,
                attributes,
                name,
                over,
            } => {
                let folder = self.folder(folder)?;
                if attributes != Attributes::default() {
                    dress(folder, &fresh, (device, inode), &attributes)?;
                }
                done(folder.rename(plain(&fresh)?, folder, plain(&name)?, over))
            }
            OpenerRequest::Xattrs { path } => {
                let file = self.root.file(&path, OpenMode::Name, 0)?;
                word(xattrs::names(&file).map(OpenerReply::Bytes))
            }
            OpenerRequest::Xattr { path, name } => {
                let file = self.root.file(&path, OpenMode::Name, 0)?;
                word(xattrs::value(&file, &name).map(OpenerReply::Bytes))
            }
            OpenerRequest::SetXattr { path, name, value } => {
                let file = self.root.file(&path, OpenMode::Name, 0)?;
                done(xattrs::set(&file, &name, value.as_deref()))
            }
            OpenerRequest::Release { .. } => Err(Errno::INVAL.into()), // never answered
        }
    }

    fn hold(&mut self, path: &Path) -> io::Result<(u32, &OpenDir)> {
        if self.folders.len() >= self.folders_max {
            return Err(Errno::MFILE.into());
        }
        let folder = self.root.folder(path)?;
        while self.folders.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let id = self.next;
        self.next = id.wrapping_add(1);
        Ok((id, self.folders.entry(id).or_insert(folder)))
    }

    fn folder(&self, id: u32) -> io::Result<&OpenDir> {
        self.folders.get(&id).ok_or_else(|| Errno::BADF.into())
    }

    fn rename(
        &self,
        (folder, name): (u32, &OsStr),
        (to, new): (u32, &OsStr),
        over: Overwrite,
    ) -> io::Result<OpenerResult> {
        let (folder, to) = (self.folder(folder)?, self.folder(to)?);
        done(folder.rename(plain(name)?, to, plain(new)?, over))
    }
}

/// Refuses a name that is more than one name in a directory: it could lead out.
fn plain(name: &OsStr) -> io::Result<&OsStr> {
    let bytes = name.as_encoded_bytes();
    let leads = bytes.is_empty() || bytes == b".." || bytes.contains(&b'/');
    match leads {
        true => Err(Errno::XDEV.into()),
        false => Ok(name),
    }
}

fn tell(folder: &OpenDir, names: &[OsString]) -> Vec<Result<NameMeta, i32>> {
    let tell = |name: &OsString| folder.told(plain(name)?);
    names
        .iter()
        .map(|name| tell(name).map_err(|e| number(&e)))
        .collect()
}

fn begin(folder: &OpenDir, fresh: &NewFileRequest) -> io::Result<NewFile> {
    plain(&fresh.name)?;
    plain(&fresh.passing)?;
    folder.begin(fresh)
}

/// Changes what still is the file that was meant.
fn dress(
    folder: &OpenDir,
    name: &OsStr,
    is: (u64, u64),
    attributes: &Attributes,
) -> io::Result<()> {
    let file = folder.open(plain(name)?, OpenMode::Name, 0)?;
    let meta = crate::meta(&file)?;
    match (meta.device, meta.inode) == is {
        true => attributes.put_on(&file),
        false => Err(Errno::NOENT.into()),
    }
}

fn word(reply: io::Result<OpenerReply>) -> io::Result<OpenerResult> {
    reply.map(OpenerResult::Word)
}

fn done(done: io::Result<()>) -> io::Result<OpenerResult> {
    done.map(|()| OpenerResult::Word(OpenerReply::Done))
}

/// Few errors have no number; their kinds have one.
fn number(error: &io::Error) -> i32 {
    let errno = match error.kind() {
        io::ErrorKind::NotFound => Errno::NOENT,
        io::ErrorKind::InvalidInput => Errno::INVAL,
        _ => Errno::IO,
    };
    error.raw_os_error().unwrap_or(errno.raw_os_error())
}

/// Some descriptors are kept for files that are opened and passed on.
fn folders_max() -> usize {
    let limit = crate::raise_open_files().unwrap_or(256);
    usize::try_from(limit)
        .unwrap_or(usize::MAX)
        .saturating_sub(32)
        .clamp(32, FOLDERS_MAX)
}

const FOLDERS_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_never_a_way() {
        for name in ["..", "", "a/b", "/", "../x"] {
            assert!(plain(OsStr::new(name)).is_err(), "{name:?}");
        }
        for name in ["a", "...", ".", " ", "..a"] {
            assert!(plain(OsStr::new(name)).is_ok(), "{name:?}");
        }
    }
}
