//! Files that a program syncs while it writes them.
//!
//! The node persists a file that was emptied or made when it ends. So a sync ends it, and it is delivered as it is then.
//! The next write opens it again.

use crate::{
    Shared,
    asking::{Failed, NO_THREAD, Result},
    body::{Body, Hold, Kept},
    reader::opened,
};
use godwit_sys::unnamed;
use godwit_wire::local::{
    Request,
    request::{self, Freshness, Selector},
};
use std::{
    env,
    fs::File,
    io,
    os::{fd::AsRawFd, unix::fs::MetadataExt},
};

impl Shared {
    /// Makes the written bytes durable on this machine, or delivers them.
    pub(crate) fn sync(&self, body: &Body, thread: u32) -> Result<()> {
        self.commit(body)?;
        let is_kept = body.hold.read().kept != Kept::Orphan;
        if self.asking.rules.fsync_pushes && is_kept && !body.state.lock().is_unlinked {
            let url = Some(body.url());
            let whose = Selector {
                url,
                ..Selector::default()
            };
            self.asking.ask(thread, &Request::Push(whose))?;
        }
        Ok(())
    }

    /// Makes the written bytes durable on this machine.
    fn commit(&self, body: &Body) -> Result<()> {
        if let Some(parts) = &body.parts {
            return self.keep_parts(body, parts);
        }
        let _turn = body.turn.lock();
        let is_unlinked = body.state.lock().is_unlinked;
        self.must_be_kept(body)?;
        let mut hold = body.hold.write();
        match hold.kept {
            Kept::AtTheEnd if !is_unlinked => {}
            // Only what has ended is delivered.
            Kept::AsWritten if self.asking.rules.fsync_pushes && !is_unlinked => {}
            Kept::Synced => return Ok(()),
            _ => {
                drop(hold);
                body.with(File::sync_data)?;
                return self.must_be_kept(body);
            }
        }
        let (era, handle) = (hold.era, hold.handle);
        let file = hold.file.as_ref().ok_or(Failed::Plain(libc::EBADF))?;
        let again = open_again(file, false)?;
        hold.file = Some(again); // the node sees the last writer go
        let before = std::mem::replace(&mut hold.kept, Kept::Synced);
        drop(hold);
        match self.asking.end((era, handle), false) {
            Ok(()) => {
                let mut state = body.state.lock();
                state.is_new = false;
                if !state.is_unlinked {
                    return Ok(());
                }
                drop(state);
                // The node may have removed the name before it had the file.
                let url = body.url();
                let unlink = Request::Deed(request::NameDeed::Unlink { url });
                match self.asking.ask(NO_THREAD, &unlink) {
                    Err(failed) if !failed.is_missing() => Err(failed),
                    _ => Ok(()),
                }
            }
            Err(failed) => {
                let mut hold = body.hold.write();
                let again = hold.file.as_ref().map(|file| open_again(file, true));
                hold.file = again.transpose()?;
                hold.kept = before; // its end tells that it is lost
                match failed.is_node_lost() {
                    true => Err(Failed::Plain(libc::EIO)),
                    false => Err(failed),
                }
            }
        }
    }

    /// Renames a file that the node knows by its name, while it is written.
    pub(crate) fn rename_at_node(&self, body: &Body, to: String, thread: u32) -> Result<()> {
        let _turn = body.turn.lock();
        let rename = request::NameDeed::Rename {
            url: body.url(),
            to: to.clone(),
        };
        self.asking.ask(thread, &Request::Deed(rename))?;
        *body.url.lock() = to;
        Ok(())
    }

    /// Opens a file again that was synced, if a program is about to change it.
    pub(crate) fn open_synced(&self, body: &Body, thread: u32) -> Result<()> {
        let _turn = body.turn.lock();
        let is_unlinked = body.state.lock().is_unlinked;
        let synced = {
            let hold = body.hold.read();
            match (hold.kept, &hold.file) {
                (Kept::Synced, Some(file)) => open_again(file, false)?,
                _ => return Ok(()),
            }
        };
        if is_unlinked {
            let mut orphan = unnamed(&env::temp_dir())?;
            io::copy(&mut &synced, &mut orphan)?;
            let mut hold = body.hold.write();
            (hold.file, hold.kept) = (Some(orphan), Kept::Orphan);
            return Ok(());
        }
        let open = Request::Open(request::OpenRequest {
            url: body.url(),
            read: true,
            write: true,
            fresh: Freshness::Kept,
            ..request::OpenRequest::default()
        });
        let (era, answer) = self.asking.ask(thread, &open)?;
        let (opened, file) = opened(answer)?;
        let of = |file: &File| file.metadata().map(|meta| (meta.dev(), meta.ino()));
        if of(&file)? != of(&synced)? {
            drop(file);
            self.asking.give_back((era, opened.handle));
            return Err(Failed::Plain(libc::ESTALE)); // another program replaced it
        }
        *body.hold.write() = Hold {
            file: Some(file),
            era,
            handle: opened.handle,
            kept: Kept::AsWritten,
        };
        Ok(())
    }

    /// Writes at an offset or at the end, after asking the node where that is wanted.
    pub(crate) fn write(
        &self,
        body: &Body,
        at: Option<u64>,
        data: &[u8],
        thread: u32,
    ) -> Result<()> {
        if let Some(parts) = &body.parts {
            return self.write_parts((body, parts), at, data, thread);
        }
        while body.write(data, at)?.is_none() {
            self.open_synced(body, thread)?;
            self.must_be_kept(body)?;
        }
        Ok(())
    }

    /// Changes a file, after opening it again if it was synced.
    pub(crate) fn change<T>(
        &self,
        body: &Body,
        thread: u32,
        act: impl Fn(&File) -> io::Result<T>,
    ) -> Result<T> {
        loop {
            self.must_be_kept(body)?;
            if let Some(done) = body.change(&act)? {
                return Ok(done);
            }
            self.open_synced(body, thread)?;
        }
    }
}

/// Opens a file again, from its beginning.
pub(crate) fn open_again(file: &File, is_written: bool) -> io::Result<File> {
    File::options()
        .read(true)
        .write(is_written)
        .open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}
