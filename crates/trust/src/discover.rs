//! Usual places of credentials and authorities.

use crate::{Credential, Error, Result};
use std::{
    env,
    ffi::OsString,
    io,
    path::{Path, PathBuf},
};

/// Inputs of a search: environment, user, and the root of the file tree.
pub(crate) struct Surroundings<'a> {
    pub(crate) variable: &'a dyn Fn(&str) -> Option<OsString>,
    pub(crate) user: u32,
    pub(crate) root: &'a Path,
}

impl Credential {
    /// Finds the credential of this program's user in the usual places: `X509_USER_PROXY`,
    /// `/tmp/x509up_uN`, `X509_USER_CERT` and `X509_USER_KEY`, `~/.globus`.
    pub fn discover() -> Result<Option<Self>> {
        Surroundings::of_this_process().credential()
    }

    /// Finds the credential of this machine: `X509_USER_CERT` and `X509_USER_KEY`, or
    /// `/etc/grid-security/hostcert.pem` and `hostkey.pem`.
    pub fn discover_host() -> Result<Option<Self>> {
        Surroundings::of_this_process().host_credential()
    }

    /// Finds the cluster key that the user named: `GODWIT_CLUSTER_KEY`, a file, or `none` for a
    /// member by its address.
    pub fn discover_member() -> Result<Option<Self>> {
        Surroundings::of_this_process().member()
    }
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
            return named("X509_USER_PROXY", Credential::from_file(&proxy)).map(Some);
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

