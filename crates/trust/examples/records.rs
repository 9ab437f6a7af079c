//! How fast are protected bytes here: one thread seals 1 GiB in pieces of 64 KiB, as a data
//! connection under PROT P does, and another opens them? `bench/records` runs it.

use godwit_trust::{
    Authorities, Channel, Context, Credential, Expect, KeyKind, Unsealed,
    lab::{Ca, Issue},
};
use std::{
    error::Error,
    time::{Duration, Instant, SystemTime},
};

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let day = Duration::from_secs(86_400);
    let ca = Ca::init(dir.path(), "/O=Lab/CN=CA", day, KeyKind::Elliptic)?;
    let ours = ca.issue(&Issue {
        key: KeyKind::Elliptic,
        not_after: SystemTime::now() + day / 2,
        ..Issue::user("bench")
    })?;
    let (mut sender, mut receiver) = pair(&ours, &Authorities::in_dir(&ca.certificates())?)?;

    let clear = vec![0x5a; PIECE_BYTES];
    let (mut sealed, mut opened) = (Vec::new(), vec![0; PIECE_BYTES]);
    let (mut sealing, mut opening, mut bytes) = (Duration::ZERO, Duration::ZERO, 0);
    while bytes < WHOLE_BYTES {
        sealed.clear();
        let began = Instant::now();
        sender.seal(&clear, &mut sealed)?;
        sealing += began.elapsed();
        let began = Instant::now();
        receiver.take_in(&sealed)?;
        while let Unsealed::Bytes(count) = receiver.open(&mut opened)? {
            bytes += count;
        }
        opening += began.elapsed();
    }
    let rate = |time: Duration| bytes as f64 / time.as_secs_f64() / 1e9;
    println!(
        "{{\"library\": {:?}, \"protection\": {:?}, \"seal_gb_s\": {:.3}, \"open_gb_s\": {:.3}}}",
        openssl::version::version(),
        sender.protection(),
        rate(sealing),
        rate(opening)
    );
    Ok(())
}

fn pair(ours: &Credential, them: &Authorities) -> Result<(Channel, Channel), Box<dyn Error>> {
    let (mut client, first) = Channel::initiate_tls(ours, them, Expect::Anyone)?;
    let mut server = Channel::accept_tls(ours, them)?;
    let mut token = Some(first);
    while let Some(to_server) = token.take() {
        if let Some(to_client) = server.step(&to_server)?.token {
            token = client.step(&to_client)?.token;
        }
    }
    Ok((client, server))
}

const PIECE_BYTES: usize = 64 << 10;
const WHOLE_BYTES: usize = 1 << 30;
