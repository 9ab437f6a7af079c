//! `SITE`: the commands that the standards leave to each server, and those of godwit.

use super::{
    Ask, Change, FtpAnswer, Removed, Session, Then,
    names::{done, failed},
};
use crate::command::{Godwit, Site};
use std::{
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::PathBuf,
};

impl Session {
    pub(super) fn site(&mut self, site: Site) -> Option<Ask> {
        match site {
            Site::Help => self.help(""),
            Site::Chmod { mode, name } => {
                let path = self.path_to_change(&name, CHMOD)?;
                let change = Change::Mode(mode);
                let then = Then::Say {
                    code: 200, // PHP takes nothing else
                    text: "SITE CHMOD command successful.".into(),
                    doing: CHMOD,
                };
                return self.ask(Ask::Change { path, change }, then);
            }
            Site::Chgrp { group, name } => {
                return self.change(&name, Change::Group(group), "set its group");
            }
            Site::Utime { modify, name } => {
                return self.change(&name, Change::Modify(modify), "set its time");
            }
            Site::Trnc { length, name } => {
                return self.change(&name, Change::Length(length), "set its length");
            }
            Site::Symlink { target, name } => return self.link(target, &name),
            Site::SymlinkFrom(target) => {
                self.ready().link_target =
                    Some(PathBuf::from(std::ffi::OsString::from_vec(target)));
                self.say
                    .line(350, "OK. Send SITE SYMLINKTO with symlink name.");
            }
            Site::SymlinkTo(name) => return self.link_to(&name),
            Site::Rdel(name) => return self.remove(&name, Removed::Tree),
            Site::StorAttr { modify } => self.expect_time(modify),
            Site::Buffer(bytes) => {
                self.ready().settings.buffer_bytes = bytes;
                self.say.line(200, "Site Command Successful.");
            }
            Site::Note(note) => {
                self.note = note;
                self.say.explain();
                self.say.line(250, "OK.");
            }
            Site::Stack => self.say.line(250, "OK."),
            Site::Version => {
                let text = format!("godwit {}", self.profile.version);
                self.say.line(200, &text);
            }
            Site::Whoami => {
                let user = self.ready().user.clone();
                self.say.line(200, &user);
            }
            Site::Godwit(command) => return self.godwit(command),
        }
        None
    }

    fn link_to(&mut self, name: &[u8]) -> Option<Ask> {
        let Some(target) = self.ready().link_target.take() else {
            self.say.line(503, "Send SITE SYMLINKFROM first.");
            return None;
        };
        let path = self.path_to_change(name, "make the link")?;
        self.ask(Ask::Link { path, target }, done("make the link"))
    }

    fn link(&mut self, target: Vec<u8>, name: &[u8]) -> Option<Ask> {
        let path = self.path_to_change(name, "make the link")?;
        let target = PathBuf::from(std::ffi::OsString::from_vec(target));
        self.ask(Ask::Link { path, target }, done("make the link"))
    }

    fn godwit(&mut self, command: Godwit) -> Option<Ask> {
        match command {
            Godwit::Done { id, name } => {
                let path = self.path_to_change(&name, "look at it")?;
                self.ask(Ask::Landed { path, id }, Then::Landed)
            }
            Godwit::Finish { upload, name } => {
                let path = self.path_to_change(&name, "publish the upload")?;
                let digests = self.ready().settings.digests;
                let ask = Ask::Finish {
                    path,
                    upload,
                    digests,
                };
                self.ask(ask, Then::Finished)
            }
            Godwit::Leaves { id, leaves, name } => {
                let path = self.path(&name, "open it")?;
                self.ask(Ask::Leaves { path, id, leaves }, Then::Leaves)
            }
            Godwit::Abandon { id, name } => {
                let path = self.path_to_change(&name, "remove the file")?;
                self.ask(Ask::Abandon { path, id }, done("remove the file"))
            }
            Godwit::Hidden { name } => {
                let path = self.path(&name, "look at it")?;
                self.ask(Ask::Hidden { path }, Then::Hidden)
            }
            Godwit::Flush { name } => {
                let path = self.path_to_change(&name, "write it to the disk")?;
                self.ask(Ask::Flush { path }, done("write it to the disk"))
            }
            Godwit::Modules => {
                self.tell_modules();
                None
            }
            Godwit::Space { name } => {
                let path = self.path(&name, "tell the room there")?;
                self.ask(Ask::Space { path }, Then::Space)
            }
        }
    }

    pub(super) fn on_landed(&mut self, answer: FtpAnswer) {
        match answer {
            FtpAnswer::Landed { size, done } => {
                let size = size.map(|n| format!("size={n};")).unwrap_or_default();
                self.say.line(250, &format!("GODWIT {size}done={done}"));
            }
            answer => failed(answer).say("look at it", &mut self.say),
        }
    }

    pub(super) fn on_leaf_list(&mut self, answer: FtpAnswer) {
        match answer {
            FtpAnswer::Leaves(leaves) => {
                self.say.more(250, "Leaves");
                for (index, chain) in &leaves {
                    let line = format!("{index} {chain}");
                    self.say.inner(line.as_bytes());
                }
                self.say.line(250, "End");
            }
            answer => failed(answer).say("open it", &mut self.say),
        }
    }

    pub(super) fn on_hidden(&mut self, answer: FtpAnswer) {
        match answer {
            FtpAnswer::Names(names) => {
                self.say.more(250, "Hidden");
                for name in &names {
                    self.say.inner(name.as_os_str().as_bytes());
                }
                self.say.line(250, "End");
            }
            answer => failed(answer).say("look at it", &mut self.say),
        }
    }

    pub(super) fn on_space(&mut self, answer: FtpAnswer) {
        match answer {
            FtpAnswer::Space {
                total_bytes,
                free_bytes,
            } => {
                self.say.line(
                    250,
                    &format!("GODWIT total={total_bytes};free={free_bytes}"),
                );
            }
            answer => failed(answer).say("tell the room there", &mut self.say),
        }
    }
}

const CHMOD: &str = "set its permissions";
