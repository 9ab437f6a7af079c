//! Requests to an opener and its replies, as bytes.
//!
//! Both sides mistrust the other: bytes that do not decode are no message. Every length is bounded
//! before memory is allocated.

use crate::{
    Attributes, DiskSpace, FileKind, Meta, NameMeta, NewFileRequest, OpenMode, Overwrite,
    xattrs::VALUE_BYTES_MAX,
};
use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
    time::Duration,
};

/// Request to an opener. A folder is the number of one that the opener holds.
#[derive(Clone, Debug, Eq, PartialEq)]
#[rustfmt::skip]
pub(super) enum OpenerRequest {
    File { path: PathBuf, how: OpenMode, mode: u32 },
    Folder { path: PathBuf },
    Meta { path: PathBuf },
    Dress { path: PathBuf, attributes: Attributes },
    Open { folder: u32, name: OsString, how: OpenMode, mode: u32 },
    Tell { folder: u32, names: Vec<OsString> },
    Rename { folder: u32, name: OsString, to: u32, new: OsString, over: Overwrite },
    RemoveFile { folder: u32, name: OsString },
    RemoveFolder { folder: u32, name: OsString },
    MakeFolder { folder: u32, name: OsString },
    MakeLink { folder: u32, name: OsString, target: PathBuf },
    /// For a file that is also known by its inode, since it may have lost the name.
    DressIn { folder: u32, name: OsString, device: u64, inode: u64, attributes: Attributes },
    Room { folder: u32 },
    /// Opens a directory, and reads the attributes of a name in it.
    Place { folder: PathBuf, name: OsString },
    /// A new file that will take a name; the opener holds the directory.
    Begin { folder: PathBuf, fresh: NewFileRequest },
    BeginIn { folder: u32, fresh: NewFileRequest },
    /// Attributes and the name at once. The inode is that of the new file.
    Publish { folder: u32, fresh: OsString, device: u64, inode: u64, attributes: Attributes, name: OsString, over: Overwrite },
    /// Names of extended attributes, and the value of one; links are followed.
    Xattrs { path: PathBuf },
    Xattr { path: PathBuf, name: OsString },
    SetXattr { path: PathBuf, name: OsString, value: Option<Vec<u8>> },
    /// Not answered.
    Release { folder: u32 },
}

/// Reply of an opener.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum OpenerReply {
    /// The process has become the account.
    Hello {
        process: u32,
    },
    /// The process could not become the account.
    Refused(String),
    Done,
    /// The descriptor is sent along.
    Passed,
    Folder(u32),
    Meta(Meta),
    /// Attributes of as many names as had room.
    Told(Vec<Result<NameMeta, i32>>),
    Room(DiskSpace),
    Place(u32, Result<NameMeta, i32>),
    /// The directory if it was requested; the entry in the way. The new file is sent along if it
    /// could be made.
    Begun(u32, Option<Meta>),
    /// Names or a value, of extended attributes.
    Bytes(Vec<u8>),
    /// The number of the error.
    Failed(i32),
}

