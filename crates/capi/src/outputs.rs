//! Output files: other programs append to `dev/stdout` and `dev/stderr` of a served directory, and
//! this program prints them.
//!
//! At the node they are plain files. The node decides who may append, and keeps lines whole and
//! single. This module looks for growth, and hands whole lines on.

use crate::{
    failure::{Failure, Result},
    process::{self, Instance},
};
use std::{
    ffi::{CStr, OsStr},
    fs::{DirBuilder, File, OpenOptions},
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{
            ffi::OsStrExt,
            fs::{DirBuilderExt, FileExt, OpenOptionsExt},
        },
    },
    path::Path,
    sync::{Mutex, PoisonError},
};

/// The two of a directory.
#[derive(Debug)]
pub(crate) struct ServedOutputs {
    grown: OwnedFd,
    all: Mutex<[Output; 2]>,
}

/// One of them.
#[derive(Debug)]
struct Output {
    name: &'static CStr,
    file: File,
    /// Up to where it was handed on.
    at: u64,
}

/// Takes what came: by which name, and bytes that end with a line, unless that is long.
pub(crate) type Print<'a> = &'a mut dyn FnMut(&CStr, &[u8]);

impl ServedOutputs {
    /// Begins with what is appended from now on.
    pub(crate) fn open(directory: &CStr) -> Result<Self> {
        let directory = Path::new(OsStr::from_bytes(directory.to_bytes()));
        let failed = |path: &Path, error: &io::Error| {
            Failure::system(&format!("have {} for outputs", path.display()), error)
        };
        let dev = directory.join("dev");
        match DirBuilder::new().mode(0o755).create(&dev) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed(&dev, &error));
            }
            _ => {}
        }
        // It is waited for by the descriptor of the library as well, which begins now if it has not.
        process::watch(Instance::ours()?.talk.ready.as_fd())?;
        let grown = process::grown().map_err(|error| failed(&dev, &error))?;
        let open = |name: &'static CStr| {
            let path = directory.join(OsStr::from_bytes(&name.to_bytes()[1..]));
            let output = Output::open(name, &path, &grown);
            output.map_err(|error| failed(&path, &error))
        };
        let all = [open(c"/dev/stdout")?, open(c"/dev/stderr")?];
        process::watch_also(&grown);
        Ok(Self {
            grown,
            all: Mutex::new(all),
        })
    }

    /// Can be read when something was appended.
    pub(crate) fn news(&self) -> BorrowedFd<'_> {
        self.grown.as_fd()
    }

    /// Hands on what came since, and tells whether there was something. `is_over`: nothing more comes, and what is no
    /// whole line counts too.
    pub(crate) fn hand_on(&self, print: Print<'_>, is_over: bool) -> Result<bool> {
        process::hear(&self.grown);
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let mut has_come = false;
        for output in &mut *all {
            let handed_on = output.hand_on(print, is_over);
            let failed = |error| Failure::system("print what came", &error);
            has_come |= handed_on.map_err(failed)?;
        }
        Ok(has_come)
    }
}

impl Drop for ServedOutputs {
    fn drop(&mut self) {
        process::watch_no_more(&self.grown);
    }
}

impl Output {
    fn open(name: &'static CStr, path: &Path, grown: &OwnedFd) -> io::Result<Self> {
        let mut how = OpenOptions::new();
        how.read(true).append(true).create(true).mode(0o644);
        let file = how.custom_flags(libc::O_NOFOLLOW).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        process::watch_growth(grown, path)?;
        // What others append goes by other descriptors.
        let file = File::open(path)?;
        let at = file.metadata()?.len();
        Ok(Self { name, file, at })
    }

    fn hand_on(&mut self, print: Print<'_>, is_over: bool) -> io::Result<bool> {
        // The server cuts off bytes of an incomplete append.
        self.at = self.at.min(self.file.metadata()?.len());
        let (mut piece, mut has_come) = (vec![0; PIECE_BYTES], false);
        loop {
            let came = match self.file.read_at(&mut piece, self.at) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                came => came?,
            };
            let line_end = piece[..came].iter().rposition(|&byte| byte == b'\n');
            let whole = match line_end {
                Some(end) => end + 1,
                None if is_over || came == piece.len() => came,
                None => 0,
            };
            if whole == 0 {
                return Ok(has_come);
            }
            print(self.name, &piece[..whole]);
            (self.at, has_come) = (self.at + whole as u64, true);
        }
    }
}

/// A line that is longer is handed on in pieces.
const PIECE_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use std::{ffi::CString, fs, io::Write};

    #[test] //= GASS-70
    fn whole_lines_first_rest_at_end() {
        let dir = std::env::temp_dir().join(format!("godwit-outputs-{}", std::process::id()));
        fs::create_dir_all(dir.join("dev")).unwrap();
        fs::write(dir.join("dev/stdout"), "of a run before\n").unwrap();
        let name = CString::new(dir.to_str().unwrap()).unwrap();
        let outputs = ServedOutputs::open(&name).unwrap();
        let mut said = Vec::new();
        let mut print = |name: &CStr, bytes: &[u8]| {
            said.push((name.to_owned(), String::from_utf8(bytes.to_vec()).unwrap()));
        };
        let append = |name: &str, text: &str| {
            let mut file = OpenOptions::new()
                .append(true)
                .open(dir.join(name))
                .unwrap();
            file.write_all(text.as_bytes()).unwrap();
        };
        assert!(!outputs.hand_on(&mut print, false).unwrap());
        append("dev/stdout", "one\ntw");
        append("dev/stderr", "wrong\n");
        assert!(outputs.hand_on(&mut print, false).unwrap());
        append("dev/stdout", "o\nthree");
        assert!(outputs.hand_on(&mut print, false).unwrap());
        let long = "x".repeat(PIECE_BYTES);
        append("dev/stderr", &long);
        assert!(outputs.hand_on(&mut print, false).unwrap());
        assert!(!outputs.hand_on(&mut print, false).unwrap());
        assert!(outputs.hand_on(&mut print, true).unwrap());
        let text = |name: &CStr| {
            let of = said.iter().filter(|(of, _)| of.as_c_str() == name);
            of.map(|(_, text)| &**text).collect::<Vec<_>>()
        };
        assert_eq!(text(c"/dev/stdout"), ["one\n", "two\n", "three"]);
        assert_eq!(text(c"/dev/stderr"), ["wrong\n", &*long]);
        fs::remove_dir_all(dir).unwrap();
    }
}
