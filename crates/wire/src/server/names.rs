//! Commands about names: `CWD CDUP PWD SIZE MDTM MFMT MLST MLSC STAT CKSM DELE
//! RMD MKD RNFR RNTO`.

use super::{
    Ask, Change, Form, FtpAnswer, ListedKind, ListedStat, Listing, Refusal, Removed, Session, Then,
    place::shown,
};
use crate::{command::RawName, features::algorithm};
use godwit_core::Kind;
use std::{ops::Range, path::Path, path::PathBuf, time::Duration};

impl Session {
    pub(super) fn enter(&mut self, name: &RawName) -> Option<Ask> {
        let path = self.path(name, "look at it")?;
        self.ask(Ask::Stat { path: path.clone() }, Then::Enter(path))
    }

    /// The root has no parent but itself.
    pub(super) fn enter_parent(&mut self) -> Option<Ask> {
        let mut path = self.ready().current.clone();
        path.pop();
        self.ask(Ask::Stat { path: path.clone() }, Then::Enter(path))
    }

    pub(super) fn on_entered(&mut self, path: PathBuf, answer: FtpAnswer) {
        let failure = match answer {
            FtpAnswer::Stat(stat) if stat.kind == ListedKind::Directory => {
                self.ready().current = path;
                return self.say.line(250, "CWD command successful.");
            }
            FtpAnswer::Stat(_) => Refusal::of_kind(Kind::NotDirectory, "Not a directory"),
            answer => failed(answer),
        };
        failure.say("look at it", &mut self.say);
    }

    pub(super) fn tell_current(&mut self) {
        let current = shown(&self.ready().current);
        self.say.quoted(257, "", &current, " is current directory.");
    }

    pub(super) fn size(&mut self, name: &[u8]) -> Option<Ask> {
        let path = self.path(name, "look at it")?;
        self.ask(Ask::Size { path }, Then::Size)
    }

    pub(super) fn on_size(&mut self, answer: FtpAnswer) {
        match answer {
            FtpAnswer::Size(size) => self.say.line(213, &size.to_string()),
            answer => failed(answer).say("look at it", &mut self.say),
        }
    }

    pub(super) fn modified(&mut self, name: &[u8]) -> Option<Ask> {
        let path = self.path(name, "look at it")?;
        self.ask(Ask::Stat { path }, Then::Modified)
    }

    pub(super) fn on_modified(&mut self, answer: FtpAnswer) {
        match answer {
            FtpAnswer::Stat(ListedStat {
                modify: Some(time), ..
            }) => {
                let told = self.ready().times().written(time);
                self.say.line(213, &told.to_string());
            }
            FtpAnswer::Stat(_) => self.say.line(550, "The time is not known."),
            answer => failed(answer).say("look at it", &mut self.say),
        }
    }

    pub(super) fn change(
        &mut self,
        name: &[u8],
        change: Change,
        doing: &'static str,
    ) -> Option<Ask> {
        let path = self.path_to_change(name, doing)?;
        self.ask(Ask::Change { path, change }, done(doing))
    }

    /// `MFMT`. Its draft wants 213 and the fact, and rclone takes nothing else.
    pub(super) fn set_time(&mut self, name: &[u8], modify: Duration) -> Option<Ask> {
        let doing = "set its time";
        let path = self.path_to_change(name, doing)?;
        let told = self.ready().times().written(modify);
        let text = format!("Modify={told}; {}", String::from_utf8_lossy(name));
        let change = Change::Modify(modify);
        self.ask(
            Ask::Change { path, change },
            Then::Say {
                code: 213,
                text,
                doing,
            },
        )
    }

    pub(super) fn tell_facts(&mut self, name: &[u8]) -> Option<Ask> {
        let path = self.path(name, "look at it")?;
        self.ask(Ask::Stat { path: path.clone() }, Then::Facts(path))
    }

    pub(super) fn on_facts(&mut self, path: &Path, answer: FtpAnswer) {
        let stat = match answer {
            FtpAnswer::Stat(stat) => stat,
            answer => return failed(answer).say("look at it", &mut self.say),
        };
        let (mut line, name) = (Vec::new(), shown(path));
        let ready = self.ready();
        ready
            .settings
            .facts
            .write(&stat, ready.may_write, ready.times(), &mut line);
        line.extend(&name);
        self.say
            .more_bytes(250, &[b"status of ", name.as_slice()].concat());
        self.say.inner(&line);
        self.say.line(250, "End.");
    }

    /// A directory listed on the control channel.
    pub(super) fn contents(&mut self, name: &[u8]) -> Option<Ask> {
        let path = self.path(name, "look at it")?;
        let form = Form::Facts(self.ready().settings.facts.clone());
        let first = "Contents of ";
        self.ask(
            Ask::Look { path: path.clone() },
            Then::ShowIfThere {
                path,
                form,
                code: 250,
                first,
            },
        )
    }

    pub(super) fn stat(&mut self, name: &[u8]) -> Option<Ask> {
        let path = self.path(name, "look at it")?;
        let (form, first) = (Form::Long, "status of ");
        self.ask(
            Ask::Look { path: path.clone() },
            Then::ShowIfThere {
                path,
                form,
                code: 213,
                first,
            },
        )
    }