    /// Returns only a named key: a node is in no cluster by chance.
    pub(crate) fn member(&self) -> Result<Option<Credential>> {
        match self.named("GODWIT_CLUSTER_KEY") {
            None => Ok(None),
            Some(none) if none == Path::new("none") => Ok(Some(Credential::by_address())),
            Some(path) => {
                let key = Credential::from_cluster_key(&path);
                named("GODWIT_CLUSTER_KEY", key).map(Some)
            }
        }
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
            None => Err(Error::no_authorities(looked)),
        }
    }

    pub(crate) fn proxy_file(&self) -> PathBuf {
        self.root.join(format!("tmp/x509up_u{}", self.user))
    }

    /// The certificate's name alone is enough if the key is in the same file.
    fn named_pair(&self) -> Result<Option<Credential>> {
        let (cert, key) = (self.named("X509_USER_CERT"), self.named("X509_USER_KEY"));
        match (cert, key) {
            (Some(cert), Some(key)) => {
                let pair = Credential::from_files(&cert, &key);
                named("X509_USER_CERT or X509_USER_KEY", pair).map(Some)
            }
            (Some(cert), None) => named("X509_USER_CERT", Credential::from_file(&cert)).map(Some),
            (None, Some(path)) => Err(Error::bad_file(
                path,
                "X509_USER_KEY is set, X509_USER_CERT is not",
            )),
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

/// Returns where this user's proxy is looked for: `X509_USER_PROXY`, else `/tmp/x509up_uN`.
pub fn proxy_file() -> PathBuf {
    let here = Surroundings::of_this_process();
    here.named("X509_USER_PROXY")
        .unwrap_or_else(|| here.proxy_file())
}

/// Returns where the key of this machine is looked for: `X509_USER_KEY`, the file that
/// `X509_USER_CERT` names, else `/etc/grid-security/hostkey.pem`.
pub fn host_key_file() -> PathBuf {
    let here = Surroundings::of_this_process();
    here.named("X509_USER_KEY")
        .or_else(|| here.named("X509_USER_CERT"))
        .unwrap_or_else(|| here.root.join("etc/grid-security/hostkey.pem"))
}

/// Returns where the certificate and the key of this user are looked for, proxies aside:
/// `X509_USER_CERT` and `X509_USER_KEY`, else `~/.globus`.
pub fn owner_files() -> (PathBuf, PathBuf) {
    let here = Surroundings::of_this_process();
    let own = here.home().unwrap_or_default().join(".globus");
    let or = |variable, name: &str| here.named(variable).unwrap_or_else(|| own.join(name));
    (
        or("X509_USER_CERT", "usercert.pem"),
        or("X509_USER_KEY", "userkey.pem"),
    )
}

/// Adds the variable that named a missing file.
pub(crate) fn named<T>(variable: &str, read: Result<T>) -> Result<T> {
    read.map_err(|error| match error {
        Error::Io { path, cause } if cause.kind() == io::ErrorKind::NotFound => {
            Error::bad_file(path, format!("is not there, but {variable} names it"))
        }
        other => other,
    })
}

fn pair(cert: &Path, key: &Path) -> Result<Option<Credential>> {
    if !cert.exists() {
        return Ok(None);
    }
    Credential::from_files(cert, key).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        KeyKind, NewProxy,
        lab::{self, Ca, Issue},
    };
    use std::{collections::HashMap, fs, os::unix::fs::PermissionsExt, time::Duration};

    /// A file tree with a home, /tmp and a user.
    struct Machine {
        root: tempfile::TempDir,
        variables: HashMap<&'static str, PathBuf>,
        alice: Credential,
    }

    impl Machine {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            let day = Duration::from_secs(86_400);
            let ca = Ca::init(
                &root.path().join("ca"),
                "/O=Lab/CN=CA",
                day,
                KeyKind::Elliptic,
            )
            .unwrap();
            let key = KeyKind::Elliptic;
            let alice = ca
                .issue(&Issue {
                    key,
                    ..Issue::user("alice")
                })
                .unwrap();
            for dir in ["tmp", "home/.globus", "etc/grid-security"] {
                fs::create_dir_all(root.path().join(dir)).unwrap();
            }
            let variables = HashMap::from([("HOME", root.path().join("home"))]);
            Self {
                root,
                variables,
                alice,
            }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.root.path().join(name)
        }

        fn proxy(&self, name: &str) -> PathBuf {
            let key = KeyKind::Elliptic;
            let proxy = self
                .alice
                .proxy(&NewProxy {
                    key,
                    ..NewProxy::default()
                })
                .unwrap();
            lab::write_proxy(&proxy, &self.path(name)).unwrap();
            self.path(name)
        }

        fn pair(&self, cert: &str, key: &str) {
            lab::write_pair(&self.alice, &self.path(cert), &self.path(key)).unwrap();
        }

        fn ask<T>(&self, question: impl FnOnce(&Surroundings<'_>) -> T) -> T {
            question(&Surroundings {
                variable: &|name| Some(self.variables.get(name)?.clone().into()),
                user: 1000,
                root: self.root.path(),
            })
        }

        fn found(&self) -> Option<PathBuf> {
            let found = self.ask(|s| s.credential()).unwrap()?;
            Some(found.file().unwrap().to_owned())
        }
    }

    #[test]
    fn nothing_anywhere_is_no_error() {
        let machine = Machine::new();
        assert!(machine.ask(|s| s.credential()).unwrap().is_none());
        assert!(machine.ask(|s| s.host_credential()).unwrap().is_none());
    }

    #[test]
    fn the_first_place_that_has_one_counts() {
        let mut machine = Machine::new();
        machine.pair("home/.globus/usercert.pem", "home/.globus/userkey.pem");
        assert_eq!(
            machine.found(),
            Some(machine.path("home/.globus/usercert.pem"))
        );
        machine.pair("cert.pem", "key.pem");
        machine
            .variables
            .insert("X509_USER_CERT", machine.path("cert.pem"));
        machine
            .variables
            .insert("X509_USER_KEY", machine.path("key.pem"));
        assert_eq!(machine.found(), Some(machine.path("cert.pem")));
        let usual = machine.proxy("tmp/x509up_u1000");
        assert_eq!(machine.found(), Some(usual));
        let named = machine.proxy("named");
        machine.variables.insert("X509_USER_PROXY", named.clone());
        assert_eq!(machine.found(), Some(named));
    }

    #[test]
    fn a_named_file_must_be_there() {
        let mut machine = Machine::new();
        machine
            .variables
            .insert("X509_USER_PROXY", machine.path("gone"));
        let error = machine.ask(|s| s.credential()).unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("is not there, but X509_USER_PROXY names it"),
            "{error}"
        );
    }

    #[test]
    fn key_readable_by_others_is_refused() {
        let machine = Machine::new();
        let path = machine.proxy("tmp/x509up_u1000");
        for mode in [0o640, 0o604, 0o660, 0o602] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = machine.ask(|s| s.credential()).unwrap_err();
            assert!(matches!(error, Error::Exposed { .. }), "{mode:o}: {error}");
            assert!(error.hint().unwrap().starts_with("chmod 600"), "{error}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
        assert!(machine.found().is_some());
    }

    #[test]
    fn proxy_of_other_owner_is_refused() {
        let machine = Machine::new();
        let path = machine.proxy("tmp/x509up_u1000");
        if std::os::unix::fs::chown(&path, Some(12_345), None).is_err() {
            eprintln!("SKIPPED: only root can give files away");
            return;
        }
        let error = machine.ask(|s| s.credential()).unwrap_err();
        assert!(
            error.to_string().contains("belongs to user 12345"),
            "{error}"
        );
    }

    #[test]
    fn the_machine_has_its_own() {
        let machine = Machine::new();
        machine.pair(
            "etc/grid-security/hostcert.pem",
            "etc/grid-security/hostkey.pem",
        );
        let found = machine.ask(|s| s.host_credential()).unwrap().unwrap();
        assert_eq!(
            found.file(),
            Some(&*machine.path("etc/grid-security/hostcert.pem"))
        );
    }

    #[test]
    fn user_authorities_precede_machine_authorities() {
        let mut machine = Machine::new();
        let error = machine.ask(|s| s.authorities()).unwrap_err().to_string();
        assert!(
            error.contains("home/.globus/certificates, ")
                && error.contains("etc/grid-security/certificates"),
            "{error}"
        );
        for place in [
            "etc/grid-security/certificates",
            "home/.globus/certificates",
        ] {
            fs::create_dir_all(machine.path(place)).unwrap();
            assert_eq!(
                machine.ask(|s| s.authorities()).unwrap(),
                machine.path(place)
            );
        }
        machine
            .variables
            .insert("X509_CERT_DIR", "/elsewhere".into());
        assert_eq!(
            machine.ask(|s| s.authorities()).unwrap(),
            Path::new("/elsewhere")
        );
    }

    #[test]
    fn encrypted_key_fails_without_prompt() {
        let machine = Machine::new();
        machine.pair("home/.globus/usercert.pem", "home/.globus/userkey.pem");
        let pem = machine
            .alice
            .key()
            .unwrap()
            .private_key_to_pem_pkcs8_passphrase(openssl::symm::Cipher::aes_256_cbc(), b"secret")
            .unwrap();
        fs::write(machine.path("home/.globus/userkey.pem"), pem).unwrap();
        let error = machine.ask(|s| s.credential()).unwrap_err();
        assert!(matches!(error, Error::Encrypted { .. }), "{error}");
    }
}
