//! A file of lines for those who ask later, bounded: a full one is put aside under
//! another name, and the one before it is forgotten.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// `transfers.jsonl` in a directory, open to be written behind its end.
#[derive(Debug)]
pub struct Journal {
    directory: PathBuf,
    file: File,
    file_bytes: u64,
    bytes_max: u64,
}

impl Journal {
    /// Opens the file, and makes the directory.
    pub fn open(directory: &Path) -> io::Result<Self> {
        Self::bounded(directory, BYTES_MAX)
    }

    fn bounded(directory: &Path, bytes_max: u64) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        let name = directory.join("transfers.jsonl");
        if fs::metadata(&name).is_ok_and(|meta| meta.len() >= bytes_max) {
            fs::rename(&name, directory.join("transfers.jsonl.1"))?;
        }
        // Appending keeps the lines of several programs apart.
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(name)?;
        Ok(Self {
            directory: directory.into(),
            file_bytes: file.metadata()?.len(),
            file,
            bytes_max,
        })
    }
}

/// Writes whole lines; those of one call stand together in one file.
impl Write for Journal {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        if self.file_bytes >= self.bytes_max {
            *self = Self::bounded(&self.directory, self.bytes_max)?;
        }
        let written = self.file.write(lines)?;
        self.file_bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

const BYTES_MAX: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn new_journal_is_readable_by_owner_only() {
        let scratch = tempfile::tempdir().unwrap();
        Journal::open(scratch.path()).unwrap();
        let meta = fs::metadata(scratch.path().join("transfers.jsonl")).unwrap();
        assert_eq!(meta.permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn full_journal_replaces_the_older_one() {
        let scratch = tempfile::tempdir().unwrap();
        let text = |name| fs::read_to_string(scratch.path().join(name)).unwrap();
        for round in 0..3 {
            let mut journal = Journal::bounded(scratch.path(), 10).unwrap();
            journal
                .write_all(format!("this is line {round}\n").as_bytes())
                .unwrap();
        }
        assert_eq!(text("transfers.jsonl"), "this is line 2\n");
        assert_eq!(text("transfers.jsonl.1"), "this is line 1\n");
        let mut journal = Journal::bounded(scratch.path(), 10).unwrap();
        for line in ["this is line 3\n", "this is line 4\n"] {
            journal.write_all(line.as_bytes()).unwrap();
        }
        assert_eq!(text("transfers.jsonl"), "this is line 4\n");
        assert_eq!(text("transfers.jsonl.1"), "this is line 3\n");
    }
}
