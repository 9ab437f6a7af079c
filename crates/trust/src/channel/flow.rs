//! Security context of a byte stream: data connections, where no observer sees the ends of tokens.

use super::{Channel, forget_old_errors, refusal};
use crate::Result;
use openssl::ssl::{ErrorCode, ShutdownResult};

/// Result of looking for plain bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unsealed {
    /// This many bytes, at least one.
    Bytes(usize),
    /// None until more bytes arrive.
    Nothing,
    /// None any more: the peer ended the stream, under protection.
    End,
}

impl Channel {
    /// Protects bytes, and appends the sealed bytes to `sealed`.
    pub fn seal(&mut self, clear: &[u8], sealed: &mut Vec<u8>) -> Result<()> {
        self.must_stand()?;
        self.say(clear)?;
        sealed.append(&mut self.tls.get_mut().outgoing);
        Ok(())
    }

    /// Takes bytes that arrived, cut anywhere. A caller that feeds more than it reads makes the
    /// context hold them.
    pub fn take_in(&mut self, came: &[u8]) -> Result<()> {
        self.must_stand()?;
        self.tls.get_mut().put(came);
        Ok(())
    }

    /// Looks for plain bytes in the bytes that arrived.
    pub fn open(&mut self, clear: &mut [u8]) -> Result<Unsealed> {
        self.must_stand()?;
        forget_old_errors();
        match self.tls.ssl_read(clear) {
            Ok(count) => Ok(Unsealed::Bytes(count)),
            Err(error) if error.code() == ErrorCode::WANT_READ => Ok(Unsealed::Nothing),
            Err(error) if error.code() == ErrorCode::ZERO_RETURN => Ok(Unsealed::End),
            Err(error) => Err(refusal(&error)),
        }
    }

    /// Takes the engine's own output: answers to the peer's engine or, after an error, the alert.
    pub fn said(&mut self) -> Vec<u8> {
        self.outgoing()
    }

    /// Tells whether `open` would find something without anything more coming.
    pub fn has_more(&self) -> bool {
        self.tls.ssl().pending() > 0 || !self.tls.get_ref().is_empty()
    }

    /// Says, under protection, that nothing more will be said.
    pub fn end(&mut self, sealed: &mut Vec<u8>) -> Result<()> {
        self.must_stand()?;
        forget_old_errors();
        match self.tls.shutdown() {
            Ok(ShutdownResult::Sent | ShutdownResult::Received) => {}
            Err(error) if error.code() == ErrorCode::WANT_READ => {}
            Err(error) => return Err(refusal(&error)),
        }
        sealed.append(&mut self.tls.get_mut().outgoing);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Authorities, Context, Credential, Delegate, Expect, KeyKind, Resumption,
        lab::{Ca, Issue},
    };
    use std::time::Duration;

    struct TestLab {
        _dir: tempfile::TempDir,
        authorities: Authorities,
        alice: Credential,
        bob: Credential,
    }

    fn world() -> TestLab {
        let dir = tempfile::tempdir().unwrap();
        let day = Duration::from_secs(86_400);
        let ca = Ca::init(dir.path(), "/O=Lab/CN=Lab CA", day, KeyKind::Elliptic).unwrap();
        let issue = |name: &str| {
            let key = KeyKind::Elliptic;
            let not_after = std::time::SystemTime::now() + day / 2;
            let user = Issue::user(name);
            ca.issue(&Issue {
                key,
                not_after,
                ..user
            })
            .unwrap()
        };
        TestLab {
            authorities: Authorities::in_dir(&ca.certificates()).unwrap(),
            alice: issue("alice"),
            bob: issue("bob"),
            _dir: dir,
        }
    }