impl OpenerRequest {
    /// An error if a name is longer than the kernel takes.
    pub(super) fn encode(&self) -> io::Result<Vec<u8>> {
        let mut to = MessageWriter::default();
        match self {
            Self::File { path, how, mode } => to.tag(0).path(path).u8(*how as u8).u32(*mode),
            Self::Folder { path } => to.tag(1).path(path),
            Self::Meta { path } => to.tag(2).path(path),
            Self::Dress { path, attributes } => to.tag(3).path(path).attributes(attributes),
            Self::Open {
                folder,
                name,
                how,
                mode,
            } => to.tag(4).u32(*folder).name(name).u8(*how as u8).u32(*mode),
            Self::Tell { folder, names } => {
                to.tag(5).u32(*folder).u32(names.len() as u32);
                names.iter().fold(&mut to, |to, name| to.name(name))
            }
            Self::Rename {
                folder,
                name,
                to: target,
                new,
                over,
            } => to
                .tag(6)
                .u32(*folder)
                .name(name)
                .u32(*target)
                .name(new)
                .u8(*over as u8),
            Self::RemoveFile { folder, name } => to.tag(7).u32(*folder).name(name),
            Self::RemoveFolder { folder, name } => to.tag(8).u32(*folder).name(name),
            Self::MakeFolder { folder, name } => to.tag(9).u32(*folder).name(name),
            Self::MakeLink {
                folder,
                name,
                target,
            } => to.tag(10).u32(*folder).name(name).path(target),
            Self::DressIn {
                folder,
                name,
                device,
                inode,
                attributes,
            } => to
                .tag(11)
                .u32(*folder)
                .name(name)
                .u64(*device)
                .u64(*inode)
                .attributes(attributes),
            Self::Room { folder } => to.tag(12).u32(*folder),
            Self::Release { folder } => to.tag(13).u32(*folder),
            Self::Place { folder, name } => to.tag(14).path(folder).name(name),
            Self::Begin { folder, fresh } => to.tag(15).path(folder).fresh(fresh),
            Self::BeginIn { folder, fresh } => to.tag(16).u32(*folder).fresh(fresh),
            Self::Publish {
                folder,
                fresh,
                device,
                inode,
                attributes,
                name,
                over,
            } => to
                .tag(17)
                .u32(*folder)
                .name(fresh)
                .u64(*device)
                .u64(*inode)
                .attributes(attributes)
                .name(name)
                .u8(*over as u8),
            Self::Xattrs { path } => to.tag(18).path(path),
            Self::Xattr { path, name } => to.tag(19).path(path).name(name),
            Self::SetXattr { path, name, value } => {
                to.tag(20).path(path).name(name).u8(value.is_some().into());
                to.long(value.as_deref().unwrap_or_default())
            }
        };
        match to.too_long {
            true => Err(io::ErrorKind::InvalidFilename.into()),
            false => Ok(to.bytes),
        }
    }

    /// `None`: it is no request.
    #[rustfmt::skip]
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = MessageReader(bytes);
        let request = match from.u8()? {
            0 => Self::File { path: from.path()?, how: from.how()?, mode: from.u32()? },
            1 => Self::Folder { path: from.path()? },
            2 => Self::Meta { path: from.path()? },
            3 => Self::Dress { path: from.path()?, attributes: from.attributes()? },
            4 => Self::Open { folder: from.u32()?, name: from.name()?, how: from.how()?, mode: from.u32()? },
            5 => {
                let (folder, count) = (from.u32()?, from.u32()? as usize);
                let names = (0..count).map(|_| from.name()).collect::<Option<_>>()?;
                Self::Tell { folder, names }
            }
            6 => Self::Rename { folder: from.u32()?, name: from.name()?, to: from.u32()?, new: from.name()?, over: from.over()? },
            7 => Self::RemoveFile { folder: from.u32()?, name: from.name()? },
            8 => Self::RemoveFolder { folder: from.u32()?, name: from.name()? },
            9 => Self::MakeFolder { folder: from.u32()?, name: from.name()? },
            10 => Self::MakeLink { folder: from.u32()?, name: from.name()?, target: from.path()? },
            11 => Self::DressIn {
                folder: from.u32()?, name: from.name()?,
                device: from.u64()?, inode: from.u64()?, attributes: from.attributes()?,
            },
            12 => Self::Room { folder: from.u32()? },
            13 => Self::Release { folder: from.u32()? },
            14 => Self::Place { folder: from.path()?, name: from.name()? },
            15 => Self::Begin { folder: from.path()?, fresh: from.fresh()? },
            16 => Self::BeginIn { folder: from.u32()?, fresh: from.fresh()? },
            17 => Self::Publish {
                folder: from.u32()?, fresh: from.name()?, device: from.u64()?, inode: from.u64()?,
                attributes: from.attributes()?, name: from.name()?, over: from.over()?,
            },
            18 => Self::Xattrs { path: from.path()? },
            19 => Self::Xattr { path: from.path()?, name: from.name()? },
            20 => {
                let (path, name, is_set, value) = (from.path()?, from.name()?, from.u8()?, from.long()?);
                let value = match is_set {
                    0 if value.is_empty() => None,
                    1 => Some(value),
                    _ => return None,
                };
                Self::SetXattr { path, name, value }
            }
            _ => return None,
        };
        from.0.is_empty().then_some(request)
    }
}

