//! When an upload becomes a file: the table of docs/semantics/publishing.md.
//!
//! Decided before the first byte comes; what happens at the end of data is
//! decided in [`UploadPlan::at_end`].

use crate::access::guarded::GuardedExport;
use godwit_core::{Digest, Extents, Kind};
use godwit_store::{
    Checks, EntryKind, Expected, Result, Store, Write, WriteMode,
    channel::{LastWord, Received},
};
use godwit_wire::{
    command::{Rest, TransferMode, Upload, UploadHow},
    server::{Give, Leg, Refusal, UploadPlace},
};
use std::{path::Path, time::Duration};

/// How an upload is written.
#[derive(Clone, Debug)]
pub(super) struct UploadPlan {
    pub(super) how: WriteMode,
    /// Whether to resume a partial of this identity.
    pub(super) resume: bool,
    pub(super) id: Option<String>,
    /// Offset 0 of the wire in the file: of stream mode, or of a part.
    pub(super) base: u64,
    /// The announced length of the file, or of the rest.
    pub(super) announced: AnnouncedSize,
    pub(super) end: UploadEnd,
    pub(super) mode: Option<u32>,
    pub(super) modify: Option<Duration>,
    pub(super) check: Option<Digest>,
}

/// The length that the client announced.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct AnnouncedSize {
    size: Option<u64>,
}

/// The meaning of the end of data.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum UploadEnd {
    /// Readers saw every byte at once.
    InPlace,
    /// The file takes its name if it is whole.
    Publish,
    /// Another command will say.
    Hold,
}

/// The action at the end of data.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum UploadVerdict {
    /// Finish, with this length.
    Finish(Option<u64>),
    /// Finish with this length if the control connection is still there.
    FinishIfAlive(u64),
    /// The data ended too soon.
    Keep {
        /// The number of bytes announced.
        announced: u64,
    },
    /// No protected message confirmed that this is all; the given one may do so.
    Cut(LastWord),
    /// Leave it to another command.
    Hold,
}

impl UploadPlan {
    pub(super) fn of(
        dir: &GuardedExport,
        path: &Path,
        give: &Give,
        mode: TransferMode,
    ) -> Result<Self, Refusal> {
        let plan = match &give.place {
            UploadPlace::Whole => whole(dir, path, give.rest.as_ref(), mode),
            UploadPlace::End => end(dir, path, mode),
            UploadPlace::Unique => Ok(Self::new(WriteMode::New, UploadEnd::Publish)),
            UploadPlace::At(offset) => Ok(Self::in_place(*offset)),
            UploadPlace::Named(upload) => Ok(Self::named(upload, give.rest.as_ref())),
        };
        let mut plan = plan.map_err(|refused| match refused {
            PlanRefusal::By(error) => Refusal::from(&error),
            PlanRefusal::NotHere(done) => Refusal::of_kind(
                Kind::Changed,
                format!("What REST names is not here; here is: {done}"),
            ),
        })?;
        if plan.announced.size.is_none() {
            plan.announced = AnnouncedSize { size: give.size };
        }
        plan.modify = plan.modify.or(give.modify);
        if let Some((by, value)) = &give.check {
            let digest = Digest::from_hex(*by, value)
                .map_err(|_| Refusal::of_kind(Kind::Invalid, "The checksum is not one."))?;
            plan.check = Some(digest);
        }
        Ok(plan)
    }

    fn new(how: WriteMode, end: UploadEnd) -> Self {
        Self {
            how,
            resume: false,
            id: None,
            base: 0,
            announced: AnnouncedSize::default(),
            end,
            mode: None,
            modify: None,
            check: None,
        }
    }

    fn in_place(base: u64) -> Self {
        Self {
            base,
            ..Self::new(WriteMode::InPlace, UploadEnd::InPlace)
        }
    }

    fn go_on(base: u64) -> Self {
        Self {
            base,
            resume: true,
            ..Self::new(WriteMode::Replace(None), UploadEnd::Publish)
        }
    }

    /// `ESTO GODWIT`: offsets are the file's.
    fn named(upload: &Upload, rest: Option<&Rest>) -> Self {
        let (how, end) = match upload.how {
            UploadHow::New => (WriteMode::New, UploadEnd::Publish),
            UploadHow::Replace => (WriteMode::Replace(None), UploadEnd::Publish),
            UploadHow::InPlace => (WriteMode::InPlace, UploadEnd::InPlace),
        };
        Self {
            resume: true,
            id: upload.id.clone(),
            base: prefix(rest),
            announced: AnnouncedSize { size: upload.size },
            mode: upload.mode,
            modify: upload.modify,
            check: upload.blake3.as_deref().and_then(blake3),
            end: if upload.hold { UploadEnd::Hold } else { end },
            ..Self::new(how, end)
        }
    }