    /// Each record of a flight.
    fn records(mut flight: &[u8]) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        while !flight.is_empty() {
            let length = 5 + usize::from(u16::from_be_bytes([flight[3], flight[4]]));
            all.push(flight[..length].to_vec());
            flight = &flight[length..];
        }
        all
    }

    /// Until both are done, record by record.
    fn run(client: &mut Channel, first: Vec<u8>, server: &mut Channel) -> Result<()> {
        let (mut to_server, mut to_client) = (records(&first), Vec::new());
        while !to_server.is_empty() || !to_client.is_empty() {
            for record in std::mem::take(&mut to_server) {
                let token = server.step(&record)?.token.unwrap_or_default();
                to_client.extend(records(&token));
            }
            for record in std::mem::take(&mut to_client) {
                let token = client.step(&record)?.token.unwrap_or_default();
                to_server.extend(records(&token));
            }
        }
        Ok(())
    }

    fn bare(world: &TestLab) -> (Channel, Channel) {
        let (us, them) = (&world.alice, &world.authorities);
        let (mut client, first) = Channel::initiate_tls(us, them, Expect::Myself).unwrap();
        let mut server = Channel::accept_tls(us, them).unwrap().only(Expect::Myself);
        run(&mut client, first, &mut server).unwrap();
        (client, server)
    }

    #[test]
    fn bytes_arrive_however_flow_is_cut() {
        let (mut client, mut server) = bare(&world());
        let whole: Vec<u8> = (0..100_000u32).map(|i| i as u8).collect();
        let mut sealed = Vec::new();
        client.seal(&whole, &mut sealed).unwrap();
        client.end(&mut sealed).unwrap();
        let (mut found, mut buffer): (Vec<u8>, _) = (Vec::new(), vec![0; 5000]);
        let mut ended = false;
        for piece in sealed.chunks(777) {
            server.take_in(piece).unwrap();
            loop {
                match server.open(&mut buffer).unwrap() {
                    Unsealed::Bytes(count) => found.extend(&buffer[..count]),
                    Unsealed::Nothing => break,
                    Unsealed::End => {
                        ended = true;
                        break;
                    }
                }
            }
        }
        assert!(ended && found == whole);
    }

    #[test]
    fn anonymous_client_knows_server_and_resumes() {
        let world = world();
        let nobody = Credential::nobody();
        let meet = |whom: &str, resumption| {
            let (them, whom) = (&world.authorities, Expect::Subject(whom.into()));
            let (mut client, first) = Channel::initiate_tls(&nobody, them, whom).unwrap();
            let mut server = Channel::serve(&world.alice, resumption).unwrap();
            run(&mut client, first, &mut server).map(|()| (client, server))
        };
        for is_resumed in [false, true, true] {
            let (client, server) = meet("/O=Lab/CN=alice", Resumption::ByTicket).unwrap();
            assert_eq!(client.tls.ssl().session_reused(), is_resumed);
            assert_eq!(client.peer().unwrap().subject(), "/O=Lab/CN=alice");
            assert!(server.peer().is_none());
        }
        // The session is alice's, whatever peer is expected now.
        let error = meet("/O=Lab/CN=bob", Resumption::NotFromHere).unwrap_err();
        assert!(error.to_string().contains("the peer is"), "{error}");
    }

    #[test]
    fn only_first_session_is_resumed() {
        let world = world();
        let nobody = Credential::nobody();
        let meet = |by: &Credential| {
            let (them, anyone) = (&world.authorities, Expect::Anyone);
            let (mut client, first) = Channel::initiate_tls(&nobody, them, anyone).unwrap();
            let mut server = Channel::serve(by, Resumption::ByTicket).unwrap();
            run(&mut client, first, &mut server).unwrap();
            (client.tls.ssl().session_reused(), client.peer().cloned())
        };
        assert!(!meet(&world.alice).0);
        // Another server does not know it, and gives one of its own.
        let (is_resumed, peer) = meet(&world.bob);
        assert!(!is_resumed && peer.unwrap().subject() == "/O=Lab/CN=bob");
        let (is_resumed, peer) = meet(&world.alice);
        assert!(is_resumed && peer.unwrap().subject() == "/O=Lab/CN=alice");
    }

    #[test]
    fn cut_flow_has_no_end() {
        let (mut client, mut server) = bare(&world());
        let mut sealed = Vec::new();
        client.seal(b"all of it", &mut sealed).unwrap();
        server.take_in(&sealed).unwrap();
        let mut buffer = [0; 100];
        assert_eq!(server.open(&mut buffer).unwrap(), Unsealed::Bytes(9));
        assert_eq!(server.open(&mut buffer).unwrap(), Unsealed::Nothing);
    }

    #[test]
    fn bytes_that_somebody_changed_are_refused() {
        let (mut client, mut server) = bare(&world());
        let mut sealed = Vec::new();
        client.seal(b"all of it", &mut sealed).unwrap();
        *sealed.last_mut().unwrap() ^= 1;
        server.take_in(&sealed).unwrap();
        assert!(server.open(&mut [0; 100]).is_err());
    }

    #[test]
    fn flow_to_wrong_peer_is_refused() {
        let world = world();
        let them = &world.authorities;
        for bare in [true, false] {
            let meet = |by: &Expect, at: &Expect| {
                let (mut client, first) = match bare {
                    true => Channel::initiate_tls(&world.bob, them, by.clone()),
                    false => Channel::initiate(&world.bob, them, by.clone(), Delegate::No),
                }?;
                let mut server = match bare {
                    true => Channel::accept_tls(&world.alice, them),
                    false => Channel::accept(&world.alice, them),
                }?
                .only(at.clone());
                run(&mut client, first, &mut server)
            };
            let named = |name: &str| Expect::Subject(format!("/O=Lab/CN={name}"));
            meet(&named("alice"), &named("bob")).unwrap();
            for (by, at) in [
                (Expect::Myself, Expect::Anyone),
                (Expect::Anyone, Expect::Myself),
                (named("bob"), Expect::Anyone),
                (Expect::Anyone, named("alice")),
            ] {
                let error = meet(&by, &at).unwrap_err();
                assert!(error.to_string().contains("the peer is"), "{error}");
            }
        }
    }
}