impl OpenerReply {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut to = MessageWriter::default();
        match self {
            Self::Hello { process } => to.tag(0).u32(*process),
            Self::Refused(why) => to.tag(1).bytes(why.as_bytes(), REASON_MAX),
            Self::Done => to.tag(2),
            Self::Passed => to.tag(3),
            Self::Folder(id) => to.tag(4).u32(*id),
            Self::Meta(meta) => to.tag(5).meta(meta),
            Self::Told(told) => {
                let count_at = to.tag(6).bytes.len();
                let mut count = 0u32;
                to.u32(0);
                for one in told {
                    if to.bytes.len() + TOLD_MAX > BYTES_MAX {
                        break;
                    }
                    to.told(one);
                    count += 1;
                }
                to.bytes[count_at..count_at + 4].copy_from_slice(&count.to_le_bytes());
                &mut to
            }
            Self::Room(room) => to.tag(7).u64(room.total_bytes).u64(room.free_bytes),
            Self::Failed(errno) => to.tag(8).u32(*errno as u32),
            Self::Place(folder, told) => to.tag(9).u32(*folder).told(told),
            Self::Begun(folder, None) => to.tag(10).u32(*folder).u8(0),
            Self::Begun(folder, Some(old)) => to.tag(10).u32(*folder).u8(1).meta(old),
            Self::Bytes(bytes) => to.tag(11).long(bytes),
        };
        to.bytes
    }

    /// `None`: it is no reply.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = MessageReader(bytes);
        let reply = match from.u8()? {
            0 => Self::Hello {
                process: from.u32()?,
            },
            1 => Self::Refused(String::from_utf8_lossy(&from.bytes(REASON_MAX)?).into_owned()),
            2 => Self::Done,
            3 => Self::Passed,
            4 => Self::Folder(from.u32()?),
            5 => Self::Meta(from.meta()?),
            6 => {
                let count = from.u32()?;
                Self::Told((0..count).map(|_| from.told()).collect::<Option<_>>()?)
            }
            7 => Self::Room(DiskSpace {
                total_bytes: from.u64()?,
                free_bytes: from.u64()?,
            }),
            8 => Self::Failed(from.u32()? as i32),
            9 => Self::Place(from.u32()?, from.told()?),
            10 => {
                let folder = from.u32()?;
                let old = match from.u8()? {
                    0 => None,
                    1 => Some(from.meta()?),
                    _ => return None,
                };
                Self::Begun(folder, old)
            }
            11 => Self::Bytes(from.long()?),
            _ => return None,
        };
        from.0.is_empty().then_some(reply)
    }
}

/// Returns as many of the names as one question holds, at least one.
pub(super) fn fitting(names: &[OsString]) -> Vec<OsString> {
    let mut room = BYTES_MAX - 16;
    let fits = names.iter().take_while(|name| {
        let needs = name.len().min(NAME_MAX) + 2;
        let fits = needs <= room;
        room = room.saturating_sub(needs);
        fits
    });
    fits.take(NAMES_MAX).cloned().collect()
}

#[derive(Default)]
struct MessageWriter {
    bytes: Vec<u8>,
    too_long: bool,
}

impl MessageWriter {
    fn tag(&mut self, tag: u8) -> &mut Self {
        self.u8(tag)
    }

    fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes.push(value);
        self
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn bytes(&mut self, bytes: &[u8], len_max: usize) -> &mut Self {
        self.too_long |= bytes.len() > len_max;
        let bytes = &bytes[..bytes.len().min(len_max)];
        self.bytes
            .extend_from_slice(&(bytes.len() as u16).to_le_bytes());
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Appends bytes that may be too long for `bytes`.
    fn long(&mut self, bytes: &[u8]) -> &mut Self {
        self.too_long |= bytes.len() > VALUE_BYTES_MAX;
        let bytes = &bytes[..bytes.len().min(VALUE_BYTES_MAX)];
        self.u32(bytes.len() as u32).bytes.extend_from_slice(bytes);
        self
    }

    fn path(&mut self, path: &Path) -> &mut Self {
        self.bytes(path.as_os_str().as_bytes(), PATH_MAX)
    }

    fn name(&mut self, name: &OsStr) -> &mut Self {
        self.bytes(name.as_bytes(), NAME_MAX)
    }

    fn time(&mut self, time: Duration) -> &mut Self {
        self.u64(time.as_secs()).u32(time.subsec_nanos())
    }

    fn attributes(&mut self, attributes: &Attributes) -> &mut Self {
        let Attributes {
            owner,
            group,
            mode,
            mtime,
            atime,
        } = attributes;
        let is = |set: bool, bit: u8| if set { bit } else { 0 };
        self.u8(is(owner.is_some(), 1)
            | is(mode.is_some(), 2)
            | is(mtime.is_some(), 4)
            | is(group.is_some(), 8)
            | is(atime.is_some(), 16));
        let (uid, gid) = owner.unwrap_or_default();
        self.u32(uid)
            .u32(gid)
            .u32(group.unwrap_or_default())
            .u32(mode.unwrap_or_default())
            .time(mtime.unwrap_or_default())
            .time(atime.unwrap_or_default())
    }

    fn fresh(&mut self, fresh: &NewFileRequest) -> &mut Self {
        let NewFileRequest {
            name,
            over,
            passing,
            mode,
        } = fresh;
        self.name(name).u8(*over as u8).name(passing).u32(*mode)
    }

    fn meta(&mut self, meta: &Meta) -> &mut Self {
        self.u8(meta.kind as u8).u64(meta.size);
        self.u32(meta.mode).u32(meta.uid).u32(meta.gid);
        self.time(meta.mtime).time(meta.ctime);
        self.u64(meta.device).u64(meta.inode).u64(meta.links)
    }

    fn told(&mut self, told: &Result<NameMeta, i32>) -> &mut Self {
        match told {
            Err(errno) => self.u8(0).u32(*errno as u32),
            Ok(NameMeta { meta, target: None }) => self.u8(1).meta(meta),
            Ok(NameMeta {
                meta,
                target: Some(target),
            }) => self.u8(2).meta(meta).path(target),
        }
    }
}

struct MessageReader<'a>(&'a [u8]);

impl<'a> MessageReader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn bytes(&mut self, len_max: usize) -> Option<Vec<u8>> {
        let len = u16::from_le_bytes(self.take(2)?.try_into().ok()?) as usize;
        (len <= len_max).then_some(())?;
        Some(self.take(len)?.to_vec())
    }

    fn long(&mut self) -> Option<Vec<u8>> {
        let len = self.u32()? as usize;
        (len <= VALUE_BYTES_MAX).then_some(())?;
        Some(self.take(len)?.to_vec())
    }

    fn path(&mut self) -> Option<PathBuf> {
        Some(OsString::from_vec(self.bytes(PATH_MAX)?).into())
    }

    fn name(&mut self) -> Option<OsString> {
        Some(OsString::from_vec(self.bytes(NAME_MAX)?))
    }

    fn time(&mut self) -> Option<Duration> {
        let (seconds, nanos) = (self.u64()?, self.u32()?);
        (nanos < 1_000_000_000).then(|| Duration::new(seconds, nanos))
    }

    fn how(&mut self) -> Option<OpenMode> {
        one_of(&HOWS, self.u8()?, |how| *how as u8)
    }

    fn over(&mut self) -> Option<Overwrite> {
        one_of(
            &[Overwrite::Anything, Overwrite::Nothing],
            self.u8()?,
            |over| *over as u8,
        )
    }

    fn attributes(&mut self) -> Option<Attributes> {
        let set = self.u8()?;
        let owner = (self.u32()?, self.u32()?);
        let (group, mode) = (self.u32()?, self.u32()?);
        let (mtime, atime) = (self.time()?, self.time()?);
        (set < 32).then_some(Attributes {
            owner: (set & 1 > 0).then_some(owner),
            group: (set & 8 > 0).then_some(group),
            mode: (set & 2 > 0).then_some(mode),
            mtime: (set & 4 > 0).then_some(mtime),
            atime: (set & 16 > 0).then_some(atime),
        })
    }

    fn fresh(&mut self) -> Option<NewFileRequest> {
        Some(NewFileRequest {
            name: self.name()?,
            over: self.over()?,
            passing: self.name()?,
            mode: self.u32()?,
        })
    }

    fn meta(&mut self) -> Option<Meta> {
        Some(Meta {
            kind: one_of(&KINDS, self.u8()?, |kind| *kind as u8)?,
            size: self.u64()?,
            mode: self.u32()?,
            uid: self.u32()?,
            gid: self.u32()?,
            mtime: self.time()?,
            ctime: self.time()?,
            device: self.u64()?,
            inode: self.u64()?,
            links: self.u64()?,
        })
    }

    fn told(&mut self) -> Option<Result<NameMeta, i32>> {
        let kind = self.u8()?;
        if kind == 0 {
            return Some(Err(self.u32()? as i32));
        }
        let meta = self.meta()?;
        let target = match kind {
            1 => None,
            2 => Some(self.path()?),
            _ => return None,
        };
        Some(Ok(NameMeta { meta, target }))
    }
}

