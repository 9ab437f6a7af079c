//! Names as a program of this machine sees them.

use super::{
    Reply,
    desk::{Answered, Guest, of_files},
    naming::put,
    refusing,
};
use godwit_core::Url;
use godwit_local::Refusal;
use godwit_store::{EntryKind, Stat};
use godwit_wire::local::{Tell, frame::BODY_BYTES_MAX, tell};
use std::os::unix::ffi::OsStrExt;

impl Guest {
    /// Looks at a name, with its pending changes.
    pub(super) fn look(&self, url: &Url) -> Result<tell::Stat, Refusal> {
        let wanted = format!("look at {}", url.without_password());
        let found = self.desk.depot.look(url, &self.who);
        found
            .map(|stat| told(url, &stat))
            .map_err(|error| refusing::depot(&wanted, Some(url), &error))
    }

    /// Tells what there is in a directory.
    pub(super) fn list(&self, url: &Url, reply: &Reply) -> Answered {
        let wanted = format!("list {}", url.without_password());
        let entries = self.desk.depot.entries(url, &self.who);
        let entries = entries.map_err(|error| refusing::depot(&wanted, Some(url), &error))?;
        let (mut lines, mut count) = (Vec::new(), 0);
        for entry in &entries {
            // A name that leads elsewhere is shown to no program.
            let Ok(url) = url.join(entry.path.as_os_str().as_bytes()) else {
                continue;
            };
            if lines.len() > BODY_BYTES_MAX / 4 {
                reply.tell_with(Tell::Answers, &lines, &[]);
                lines.clear();
            }
            count += 1;
            put(&mut lines, &told(&url, &entry.stat));
        }
        if !lines.is_empty() {
            reply.tell_with(Tell::Answers, &lines, &[]);
        }
        of_files(count)
    }
}

fn told(url: &Url, stat: &Stat) -> tell::Stat {
    let nanos = stat.mtime.map(|mtime| u64::try_from(mtime.as_nanos()));
    tell::Stat {
        url: url.without_password().to_string(),
        size: stat.size,
        is_directory: stat.kind == EntryKind::Directory,
        mtime_ns: nanos.and_then(Result::ok),
        mode: stat.mode,
        ..tell::Stat::default()
    }
}
