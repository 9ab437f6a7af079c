//! Fuzz targets: one function for each parser of bytes from a peer or a file. Used by `cargo fuzz`
//! and the bounded run in the tests; no stable interface.

use crate::{
    Authorities, Channel, Context, Credential, Delegate, Expect, KeyKind, Result, Rights, Unsealed,
    dates, der, gridmap,
    identity::{host_names, slashed},
    kerberos,
    lab::{Ca, Issue},
    policy::Policy,
    proxy::{self, ProxyKind},
    record_bytes,
};
use openssl::{
    hash::MessageDigest,
    x509::{X509, X509Req, X509ReqBuilder},
};
use std::{path::Path, time::Duration};

/// A signing policy.
pub fn policy(bytes: &[u8]) {
    if let Ok(policy) = Policy::parse(&String::from_utf8_lossy(bytes)) {
        policy.allows("/O=Lab/CN=CA", "/O=Lab/CN=alice");
    }
}

/// A grid-mapfile.
pub fn mapfile(bytes: &[u8]) {
    for (subject, accounts) in gridmap::parse(bytes).into_iter().flatten() {
        assert!(!accounts.is_empty(), "{subject}: mapped to no account");
    }
}

/// A file of rights.
pub fn rights(bytes: &[u8]) {
    let _ = Rights::parse(&String::from_utf8_lossy(bytes));
}

/// A token of Kerberos, a principal, and frames of blocks.
pub fn ticket(bytes: &[u8]) {
    kerberos::feed(bytes);
}

/// DER, as extensions of certificates are.
pub fn elements(bytes: &[u8]) {
    der::extension(bytes, &[0x2b, 6, 1, 5, 5, 7, 1, 14]);
}

/// A certificate, as a peer delegates one.
pub fn certificate(bytes: &[u8]) {
    let Ok(certificate) = X509::from_der(bytes) else {
        return;
    };
    let _ = ProxyKind::of(&certificate);
    let _ = dates::moment(certificate.not_after());
    slashed(certificate.subject_name());
    host_names(&certificate);
}

/// A request for a proxy.
pub fn request(bytes: &[u8]) {
    if let Ok(request) = X509Req::from_der(bytes) {
        let _ = proxy::check_request(&request);
    }
}

/// A credential, as DCSC brings one.
pub fn credential(bytes: &[u8]) {
    let _ = Credential::from_pem(bytes);
}

/// Identity that an authority knows, at both ends of a context.
#[derive(Debug)]
pub struct FeedPair {
    credential: Credential,
    authorities: Authorities,
}

impl FeedPair {
    /// Makes the authority in a directory that must stay.
    pub fn in_dir(dir: &Path) -> Result<Self> {
        let key = KeyKind::Elliptic;
        let ca = Ca::init(dir, "/O=Lab/CN=CA", Duration::from_secs(86_400), key)?;
        let host = Issue::host(&["localhost"]);
        Ok(Self {
            credential: ca.issue(&Issue { key, ..host })?,
            authorities: Authorities::in_dir(&ca.certificates())?,
        })
    }

    fn initiate(&self) -> Result<(Channel, Vec<u8>)> {
        let (us, them) = (&self.credential, &self.authorities);
        Channel::initiate(us, them, Expect::Anyone, Delegate::Limited)
    }

    /// Ends of TLS alone, which may say anything to each other.
    fn bare(&self) -> Result<(Channel, Channel)> {
        let (us, them) = (&self.credential, &self.authorities);
        let (mut client, token) = Channel::initiate_tls(us, them, Expect::Anyone)?;
        let mut server = Channel::accept_tls(us, them)?;
        shake(&mut client, token, &mut server)?;
        Ok((client, server))
    }

    /// Feeds tokens of `ADAT`, one of them changed.
    pub fn tokens(&self, bytes: &[u8]) {
        let Some((&spoilt_at, changes)) = bytes.split_first() else {
            return;
        };
        let (mut client, mut token) = self.initiate().expect("a credential of today");
        let accepting = Channel::accept(&self.credential, &self.authorities);
        let mut server = accepting.expect("a credential of today");
        for step in 0..STEPS_MAX {
            if step == spoilt_at % 8 {
                token = spoilt(&token, changes);
            }
            let is_server = step % 2 == 0; // they speak in turn, the client first
            let hearer = if is_server { &mut server } else { &mut client };
            let Ok(answer) = hearer.step(&token) else {
                assert!(hearer.step(&token).is_err(), "it goes on after an error");
                return;
            };
            if answer.done {
                self.assert_known(hearer);
            }
            match answer.token {
                Some(next) => token = next,
                None => return,
            }
        }
    }

    /// Feeds a peer's protected bytes where a proxy is requested or given. The peer is known and
    /// sends arbitrary bytes. Returns whether a proxy was given.
    pub fn delegation(&self, bytes: &[u8]) -> bool {
        let given = match bytes.split_first() {
            Some((0..128, changes)) => self.to_acceptor(changes),
            Some((_, changes)) => self.to_initiator(changes),
            None => Ok(false),
        };
        given.unwrap_or(false)
    }