fn one_of<T: Copy>(all: &[T], number: u8, number_of: impl Fn(&T) -> u8) -> Option<T> {
    all.iter().find(|one| number_of(one) == number).copied()
}

const HOWS: [OpenMode; 7] = [
    OpenMode::Read,
    OpenMode::Change,
    OpenMode::ChangeUnread,
    OpenMode::Create,
    OpenMode::CreateNew,
    OpenMode::Append,
    OpenMode::Name,
];

const KINDS: [FileKind; 7] = [
    FileKind::File,
    FileKind::Directory,
    FileKind::Link,
    FileKind::Pipe,
    FileKind::Socket,
    FileKind::Device,
    FileKind::Unknown,
];

/// The longest message.
pub(super) const BYTES_MAX: usize = VALUE_BYTES_MAX + (8 << 10);
/// The kernel takes no longer paths, and no file system longer names.
const PATH_MAX: usize = 4096;
const NAME_MAX: usize = 1024;
const NAMES_MAX: usize = 256;
const REASON_MAX: usize = 1024;
/// Most bytes that the attributes of one name take.
const TOLD_MAX: usize = 128 + PATH_MAX;

#[cfg(test)]
mod tests {
    use super::*;

    fn meta() -> Meta {
        Meta {
            kind: FileKind::Link,
            size: 1 << 40,
            mode: 0o7777,
            uid: 1000,
            gid: u32::MAX,
            mtime: Duration::new(1, 999_999_999),
            ctime: Duration::ZERO,
            device: 3,
            inode: u64::MAX,
            links: 2,
        }
    }

    #[rustfmt::skip]
    fn requests() -> Vec<OpenerRequest> {
        let (path, name) = (PathBuf::from("a/b"), OsString::from_vec(vec![0xff, b'\n']));
        let attributes = Attributes { owner: Some((7, 8)), group: Some(9), mode: None, mtime: Some(Duration::new(5, 6)), atime: Some(Duration::new(7, 8)) };
        let fresh = NewFileRequest { name: "n".into(), over: Overwrite::Anything, passing: "p".into(), mode: 0o644 };
        vec![
            OpenerRequest::File { path: path.clone(), how: OpenMode::Append, mode: 0o600 },
            OpenerRequest::Folder { path: "".into() },
            OpenerRequest::Meta { path: path.clone() },
            OpenerRequest::Dress { path: path.clone(), attributes },
            OpenerRequest::Open { folder: 1, name: name.clone(), how: OpenMode::Name, mode: 0 },
            OpenerRequest::Tell { folder: 2, names: vec![name.clone(), "x".into()] },
            OpenerRequest::Rename { folder: 1, name: name.clone(), to: 2, new: "y".into(), over: Overwrite::Nothing },
            OpenerRequest::RemoveFile { folder: 1, name: name.clone() },
            OpenerRequest::RemoveFolder { folder: 1, name: name.clone() },
            OpenerRequest::MakeFolder { folder: 1, name: name.clone() },
            OpenerRequest::MakeLink { folder: 1, name: name.clone(), target: "../t".into() },
            OpenerRequest::DressIn { folder: 1, name, device: 2, inode: 3, attributes: Attributes { mode: Some(0), ..attributes } },
            OpenerRequest::Room { folder: u32::MAX },
            OpenerRequest::Place { folder: path.clone(), name: "x".into() },
            OpenerRequest::Begin { folder: path, fresh: fresh.clone() },
            OpenerRequest::BeginIn { folder: 3, fresh },
            OpenerRequest::Publish { folder: 3, fresh: "p".into(), device: 1, inode: 2, attributes, name: "n".into(), over: Overwrite::Nothing },
            OpenerRequest::Xattrs { path: "a".into() },
            OpenerRequest::Xattr { path: "a".into(), name: "user.x".into() },
            OpenerRequest::SetXattr { path: "a".into(), name: "user.x".into(), value: None },
            OpenerRequest::SetXattr { path: "a".into(), name: "user.x".into(), value: Some(vec![]) },
            OpenerRequest::SetXattr { path: "a".into(), name: "user.x".into(), value: Some(vec![0xff; 300]) },
            OpenerRequest::Release { folder: 0 },
        ]
    }

