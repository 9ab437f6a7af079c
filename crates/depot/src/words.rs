//! Words of what is pending, and of what is on hold.

use godwit_core::{
    Url,
    deeds::{self, What},
};

pub(crate) fn word_of(what: &What) -> &'static str {
    match what {
        What::Publish(_) => "publish",
        What::Rename { .. } => "rename",
        What::Unlink => "unlink",
        What::Mkdir => "mkdir",
        What::Set(_) => "set",
    }
}

/// Says what a deed does to its name.
pub(crate) fn deed_words(what: &str, to: Option<&Url>) -> String {
    match (what, to) {
        ("rename", Some(to)) => format!("rename to {}", to.without_password()),
        ("rename", None) => "rename".into(),
        ("unlink", _) => "removal".into(),
        ("mkdir", _) => "making as a directory".into(),
        ("set", _) => "change of attributes".into(),
        _ => String::new(),
    }
}

pub(crate) fn reason_of(why: &deeds::Held) -> String {
    match why {
        deeds::Held::Conflict => "something else is there by now".into(),
        deeds::Held::Missing => "it is not there any more".into(),
        deeds::Held::Refused(reason) | deeds::Held::Wanted(reason) => reason.clone(),
    }
}
