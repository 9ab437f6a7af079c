//! `godwit ca`: a certificate authority for a laboratory that has none.

use crate::{
    out::{CliError, Facts, Run, Screen},
    units,
};
use clap::{Args, Subcommand, ValueEnum};
use godwit_store::Error as StoreError;
use godwit_trust::{
    Credential, Error, KeyKind,
    lab::{self, Ca as Authority, Issue as Wanted},
};
use serde_json::json;
use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// Make certificates where no authority exists
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit ca init site --subject '/O=Site/CN=Site CA'
  godwit ca issue lab bob --out bob
  godwit ca issue lab --host fermi.example --host 10.0.0.7 --out fermi
  godwit ca revoke lab usercert.pem

Servers and users who shall trust the authority need what is in its folder certificates: copy
it to /etc/grid-security/certificates or ~/.globus/certificates, or name it in X509_CERT_DIR.
Keep its ca.key secret: who has it can be anybody. Names end up in a grid-mapfile, one
line each: \"/O=Lab/CN=alice\" alice.

Exit status: 0; 1 the name is taken; 2 not from this authority, or what nothing would trust: it has
expired, its key is another's, the name is its own, or its signing policy does not allow it; 4 no
such file.")]
pub(crate) struct CaArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make an authority in a directory
    #[command(
        after_help = "Examples:\n  godwit ca init site\n  godwit ca init site --subject '/O=Site/CN=Site CA'"
    )]
    Init(InitArgs),
    /// Make a certificate and its key for a person or a host
    #[command(
        after_help = "Examples:\n  godwit ca issue lab bob --out bob\n  godwit ca issue lab --host fermi.example --host 10.0.0.7 --out fermi"
    )]
    Issue(CaIssueArgs),
    /// Declare a certificate void: adds it to the revocation list
    #[command(
        after_help = "Examples:\n  godwit ca revoke lab usercert.pem\n  godwit ca revoke --json lab usercert.pem"
    )]
    Revoke(RevokeArgs),
}

#[derive(Args, Debug)]
struct InitArgs {
    /// Where it will live
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Its name; what it vouches for begins the same
    #[arg(long, value_name = "NAME", default_value = "/O=Lab/CN=Lab CA")]
    subject: String,
    /// How long it is good for
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, default_value = "3650d")]
    valid: Duration,
    /// Kind of its key
    #[arg(long, value_enum, default_value_t = Key::Rsa, value_name = "KIND")]
    key: Key,
}

#[derive(Args, Debug)]
struct CaIssueArgs {
    /// The authority
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// A person; with a leading slash the whole subject
    #[arg(value_name = "NAME", required_unless_present = "hosts")]
    name: Option<String>,
    /// A host instead: a name or address that clients use; several times for several
    #[arg(long = "host", value_name = "HOST")]
    hosts: Vec<String>,
    /// Directory for usercert.pem and userkey.pem, or hostcert.pem and hostkey.pem
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
    /// How long it is good for
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, default_value = "365d")]
    valid: Duration,
    /// Kind of its key
    #[arg(long, value_enum, default_value_t = Key::Rsa, value_name = "KIND")]
    key: Key,
    /// Replace files that are there
    #[arg(long)]
    force: bool,
}

#[derive(Args, Debug)]
struct RevokeArgs {
    /// The authority
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// The certificate that is void; none: only the list is renewed
    #[arg(value_name = "CERTIFICATE")]
    certificate: Option<PathBuf>,
}

/// Kind of a key.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Key {
    /// RSA of 2048 bits: works with everybody.
    Rsa,
    /// RSA of 4096 bits.
    Rsa4096,
    /// Elliptic curve P-256: quick; Globus servers cannot be delegated to with it.
    Ec,
}

impl Key {
    pub(crate) fn kind(self) -> KeyKind {
        match self {
            Self::Rsa => KeyKind::Rsa(2048),
            Self::Rsa4096 => KeyKind::Rsa(4096),
            Self::Ec => KeyKind::Elliptic,
        }
    }
}

impl CaArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        match self.action {
            Action::Init(init) => init.run(screen),
            Action::Issue(issue) => issue.run(screen),
            Action::Revoke(revoke) => revoke.run(screen),
        }
    }
}

impl InitArgs {
    fn run(self, screen: &Screen) -> Run<Facts> {
        let wanted = format!("make an authority in {}", self.dir.display());
        let made = Authority::init(&self.dir, &self.subject, self.valid, self.key.kind());
        let ca = made.map_err(|error| CliError::trust(&wanted, error))?;
        let certificates = ca.certificates();
        let said = if screen.json() {
            screen.object(&json!({
                "event": "authority",
                "subject": ca.subject(),
                "hash": ca.hash(),
                "directory": self.dir,
                "certificates": certificates,
            }))
        } else {
            screen.line(format!(
                "{} in {}; whom it vouches for is trusted where X509_CERT_DIR={}",
                ca.subject(),
                self.dir.display(),
                certificates.display()
            ))
        };
        said.map_err(|error| CliError::store(wanted, error))?;
        Ok(Facts::new())
    }
}

