//! The files of this account: its configuration, its state, and the key of its node.

use crate::args::NodeOptions;
use godwit_node::{Config, Error};
use std::{
    env, fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Reads the configuration: file, environment, options.
pub(crate) fn load(told: &NodeOptions) -> Result<Config, Error> {
    let file = told.config.clone().or_else(file_in_use);
    read(file.as_deref(), told)
}

/// Returns a function that reads the configuration again, from the file in use now. If that file is away for
/// a moment, the node keeps its configuration.
pub(crate) fn again(told: &NodeOptions) -> impl Fn() -> Result<Config, Error> + Send + 'static {
    let (file, told) = (told.config.clone().or_else(file_in_use), told.clone());
    move || read(file.clone().or_else(file_in_use).as_deref(), &told)
}

/// Returns the state directory of the node of this machine, if the configuration names one.
pub(crate) fn state_of_node() -> Option<PathBuf> {
    read(file_in_use().as_deref(), &NodeOptions::default())
        .ok()?
        .state
}

fn read(file: Option<&Path>, told: &NodeOptions) -> Result<Config, Error> {
    // A name that is not text is no key.
    let environment = env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    Config::load(file, environment, &told.flags())
}

/// Returns the first configuration file that exists; a file that GODWIT_CONFIG names must exist.
pub(crate) fn file_in_use() -> Option<PathBuf> {
    if let Some(named) = env::var_os("GODWIT_CONFIG").filter(|name| !name.is_empty()) {
        return Some(named.into());
    }
    files().into_iter().find(|path| path.exists())
}

/// Returns the path of this user's configuration, which need not exist.
pub(crate) fn of_this_user() -> Option<PathBuf> {
    files().into_iter().next()
}

pub(crate) fn files() -> Vec<PathBuf> {
    let user = directory("XDG_CONFIG_HOME", ".config");
    let named = env::var_os("GODWIT_CONFIG").map(PathBuf::from);
    named
        .into_iter()
        .chain(user.map(|directory| directory.join("godwit/config.toml")))
        .chain([Path::new("/etc/godwit/config.toml").into()])
        .collect()
}

/// Returns the home of this user's node: its key and the keys of its peers.
pub(crate) fn home() -> Option<godwit_trust::PeersDir> {
    let configured = state_of_node().filter(|state| is_for_us(state));
    let directory = configured.or_else(state_directory);
    directory.map(|directory| godwit_trust::PeersDir::at(&directory))
}

/// Tells whether this account may read the state of a node: it is its own, or this is root.
fn is_for_us(state: &Path) -> bool {
    let us = godwit_sys::user_id();
    match fs::metadata(state) {
        Ok(meta) => us == 0 || meta.uid() == us,
        Err(_) => false,
    }
}

/// Returns `$XDG_STATE_HOME/godwit`, or `~/.local/state/godwit`.
pub(crate) fn state_directory() -> Option<PathBuf> {
    directory("XDG_STATE_HOME", ".local/state").map(|state| state.join("godwit"))
}

/// Returns the absolute path that a variable names, or else one below HOME.
pub(crate) fn directory(variable: &str, below_home: &str) -> Option<PathBuf> {
    let absolute = |name| {
        let path = env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    absolute(variable).or_else(|| Some(absolute("HOME")?.join(below_home)))
}
