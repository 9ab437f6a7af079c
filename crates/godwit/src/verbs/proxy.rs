//! `godwit proxy`: a short-lived certificate that acts in one's name.

use super::ca::{Key, since_epoch};
use crate::{
    out::{CliError, Facts, Run, Screen},
    units,
};
use clap::{Args, Subcommand};
use godwit_store::Error as StoreError;
use godwit_trust::{Authorities, Credential, NewProxy, Passphrase, lab};
use serde_json::json;
use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// Make, show and destroy the proxy that acts for you
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit proxy init --cert usercert.pem --key userkey.pem --out proxy.pem
  godwit proxy init --cert usercert.pem --limited --valid 2h --out limited.pem
  godwit proxy info proxy.pem
  godwit proxy destroy proxy.pem

A proxy (RFC 3820) is a certificate that you sign yourself: programs and the servers that
they log in to use it in your name for some hours, and your own key stays locked away. It
is found where Globus' programs look: $X509_USER_PROXY, else /tmp/x509up_u and your number.

Exit status: 0; 4 there is none; 13 expired, or a key that others may read.")]
pub(crate) struct ProxyArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make a proxy of your certificate
    #[command(
        after_help = "Examples:\n  godwit proxy init --cert usercert.pem --key userkey.pem --out proxy.pem\n  godwit proxy init --cert usercert.pem --limited --valid 2h --out limited.pem"
    )]
    Init(InitArgs),
    /// Show whom a proxy names, and for how long
    #[command(
        after_help = "Examples:\n  godwit proxy info proxy.pem\n  godwit proxy info --json proxy.pem"
    )]
    Info(InfoArgs),
    /// Remove a proxy
    #[command(
        after_help = "Examples:\n  godwit proxy destroy proxy.pem\n  godwit proxy destroy --json proxy.pem"
    )]
    Destroy(DestroyArgs),
}

#[derive(Args, Debug)]
struct InitArgs {
    /// Your certificate [default: $X509_USER_CERT, ~/.globus/usercert.pem]
    #[arg(long, value_name = "FILE")]
    cert: Option<PathBuf>,
    /// Its key [default: $X509_USER_KEY, ~/.globus/userkey.pem; with --cert userkey.pem beside it]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Where the proxy goes [default: $X509_USER_PROXY, /tmp/x509up_uN]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// How long it lives; no longer than your certificate
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, default_value = "12h")]
    valid: Duration,
    /// Good for files, not for starting jobs
    #[arg(long)]
    limited: bool,
    /// How many proxies may be made of it in turn; any number without
    #[arg(long, value_name = "N")]
    path_length: Option<u8>,
    /// Kind of its key
    #[arg(long = "key-kind", value_enum, default_value_t = Key::Rsa, value_name = "KIND")]
    kind: Key,
    /// Read the passphrase of the key from the first line of FILE instead of asking
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
}

#[derive(Args, Debug)]
struct InfoArgs {
    /// The proxy [default: $X509_USER_PROXY, /tmp/x509up_uN]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

#[derive(Args, Debug)]
struct DestroyArgs {
    /// The proxy [default: $X509_USER_PROXY, /tmp/x509up_uN]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

impl ProxyArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        match self.action {
            Action::Init(init) => init.run(screen),
            Action::Info(info) => info.run(screen),
            Action::Destroy(destroy) => destroy.run(screen),
        }
    }
}

impl InitArgs {
    fn run(self, screen: &Screen) -> Run<Facts> {
        let (cert, key) = self.files();
        let wanted = format!("make a proxy of {}", cert.display());
        let trouble = |error| CliError::trust(&wanted, error);
        let words = self.passphrase(&wanted)?;
        let passphrase = words.as_deref().map_or(Passphrase::Ask, Passphrase::Given);
        let owner = Credential::unlock(&cert, &key, passphrase).map_err(|error| {
            let is_missing = !cert.exists() || !key.exists();
            let trouble = trouble(error);
            match is_missing {
                true => trouble.next(
                    "name your certificate and its key with --cert and --key; \
                     godwit ca issue makes one for a laboratory of your own",
                ),
                false => trouble,
            }
        })?;
        let asked = NewProxy {
            limited: self.limited,
            lifetime: self.valid,
            key: self.kind.kind(),
            depth_max: self.path_length,
        };
        let proxy = owner.proxy(&asked).map_err(trouble)?;
        let out = self.out.unwrap_or_else(godwit_trust::proxy_file);
        lab::write_proxy(&proxy, &out).map_err(trouble)?;
        say(screen, &proxy, &out).map_err(|error| CliError::store(&wanted, error))?;
        Ok(Facts::new())
    }

    fn files(&self) -> (PathBuf, PathBuf) {
        let (cert, key) = godwit_trust::owner_files();
        match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => (cert.clone(), key.clone()),
            (Some(cert), None) => {
                let beside = cert.with_file_name("userkey.pem");
                let key = if beside.exists() {
                    beside
                } else {
                    cert.clone()
                };
                (cert.clone(), key)
            }
            (None, named) => (cert, named.clone().unwrap_or(key)),
        }
    }

    fn passphrase(&self, wanted: &str) -> Run<Option<Vec<u8>>> {
        let Some(file) = &self.passphrase_file else {
            return Ok(None);
        };
        let text =
            fs::read(file).map_err(|cause| CliError::store(wanted, StoreError::io(file, cause)))?;
        let line = text.split(|&byte| byte == b'\n').next().unwrap_or_default();
        Ok(Some(line.to_vec()))
    }
}