    fn to_acceptor(&self, changes: &[u8]) -> Result<bool> {
        let (us, them) = (&self.credential, &self.authorities);
        let (mut client, token) = Channel::initiate_tls(us, them, Expect::Anyone)?;
        let mut server = Channel::accept(us, them)?;
        let null = shake(&mut client, token, &mut server)?;
        client.unwrap(&null)?;
        let (flag, changes) = changes.split_first().unwrap_or((&b'D', &[]));
        let flag = if *flag < 250 { b'D' } else { *flag };
        let asked = server.step(&client.wrap(&[flag])?)?;
        let asked = client.unwrap(&asked.token.unwrap_or_default())?;
        let request = X509Req::from_der(&asked);
        let key = match request.and_then(|request| request.public_key()) {
            Ok(key) => key,
            Err(_) => return Ok(false),
        };
        let proxy = us.sign(&key, ProxyKind::Limited, us.not_after(), None)?;
        let good = proxy.to_der().unwrap_or_default();
        let said = spoilt(&good, changes);
        let given = server.step(&client.wrap(&said)?);
        if given.is_ok_and(|step| step.done) {
            self.assert_known(&server);
            assert!(server.delegated().is_some(), "nothing was given");
        } else {
            assert!(said != good, "what was right was refused");
            assert!(server.delegated().is_none(), "what was refused was kept");
        }
        Ok(server.delegated().is_some())
    }

    fn to_initiator(&self, changes: &[u8]) -> Result<bool> {
        let (us, them) = (&self.credential, &self.authorities);
        let (mut client, token) = self.initiate()?;
        let mut server = Channel::accept_tls(us, them)?;
        let (length, changes) = changes.split_first().unwrap_or((&1, &[]));
        let mut silence = shake(&mut client, token, &mut server)?;
        silence.extend(server.wrap(&vec![0; usize::from(*length % 3)])?);
        client.step(&silence)?;
        let request = spoilt(&request_of(us), changes);
        let proxy = client.step(&server.wrap(&request)?)?.token;
        Ok(proxy.is_some())
    }

    /// Records of a data connection, changed and cut anywhere.
    pub fn records(&self, bytes: &[u8]) {
        if let Some(head) = bytes.first_chunk() {
            let _ = record_bytes(*head);
        }
        let Some((&[cut, clear], changes)) = bytes.split_first_chunk() else {
            return;
        };
        let (mut client, mut server) = self.bare().expect("a credential of today");
        let clear: Vec<u8> = (0..=clear).flat_map(|i| [i; 150]).collect();
        let mut sealed = Vec::new();
        let said = client.seal(&clear, &mut sealed);
        said.and_then(|()| client.end(&mut sealed))
            .expect("the context stands");
        let came = spoilt(&sealed, changes);
        let mut found = Vec::new();
        let mut buffer = [0; 1000];
        for piece in came.chunks(usize::from(cut) * 7 + 1) {
            if server.take_in(piece).is_err() {
                break;
            }
            loop {
                match server.open(&mut buffer) {
                    Ok(Unsealed::Bytes(count)) => found.extend_from_slice(&buffer[..count]),
                    Ok(Unsealed::Nothing) => break,
                    Ok(Unsealed::End) => {
                        assert!(found == clear, "an end before all was there");
                        return;
                    }
                    Err(_) => {
                        assert!(clear.starts_with(&found), "other bytes came out");
                        return;
                    }
                }
            }
        }
        assert!(clear.starts_with(&found), "other bytes came out");
    }

    fn assert_known(&self, channel: &Channel) {
        let subject = self.credential.identity();
        let peer = channel.peer().map(|peer| peer.subject());
        assert_eq!(peer, Some(subject.subject()), "a context with another peer");
    }
}

/// Exchanges tokens until one side needs no more, and returns the bytes that the other side has not
/// read.
fn shake(client: &mut Channel, first: Vec<u8>, server: &mut Channel) -> Result<Vec<u8>> {
    let (mut token, mut is_over) = (first, false);
    loop {
        let reply = server.step(&token)?;
        let back = reply.token.unwrap_or_default();
        if is_over || reply.done || back.is_empty() {
            return Ok(back);
        }
        let answer = client.step(&back)?;
        is_over = answer.done;
        match answer.token {
            Some(next) => token = next,
            None => return Ok(Vec::new()),
        }
    }
}

fn request_of(credential: &Credential) -> Vec<u8> {
    let built = || {
        let key = credential.key().ok()?;
        let mut request = X509ReqBuilder::new().ok()?;
        request.set_pubkey(key).ok()?;
        request.sign(key, MessageDigest::sha256()).ok()?;
        request.build().to_der().ok()
    };
    built().unwrap_or_default()
}

/// Returns a changed version: each four bytes say where, how, and with what.
fn spoilt(good: &[u8], changes: &[u8]) -> Vec<u8> {
    let mut bytes = good.to_vec();
    for change in changes.chunks_exact(4).take(CHANGES_MAX) {
        let at = usize::from(u16::from_be_bytes([change[0], change[1]])) % bytes.len().max(1);
        match change[2] % 4 {
            0 if at < bytes.len() => bytes[at] ^= change[3],
            1 if at < bytes.len() => drop(bytes.remove(at)),
            2 => bytes.truncate(at),
            _ => bytes.insert(at, change[3]),
        }
    }
    bytes
}

const STEPS_MAX: u8 = 16;
const CHANGES_MAX: usize = 64;

#[cfg(test)]
mod tests;