impl CaIssueArgs {
    fn run(self, screen: &Screen) -> Run<Facts> {
        let names: Vec<_> = self.hosts.iter().map(String::as_str).collect();
        let (what, issue) = match &self.name {
            _ if !names.is_empty() => ("host", Wanted::host(&names)),
            Some(name) if name.trim().is_empty() => {
                return Err(CliError::asked("issue a certificate", "the name is empty"));
            }
            Some(name) => ("user", Wanted::user(name)),
            None => return Err(CliError::asked("issue a certificate", "for whom?")),
        };
        let name = self.name.clone().unwrap_or_else(|| issue.name.clone());
        let wanted = format!("issue a certificate for {name}");
        let trouble = |error| CliError::trust(&wanted, error);
        let cert = self.out.join(format!("{what}cert.pem"));
        let key_file = self.out.join(format!("{what}key.pem"));
        self.must_be_free(&wanted, &[&cert, &key_file])?;
        let ca = Authority::open(&self.dir).map_err(trouble)?;
        let key = self.key.kind();
        let issue = Wanted { name, key, ..issue }.lasting(self.valid);
        ca.check(&issue)
            .map_err(|error| unbelievable(&wanted, error))?;
        let credential = ca.issue(&issue).map_err(trouble)?;
        make_directory(&wanted, &self.out)?;
        lab::write_pair(&credential, &cert, &key_file).map_err(trouble)?;
        self.say(screen, &credential, &cert, &key_file)
            .map_err(|error| CliError::store(&wanted, error))?;
        Ok(Facts::new())
    }

    fn must_be_free(&self, wanted: &str, files: &[&Path]) -> Run {
        let taken = files.iter().find(|file| file.exists());
        match taken {
            Some(file) if !self.force => Err(CliError::store(
                wanted,
                StoreError::exists(file.to_path_buf()),
            )
            .next("choose another directory (--out), or add --force to replace it")),
            _ => Ok(()),
        }
    }

    fn say(
        &self,
        screen: &Screen,
        credential: &Credential,
        cert: &Path,
        key: &Path,
    ) -> Result<(), StoreError> {
        let (subject, until) = (
            credential.identity().to_string(),
            since_epoch(credential.not_after()),
        );
        if screen.json() {
            return screen.object(&json!({
                "event": "certificate",
                "subject": subject,
                "hosts": self.hosts,
                "certificate": cert,
                "key": key,
                "not_after": units::instant(until),
            }));
        }
        screen.line(format!(
            "{subject} until {} UTC in {} and {}",
            units::minute(until),
            cert.display(),
            key.display()
        ))
    }
}

/// Says why no machine would trust a certificate that this authority issues.
fn unbelievable(wanted: &str, error: Error) -> CliError {
    let next = match &error {
        Error::Expired { .. } => {
            "no machine would trust it: make a new authority (godwit ca init) and give its certificates \
             to all who trusted this one; or set the clock of this machine if it is wrong"
        }
        Error::NotYet { .. } => {
            "no machine would trust it before: wait, or set the clock of this machine if it is wrong"
        }
        Error::OutsidePolicy { .. } => {
            "no machine would trust it: choose a name that the file allows, or change it there \
             and wherever the authority is trusted"
        }
        Error::BadRequest { .. } => "choose another name",
        _ => return CliError::trust(wanted, error),
    };
    CliError::asked(wanted, error).next(next)
}

impl RevokeArgs {
    fn run(self, screen: &Screen) -> Run<Facts> {
        let wanted = match &self.certificate {
            Some(file) => format!("revoke {}", file.display()),
            None => format!("renew the revocation list of {}", self.dir.display()),
        };
        let trouble = |error| CliError::trust(&wanted, error);
        let ca = Authority::open(&self.dir).map_err(trouble)?;
        let subject = match &self.certificate {
            Some(file) => {
                let pem = fs::read(file).map_err(|cause| unread(&wanted, file, cause))?;
                Some(ca.revoke(&pem).map_err(trouble)?)
            }
            None => {
                ca.renew_list().map_err(trouble)?;
                None
            }
        };
        let list = ca.list_file();
        let said = if screen.json() {
            screen.object(&json!({ "event": "revoked", "subject": subject, "list": list }))
        } else {
            let what = subject.map_or_else(
                || "list renewed".into(),
                |subject| format!("{subject} is revoked"),
            );
            screen.line(format!(
                "{what}; copy {} to all who trust the authority",
                list.display()
            ))
        };
        said.map_err(|error| CliError::store(&wanted, error))?;
        Ok(Facts::new())
    }
}

fn unread(wanted: &str, file: &Path, cause: io::Error) -> CliError {
    match StoreError::io(file, cause) {
        error @ StoreError::IsDirectory { .. } => {
            CliError::asked(wanted, error).next("name the certificate that is in it")
        }
        error => CliError::store(wanted, error),
    }
}

pub(crate) fn make_directory(wanted: &str, dir: &Path) -> Run {
    fs::create_dir_all(dir).map_err(|cause| CliError::store(wanted, StoreError::io(dir, cause)))
}

pub(crate) fn since_epoch(time: SystemTime) -> Duration {
    time.duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}