    pub(super) fn write(&self, leg: &Leg) -> Write<'_> {
        let adler32 = self
            .check
            .as_ref()
            .is_some_and(|d| d.algorithm() == godwit_core::Algorithm::Adler32);
        Write {
            how: self.how.clone(),
            size: self
                .announced
                .size
                .filter(|_| self.end != UploadEnd::InPlace),
            id: self.id.as_deref(),
            mode: self.mode,
            resume: self.resume,
            checks: Checks {
                blake3: leg.digests,
                adler32,
            },
            streams: leg.streams,
            ..Write::default()
        }
    }

    pub(super) fn whole(&self, size: Option<u64>) -> Expected {
        Expected {
            size,
            digest: self.check.clone(),
            mtime: self.modify,
            mode: self.mode,
        }
    }

    /// Decides when data has ended well. A stream says no more than that it
    /// ended; extended blocks say that all came.
    pub(super) fn at_end(
        &self,
        mode: TransferMode,
        received: &Received,
        done: &Extents,
    ) -> UploadVerdict {
        let received_bytes = received.bytes;
        // Some clients announce the length of the rest, others of the file.
        let agrees =
            |announced: u64| announced == self.base + received_bytes || announced == received_bytes;
        let is_told = self.announced.size.is_some_and(agrees);
        match (self.end, mode, received.lacks.filter(|_| !is_told)) {
            (UploadEnd::Hold, ..) => UploadVerdict::Hold,
            (_, _, Some(word)) => UploadVerdict::Cut(word),
            (UploadEnd::InPlace, ..) => UploadVerdict::Finish(None),
            (UploadEnd::Publish, TransferMode::Extended, None) => {
                let announced = self.announced.size.unwrap_or(0);
                UploadVerdict::Finish(Some(announced.max(done.end())))
            }
            (UploadEnd::Publish, TransferMode::Stream, None) => {
                let end = self.base + received_bytes;
                match self.announced.size {
                    Some(announced) if agrees(announced) => UploadVerdict::Finish(Some(end)),
                    Some(announced) if announced > end => UploadVerdict::Keep { announced },
                    _ => UploadVerdict::FinishIfAlive(end),
                }
            }
        }
    }
}

enum PlanRefusal {
    By(godwit_store::Error),
    NotHere(Extents),
}

impl From<godwit_store::Error> for PlanRefusal {
    fn from(error: godwit_store::Error) -> Self {
        Self::By(error)
    }
}

/// `STOR`.
fn whole(
    dir: &GuardedExport,
    path: &Path,
    rest: Option<&Rest>,
    mode: TransferMode,
) -> Result<UploadPlan, PlanRefusal> {
    let have = match rest {
        None => Extents::new(),
        Some(Rest::From(start)) => Extents::from(0..*start),
        Some(Rest::Have(have)) => have.clone(),
    };
    if have.is_empty() {
        return Ok(UploadPlan::new(
            WriteMode::Replace(None),
            UploadEnd::Publish,
        ));
    }
    let base = if mode == TransferMode::Stream {
        have.prefix()
    } else {
        0
    };
    let kept = kept(dir, path)?;
    let lies_in_partial = have.minus(&kept).is_empty();
    match existing(dir, path)? {
        None if lies_in_partial => Ok(UploadPlan::go_on(base)),
        None => Err(PlanRefusal::NotHere(kept)),
        // A gap would be read as zeros that no client sent.
        Some(size) if mode == TransferMode::Stream && base > size => {
            Err(PlanRefusal::NotHere(Extents::from(0..size)))
        }
        // A client of stream mode saw the size of the file, and continues at its end.
        Some(_) if mode == TransferMode::Stream => Ok(UploadPlan::in_place(base)),
        Some(_) if lies_in_partial => Ok(UploadPlan::go_on(base)),
        Some(_) => Ok(UploadPlan::in_place(0)),
    }
}

/// `APPE`.
fn end(dir: &GuardedExport, path: &Path, mode: TransferMode) -> Result<UploadPlan, PlanRefusal> {
    match (existing(dir, path)?, mode) {
        (Some(_), TransferMode::Stream) => {
            let how = WriteMode::Append { writer: 0, seq: 0 };
            Ok(UploadPlan::new(how, UploadEnd::InPlace))
        }
        (Some(size), TransferMode::Extended) => Ok(UploadPlan::in_place(size)),
        // `curl -C -` asks for SIZE, which returned the length of the partial, and appends.
        (None, _) => match kept(dir, path)?.prefix() {
            0 => Ok(UploadPlan::new(
                WriteMode::Replace(None),
                UploadEnd::Publish,
            )),
            prefix => Ok(UploadPlan::go_on(prefix)),
        },
    }
}

fn existing(dir: &GuardedExport, path: &Path) -> Result<Option<u64>> {
    match dir.stat(path) {
        Ok(stat) if stat.kind == EntryKind::Directory => Err(godwit_store::Error::directory(path)),
        Ok(stat) => Ok(Some(stat.size)),
        Err(godwit_store::Error::Missing { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn kept(dir: &GuardedExport, path: &Path) -> Result<Extents> {
    match dir.partial(path, None) {
        Ok(partial) => Ok(partial.map(|partial| partial.done).unwrap_or_default()),
        Err(godwit_store::Error::Missing { .. }) => Ok(Extents::new()),
        Err(error) => Err(error),
    }
}

fn prefix(rest: Option<&Rest>) -> u64 {
    match rest {
        Some(Rest::From(start)) => *start,
        Some(Rest::Have(have)) => have.prefix(),
        None => 0,
    }
}

pub(super) fn blake3(hex: &str) -> Option<Digest> {
    Digest::from_hex(godwit_core::Algorithm::Blake3, hex).ok()
}