impl InfoArgs {
    fn run(self, screen: &Screen) -> Run<Facts> {
        let file = self.file.unwrap_or_else(godwit_trust::proxy_file);
        let wanted = format!("show the proxy {}", file.display());
        let proxy = Credential::from_files(&file, &file)
            .map_err(|error| CliError::trust(&wanted, error))?;
        say(screen, &proxy, &file).map_err(|error| CliError::store(&wanted, error))?;
        // An expired proxy is shown, and is an error all the same.
        proxy
            .check_dates(SystemTime::now())
            .map_err(|error| CliError::trust(format!("use the proxy {}", file.display()), error))?;
        Ok(Facts::new())
    }
}

impl DestroyArgs {
    fn run(self, screen: &Screen) -> Run<Facts> {
        let file = self.file.unwrap_or_else(godwit_trust::proxy_file);
        let wanted = format!("destroy the proxy {}", file.display());
        let trouble = |cause| CliError::store(&wanted, StoreError::io(&file, cause));
        // One that others could read is to go all the more; what is no proxy stays.
        let pem = fs::read(&file).map_err(trouble)?;
        let proxy = Credential::from_pem(&pem).map_err(|_| {
            CliError::asked(&wanted, "there is no certificate with its key in it").next(
                "name the file of a proxy (godwit proxy init says which); nothing was removed",
            )
        })?;
        overwrite(&file).map_err(trouble)?;
        fs::remove_file(&file).map_err(trouble)?;
        if screen.json() {
            let object = json!({ "event": "destroyed", "file": file, "subject": proxy.identity().subject() });
            screen
                .object(&object)
                .map_err(|error| CliError::store(&wanted, error))?;
        }
        Ok(Facts::new())
    }
}

/// Writes zeros over a secret: of use where the file system writes in place.
fn overwrite(file: &Path) -> std::io::Result<()> {
    let mut opened = fs::OpenOptions::new().write(true).open(file)?;
    let length = opened.metadata()?.len() as usize;
    opened.write_all(&vec![0; length])?;
    opened.sync_all()
}

/// Returns the owner of a proxy as Globus made them of old, and whether it is limited: each is
/// called like the one that signed it, and one word more (`grid-proxy-init -old`).
fn old_kind(chain: &[String]) -> Option<(&str, bool)> {
    let (mut owner, mut is_limited, mut is_proxy) = (chain.first()?, false, false);
    for signer in &chain[1..] {
        match owner.strip_prefix(signer.as_str()) {
            Some("/CN=proxy") => {}
            Some("/CN=limited proxy") => is_limited = true,
            _ => break,
        }
        (owner, is_proxy) = (signer, true);
    }
    is_proxy.then_some((owner, is_limited))
}

fn say(screen: &Screen, proxy: &Credential, file: &Path) -> Result<(), StoreError> {
    let identity = proxy.identity();
    let until = since_epoch(proxy.not_after());
    let left = proxy
        .not_after()
        .duration_since(SystemTime::now())
        .unwrap_or_default();
    let old = old_kind(identity.chain());
    let owner = old.map_or(identity.subject(), |(owner, _)| owner);
    let is_limited = identity.is_limited() || old.is_some_and(|(_, limited)| limited);
    let kind = match (proxy.is_proxy(), old) {
        (true, _) if is_limited => "limited proxy",
        (true, _) => "full proxy",
        (false, Some(_)) if is_limited => "limited proxy of the old kind, before RFC 3820",
        (false, Some(_)) => "full proxy of the old kind, before RFC 3820",
        (false, None) => "no proxy: the certificate itself",
    };
    let trusted = Authorities::discover().and_then(|authorities| {
        authorities.check(proxy)?;
        Ok(authorities.dir().to_owned())
    });
    if screen.json() {
        return screen.object(&json!({
            "event": "proxy",
            "file": file,
            "identity": owner,
            "chain": identity.chain(),
            "kind": kind,
            "limited": is_limited,
            "key": proxy.key_kind(),
            "authority": proxy.authority(),
            "not_after": units::instant(until),
            "seconds_left": left.as_secs(),
            "accepted_here": trusted.is_ok(),
            "why_not": trusted.err().map(|error| error.to_string()),
        }));
    }
    let rows = [
        ("identity", owner.to_owned()),
        ("kind", format!("{kind}, {} bits", proxy.key_kind())),
        ("file", file.display().to_string()),
        (
            "until",
            format!(
                "{} UTC, {} left",
                units::minute(until),
                units::duration(left)
            ),
        ),
        ("authority", proxy.authority()),
        (
            "here",
            match trusted {
                Ok(dir) => format!("accepted by {}", dir.display()),
                Err(error) => format!("not accepted: {error}"),
            },
        ),
    ];
    for (name, value) in rows {
        screen.line(format!("{name:9} {value}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn legacy_proxy_is_known_by_name() {
        let told = |chain: &[&str]| {
            let chain: Vec<String> = chain.iter().map(|&name| name.into()).collect();
            old_kind(&chain).map(|(owner, limited)| (owner.to_owned(), limited))
        };
        let alice = "/O=Lab/CN=alice";
        assert_eq!(
            told(&["/O=Lab/CN=alice/CN=proxy", alice]),
            Some((alice.into(), false))
        );
        assert_eq!(
            told(&[
                "/O=Lab/CN=alice/CN=proxy/CN=limited proxy",
                "/O=Lab/CN=alice/CN=proxy",
                alice,
                "/O=Lab/CN=Sub CA"
            ]),
            Some((alice.into(), true))
        );
        assert_eq!(told(&["/O=Lab/CN=alice/CN=12345", alice]), None);
        assert_eq!(told(&["/O=Lab/CN=proxy", "/O=Other/CN=CA"]), None);
        assert_eq!(told(&["/O=Lab/CN=alice/CN=limited proxy"]), None);
    }
}
