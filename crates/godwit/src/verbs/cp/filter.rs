//! `godwit cp --through`: single files through a program of the server, on their way from it
//! or to it.

use crate::{out::CliError, transfer::Pair};
use godwit_store::{ModuleStore, Remote, Store};
use godwit_wire::command::Through;
use std::sync::Arc;

/// Returns a server as one of its modules shows it.
pub(crate) fn by(server: Arc<dyn Store>, through: &Through) -> Arc<dyn Store> {
    let through = through.clone();
    Arc::new(ModuleStore { server, through })
}

/// Has the server of a pair put the bytes through a module.
pub(super) fn put_between(pair: &mut Pair, through: &Through) {
    let end = match Remote::of(&*pair.source.store) {
        Some(_) => &mut pair.source,
        None => &mut pair.target,
    };
    end.store = by(end.store.clone(), through);
}

/// Returns the error if a pair cannot go through a module.
pub(super) fn refused(pair: &Pair) -> Option<CliError> {
    let wanted = || format!("copy {} to {}", pair.source.url, pair.target.url);
    let ends = (
        Remote::of(&*pair.source.store),
        Remote::of(&*pair.target.store),
    );
    Some(match ends {
        _ if pair.tree => CliError::asked(wanted(), "it is a directory").next("name a file in it"),
        (None, None) if is_on_node(pair) => no_module(wanted()),
        (None, None) => CliError::asked(
            wanted(),
            "a module is a program of a server, and neither is on one",
        )
        .next("leave --through out, and run the program here"),
        (Some(_), Some(_)) => CliError::asked(
            wanted(),
            "both are on servers, and which is to run the module?",
        )
        .next("copy it here through the module of one, and then to the other"),
        _ => return None,
    })
}

fn is_on_node(pair: &Pair) -> bool {
    [&pair.source, &pair.target]
        .iter()
        .any(|place| place.is_remote())
}

/// Returns the error for a server without modules.
pub(crate) fn no_module(wanted: String) -> CliError {
    CliError::asked(wanted, "modules run where FTP or GridFTP is spoken; godwit:// and https:// have none")
        .next("name the same node by its FTP port: ftp://HOST:PORT/PATH (godwit node status there tells it)")
}