    pub(super) fn on_show_if_there(
        &mut self,
        path: PathBuf,
        form: Form,
        first: (u16, &str),
        answer: FtpAnswer,
    ) {
        let (code, text) = first;
        match answer {
            FtpAnswer::Stat(stat) if stat.kind == ListedKind::Directory || code == 213 => {
                let name = shown(&path);
                self.say
                    .more_bytes(code, &[text.as_bytes(), name.as_slice()].concat());
                let listing = Listing {
                    form,
                    recursive: false,
                    pattern: None,
                    raw_names: false,
                    may_write: self.ready().may_write,
                    times: self.ready().times(),
                };
                self.follow = Some(Ask::Show { path, listing });
                self.then = Some(Then::Contents(code));
            }
            FtpAnswer::Stat(_) => {
                Refusal::of_kind(Kind::NotDirectory, "Not a directory")
                    .say("look at it", &mut self.say);
            }
            answer => failed(answer).say("look at it", &mut self.say),
        }
    }

    /// Tells one entry of a directory that is shown on the control channel.
    pub fn on_entry(&mut self, listing: &Listing, name: &Path, stat: &ListedStat, now: Duration) {
        let mut line = Vec::new();
        listing.write(name, stat, now, &mut line);
        line.truncate(line.len() - b"\r\n".len());
        self.say.inner(&line);
    }

    pub(super) fn on_contents(&mut self, code: u16, answer: FtpAnswer) {
        match answer {
            // The code cannot change any more; the last line tells.
            FtpAnswer::Failed(failure) => {
                self.say
                    .line(code, &format!("Ended early: {}", failure.said));
            }
            _ => self.say.line(code, "End."),
        }
    }

    pub(super) fn digest(
        &mut self,
        by: &str,
        range: Option<Range<u64>>,
        name: &[u8],
    ) -> Option<Ask> {
        let Some(by) = algorithm(by) else {
            self.say.line(500, "Unknown checksum algorithm requested.");
            return None;
        };
        let path = self.path(name, "open it")?;
        let markers = self.ready().settings.checksum_every;
        self.ask(
            Ask::Digest {
                path,
                by,
                range,
                markers,
            },
            Then::Digest,
        )
    }

    pub(super) fn on_digest(&mut self, answer: FtpAnswer) {
        match answer {
            FtpAnswer::Digest(value) => self.say.line(213, &value),
            answer => failed(answer).say("open it", &mut self.say),
        }
    }

    pub(super) fn remove(&mut self, name: &[u8], what: Removed) -> Option<Ask> {
        let doing = match what {
            Removed::File => "remove the file",
            Removed::Directory => "remove the directory",
            Removed::Tree => "remove all that is below",
        };
        let path = self.path_to_change(name, doing)?;
        self.ask(Ask::Remove { path, what }, done(doing))
    }

    pub(super) fn make_dir(&mut self, name: &[u8]) -> Option<Ask> {
        let path = self.path_to_change(name, "make the directory")?;
        self.ask(Ask::MakeDir { path: path.clone() }, Then::Made(path))
    }

    pub(super) fn on_made(&mut self, path: &Path, answer: FtpAnswer) {
        match answer {
            FtpAnswer::Done => {
                self.say
                    .quoted(257, "Directory ", &shown(path), " created successfully.");
            }
            // GCT replies 553. Clients that make directories in one go know only 550.
            FtpAnswer::Failed(failure) if failure.kind == Kind::Exists => {
                failure.say_as(550, "make the directory", &mut self.say);
            }
            answer => failed(answer).say("make the directory", &mut self.say),
        }
    }

    pub(super) fn rename_from(&mut self, name: &[u8]) -> Option<Ask> {
        let path = self.path_to_change(name, "rename it")?;
        self.ask(Ask::Name { path: path.clone() }, Then::RenameFrom(path))
    }

    pub(super) fn on_rename_from(&mut self, path: PathBuf, answer: FtpAnswer) {
        match answer {
            FtpAnswer::Stat(_) => {
                self.ready().rename_from = Some(path);
                self.say.line(350, "OK. Send RNTO with destination name.");
            }
            answer => failed(answer).say("look at it", &mut self.say),
        }
    }

    pub(super) fn rename_to(&mut self, name: &[u8]) -> Option<Ask> {
        let Some(from) = self.ready().rename_from.take() else {
            self.say
                .line(503, "Send RNFR with the name of the source first.");
            return None;
        };
        let to = self.path_to_change(name, "rename it")?;
        self.ask(Ask::Rename { from, to }, done("rename it"))
    }
}

/// `250 OK.`, or why not.
pub(super) fn done(doing: &'static str) -> Then {
    Then::Say {
        code: 250,
        text: "OK.".into(),
        doing,
    }
}

/// Returns the refusal in an answer that was not the expected one.
pub(super) fn failed(answer: FtpAnswer) -> Refusal {
    match answer {
        FtpAnswer::Failed(failure) => failure,
        _ => Refusal::of_kind(Kind::Io, "The server met an error of its own"),
    }
}