    fn replies() -> Vec<OpenerReply> {
        let told = |target: Option<PathBuf>| {
            Ok(NameMeta {
                meta: meta(),
                target,
            })
        };
        vec![
            OpenerReply::Hello { process: 9 },
            OpenerReply::Refused("no".into()),
            OpenerReply::Done,
            OpenerReply::Passed,
            OpenerReply::Folder(4),
            OpenerReply::Meta(meta()),
            OpenerReply::Told(vec![told(None), Err(2), told(Some("t".into()))]),
            OpenerReply::Room(DiskSpace {
                total_bytes: 2,
                free_bytes: 1,
            }),
            OpenerReply::Failed(13),
            OpenerReply::Place(3, told(None)),
            OpenerReply::Place(3, Err(2)),
            OpenerReply::Begun(3, None),
            OpenerReply::Begun(3, Some(meta())),
            OpenerReply::Bytes(b"user.a\0".to_vec()),
        ]
    }

    #[test]
    fn messages_come_back_as_they_were() {
        for request in requests() {
            let bytes = request.encode().unwrap();
            assert_eq!(OpenerRequest::decode(&bytes), Some(request));
        }
        for reply in replies() {
            assert_eq!(OpenerReply::decode(&reply.encode()), Some(reply));
        }
    }

    #[test]
    fn cut_or_long_bytes_are_no_message() {
        let requests = requests().into_iter().map(|r| r.encode().unwrap());
        for bytes in requests {
            (0..bytes.len()).for_each(|cut| assert_eq!(OpenerRequest::decode(&bytes[..cut]), None));
            assert_eq!(OpenerRequest::decode(&[&bytes[..], b"x"].concat()), None);
        }
        for bytes in replies().iter().map(OpenerReply::encode) {
            (0..bytes.len()).for_each(|cut| assert_eq!(OpenerReply::decode(&bytes[..cut]), None));
        }
    }

    #[test]
    fn any_bytes_are_taken_without_harm() {
        let mut state = 88_172_645_463_325_252u64;
        for round in 0..20_000usize {
            let bytes: Vec<u8> = (0..round % 64)
                .map(|_| {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    state as u8 % 16
                })
                .collect();
            let _ = (OpenerRequest::decode(&bytes), OpenerReply::decode(&bytes));
        }
    }

    #[test]
    fn invalid_names_are_refused() {
        let path = PathBuf::from("x".repeat(PATH_MAX + 1));
        let error = OpenerRequest::Meta { path }.encode().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidFilename);
    }

    #[test]
    fn what_is_told_never_outgrows_a_message() {
        let target = Some(PathBuf::from("x".repeat(PATH_MAX)));
        let told = Ok(NameMeta {
            meta: meta(),
            target,
        });
        let bytes = OpenerReply::Told(vec![told; NAMES_MAX]).encode();
        assert!(bytes.len() <= BYTES_MAX);
        let Some(OpenerReply::Told(told)) = OpenerReply::decode(&bytes) else {
            panic!("it is a reply");
        };
        assert!((10..NAMES_MAX).contains(&told.len()));
        let names = vec![OsString::from("x".repeat(NAME_MAX)); 1000];
        assert!((10..NAMES_MAX).contains(&fitting(&names).len()));
    }
}
