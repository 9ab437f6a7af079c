//! Files that are only read: whole ones by a descriptor, others part by part.

use crate::asking::{Failed, NodeTalk, Result};
use godwit_core::{Ahead, Version};
use godwit_local::{Kind, NodeAnswer, Refusal, odd};
use godwit_sys::begin_to_read;
use godwit_wire::local::{
    Handle, Request, Response,
    request::{self, Freshness},
    response::OpenedFile,
};
use parking_lot::{Mutex, RwLock};
use std::{
    fs::File,
    io,
    ops::Range,
    os::unix::fs::{FileExt, MetadataExt},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

/// A descriptor that is only read.
pub(crate) struct FileReader {
    url: String,
    /// Whether the program has read some bytes.
    is_begun: AtomicBool,
    ahead: Mutex<Ahead>,
    source: RwLock<ReadSource>,
}

struct ReadSource {
    file: File,
    /// The handle that is given back to the node; `None`: the file is written here.
    of: Option<(u64, Handle)>,
    is_lazy: bool,
    version: Version,
}

impl ReadSource {
    /// Returns the file that the node opened.
    fn told((era, answer): (u64, NodeAnswer)) -> Result<Self> {
        let (opened, file) = opened(answer)?;
        Ok(Self {
            file,
            of: Some((era, opened.handle)),
            is_lazy: opened.lazy,
            version: opened.version.into(),
        })
    }
}

impl FileReader {
    /// Returns a reader of a file that is written here.
    pub(crate) fn of_file(file: File) -> Self {
        let source = ReadSource {
            file,
            of: None,
            is_lazy: false,
            version: Version::None,
        };
        Self::new(String::new(), source)
    }

    fn new(url: String, source: ReadSource) -> Self {
        Self {
            url,
            is_begun: AtomicBool::new(false),
            ahead: Mutex::default(),
            source: RwLock::new(source),
        }
    }

    pub(crate) fn is_lazy(&self) -> bool {
        self.source.read().is_lazy
    }

    pub(crate) fn read(&self, at: u64, bytes: &mut [u8]) -> Result<usize> {
        let source = self.source.read();
        let next = self.ahead.lock().read(at..at + bytes.len() as u64);
        for range in next.iter() {
            begin_to_read(&source.file, range);
        }
        let came = read_all(&source.file, at, bytes)?;
        self.is_begun.store(true, Relaxed);
        Ok(came)
    }
}

impl NodeTalk {
    /// Opens a file of which parts may come later.
    pub(crate) fn open_to_read(&self, url: String, thread: u32) -> Result<FileReader> {
        let source = self.source(&url, Freshness::Usual, thread)?;
        Ok(FileReader::new(url, source))
    }

    /// Opens a file to read that a mount of this machine writes, and of which parts are here.
    pub(crate) fn open_shared(&self, url: String, thread: u32) -> Result<FileReader> {
        let open = Request::Open(request::OpenRequest {
            url: url.clone(),
            read: true,
            write: true,
            lazy: true,
            ..request::OpenRequest::default()
        });
        let source = ReadSource::told(self.ask(thread, &open)?)?;
        Ok(FileReader::new(url, source))
    }

    fn source(&self, url: &str, fresh: Freshness, thread: u32) -> Result<ReadSource> {
        let open = |fresh: Freshness| {
            Request::Open(request::OpenRequest {
                url: url.to_owned(),
                read: true,
                lazy: true,
                fresh,
                ..request::OpenRequest::default()
            })
        };
        let answer = match fresh {
            Freshness::Usual => self.ask_for_file(thread, open),
            _ => self.ask_patiently(thread, &open(fresh)),
        }?;
        ReadSource::told(answer)
    }

    /// Waits until a range is here.
    pub(crate) fn ensure(&self, reader: &FileReader, range: Range<u64>, thread: u32) -> Result<()> {
        loop {
            let of = {
                let source = reader.source.read();
                source.of.filter(|_| source.is_lazy)
            };
            let Some((era, handle)) = of else {
                return Ok(());
            };
            let ensure = Request::Ensure(request::Ensure {
                handle,
                ranges: vec![(range.start, range.end)],
            });
            match self.ask_patiently_on(Some(era), thread, &ensure) {
                Err(failed) if failed.is_node_lost() => {
                    self.open_again(reader, (era, handle), Freshness::Usual, thread)?;
                }
                // The node had opened an older version, and the program has no byte of that.
                Err(Failed::Refused(refusal))
                    if refusal.kind == Kind::Changed && !reader.is_begun.load(Relaxed) =>
                {
                    self.open_again(reader, (era, handle), Freshness::Asked, thread)?;
                }
                ensured => return ensured.map(drop),
            }
        }
    }

    /// Opens a file again; if its bytes have changed, the program gets an error.
    fn open_again(
        &self,
        reader: &FileReader,
        lost: (u64, Handle),
        fresh: Freshness,
        thread: u32,
    ) -> Result<()> {
        let next = self.source(&reader.url, fresh, thread)?;
        let mut source = reader.source.write();
        if source.of != Some(lost) {
            drop(source);
            self.give_back_source(&next);
            return Ok(()); // another thread was first
        }
        let file =
            |source: &ReadSource| source.file.metadata().map(|meta| (meta.dev(), meta.ino()));
        let is_same =
            source.version.compare(&next.version).looks_same() || file(&source)? == file(&next)?;
        if !is_same && reader.is_begun.load(Relaxed) {
            self.give_back_source(&next);
            let wanted = format!("read {}", reader.url);
            let words = "the node of this machine ended, and the file is another by now";
            let refusal = Refusal::new(Kind::Changed, wanted, words);
            return Err(refusal.next("open it again").into());
        }
        self.give_back_source(&std::mem::replace(&mut *source, next));
        Ok(())
    }

    pub(crate) fn give_back_reader(&self, reader: &FileReader) {
        self.give_back_source(&reader.source.read());
    }

    fn give_back_source(&self, source: &ReadSource) {
        if let Some(of) = source.of {
            self.give_back(of);
        }
    }
}

/// Returns the opened file and its descriptor.
pub(crate) fn opened(mut answer: NodeAnswer) -> Result<(OpenedFile, File), Refusal> {
    match (answer.tell, answer.files.pop()) {
        (Response::Opened(opened), Some(file)) => Ok((opened, File::from(file))),
        (tell, _) => Err(odd(&tell)),
    }
}

pub(crate) fn read_all(file: &File, at: u64, bytes: &mut [u8]) -> io::Result<usize> {
    let mut came = 0;
    while came < bytes.len() {
        match file.read_at(&mut bytes[came..], at + came as u64)? {
            0 => break,
            more => came += more,
        }
    }
    Ok(came)
}
