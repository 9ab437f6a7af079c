//! `ERET` and `ESTO` with a module: bytes go through a program of the server.
//!
//! The program's output has no size before its end and cannot be resumed, so `REST` is refused. All else is as with
//! `RETR` and `STOR`.

use super::{Ask, Give, ModuleDirection, ModuleName, Session, UploadPlace, data::Direction};
use crate::command::{Rest, Through};

impl Session {
    /// `ERET module="parameters" name`.
    pub(super) fn retrieve_through(&mut self, name: &[u8], through: Through) -> Option<Ask> {
        let next = self.take_next();
        self.known(&through.module, ModuleDirection::Read)?;
        self.begins_anew(next.rest.as_ref())?;
        let path = self.path(name, "open it")?;
        let leg = self.leg(Direction::Out)?;
        let ask = Ask::RetrieveThrough { path, through, leg };
        self.transfer(ask, Direction::Out)
    }

    /// `ESTO module="parameters" name`.
    pub(super) fn store_through(&mut self, name: &[u8], through: Through) -> Option<Ask> {
        let next = self.take_next();
        self.known(&through.module, ModuleDirection::Write)?;
        self.begins_anew(next.rest.as_ref())?;
        let path = self.path_to_change(name, "open it")?;
        let leg = self.leg(Direction::In)?;
        let give = Give {
            place: UploadPlace::Whole,
            rest: None,
            size: next.size,
            check: next.check,
            modify: next.modify,
        };
        let ask = Ask::StoreThrough {
            path,
            through,
            give,
            leg,
        };
        self.transfer(ask, Direction::In)
    }

    /// `SITE GODWIT MODULES`.
    pub(super) fn tell_modules(&mut self) {
        self.say.more(250, "Modules");
        for ModuleName { name, way, about } in &self.profile.modules {
            let line = format!("{} {name} {about}", way.verb());
            self.say.inner(line.trim_end().as_bytes());
        }
        self.say.line(250, "End");
    }

    /// Replies with the list of modules unless this is one of them.
    fn known(&mut self, module: &str, way: ModuleDirection) -> Option<()> {
        let all = self.profile.modules.iter().filter(|known| known.way == way);
        let names: Vec<&str> = all.map(|known| known.name.as_str()).collect();
        if names.contains(&module) {
            return Some(());
        }
        let (verb, plain) = (way.verb(), way.plain());
        let there_are = match names.as_slice() {
            [] => format!("{plain} is known here, and no module for {verb}"),
            names => format!("there are {} for {verb}, and {plain}", names.join(", ")),
        };
        self.say
            .line(501, &format!("Unknown module {module}: {there_are}."));
        None
    }

    fn begins_anew(&mut self, rest: Option<&Rest>) -> Option<()> {
        let is_nothing = match rest {
            None => true,
            Some(Rest::From(start)) => *start == 0,
            Some(Rest::Have(have)) => have.is_empty(),
        };
        if !is_nothing {
            let why = "What goes through a module goes whole: no REST in front of it.";
            self.say.line(501, why);
        }
        is_nothing.then_some(())
    }
}

impl ModuleDirection {
    /// The command, as a person reads it.
    fn verb(self) -> &'static str {
        match self {
            Self::Read => "ERET",
            Self::Write => "ESTO",
        }
    }

    /// The form of it that needs no module.
    fn plain(self) -> &'static str {
        match self {
            Self::Read => "ERET P offset length name",
            Self::Write => "ESTO A offset name",
        }
    }
}
