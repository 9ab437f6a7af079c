//! Where everybody keeps credentials and authorities.

use crate::{Credential, Error, Result};
use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
};

/// What a search depends on: environment, user, and where the file tree begins.
pub(crate) struct Surroundings<'a> {
    pub(crate) variable: &'a dyn Fn(&str) -> Option<OsString>,
    pub(crate) user: u32,
    pub(crate) root: &'a Path,
}

impl Surroundings<'static> {
    pub(crate) fn of_this_process() -> Self {
        Self {
            variable: &|name| env::var_os(name),
            user: rustix::process::geteuid().as_raw(),
            root: Path::new("/"),
        }
    }
}

impl Surroundings<'_> {
    /// A place that was named must have one; of the usual places the first that exists counts.
    pub(crate) fn credential(&self) -> Result<Option<Credential>> {
        if let Some(proxy) = self.named("X509_USER_PROXY") {
            return Credential::from_file(&proxy).map(Some);
        }
        let proxy = self.proxy_file();
        if proxy.exists() {
            return Credential::from_file(&proxy).map(Some);
        }
        if let Some(named) = self.named_pair()? {
            return Ok(Some(named));
        }
        let Some(home) = self.home() else {
            return Ok(None);
        };
        pair(
            &home.join(".globus/usercert.pem"),
            &home.join(".globus/userkey.pem"),
        )
    }

    pub(crate) fn host_credential(&self) -> Result<Option<Credential>> {
        if let Some(named) = self.named_pair()? {
            return Ok(Some(named));
        }
        let security = self.root.join("etc/grid-security");
        pair(
            &security.join("hostcert.pem"),
            &security.join("hostkey.pem"),
        )
    }

    pub(crate) fn authorities(&self) -> Result<PathBuf> {
        if let Some(named) = self.named("X509_CERT_DIR") {
            return Ok(named);
        }
        let own = self.home().map(|home| home.join(".globus/certificates"));
        let usual = self.root.join("etc/grid-security/certificates");
        let looked: Vec<_> = own.into_iter().chain([usual]).collect();
        match looked.iter().find(|path| path.is_dir()) {
            Some(found) => Ok(found.clone()),
            None => Err(Error::NoAuthorities { looked }),
        }
    }

    pub(crate) fn proxy_file(&self) -> PathBuf {
        self.root.join(format!("tmp/x509up_u{}", self.user))
    }

    /// The certificate's name alone will do if the key is in the same file.
    fn named_pair(&self) -> Result<Option<Credential>> {
        let (cert, key) = (self.named("X509_USER_CERT"), self.named("X509_USER_KEY"));
        match (cert, key) {
            (Some(cert), Some(key)) => Credential::from_files(&cert, &key).map(Some),
            (Some(cert), None) => Credential::from_file(&cert).map(Some),
            (None, Some(path)) => Err(Error::BadFile {
                path,
                what: "X509_USER_KEY is set, X509_USER_CERT is not".into(),
            }),
            (None, None) => Ok(None),
        }
    }

    pub(crate) fn named(&self, variable: &str) -> Option<PathBuf> {
        (self.variable)(variable)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    }

    pub(crate) fn home(&self) -> Option<PathBuf> {
        self.named("HOME")
    }
}

fn pair(cert: &Path, key: &Path) -> Result<Option<Credential>> {
    if !cert.exists() {
        return Ok(None);
    }
    Credential::from_files(cert, key).map(Some)
}
