//! Addresses of data channels as replies and commands write them.

use crate::{Error, Result, error::shown, reply::Reply};
use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4},
};

/// An address as `PORT`, `SPOR`, 227 and SPAS write it: `h1,h2,h3,h4,p1,p2`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Commas(pub SocketAddrV4);

impl fmt::Display for Commas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d] = self.0.ip().octets();
        let [high, low] = self.0.port().to_be_bytes();
        write!(f, "{a},{b},{c},{d},{high},{low}")
    }
}

/// An address as `EPRT`, 229 and SPAS for IPv6 write it (RFC 2428): `|2|::1|2000|`.
///
/// In 229 the address may be missing: then it is that of the control channel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Bars {
    /// Where.
    pub ip: Option<IpAddr>,
    /// On which port.
    pub port: u16,
}

impl fmt::Display for Bars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ip {
            Some(IpAddr::V4(ip)) => write!(f, "|1|{ip}|{}|", self.port),
            Some(IpAddr::V6(ip)) => write!(f, "|2|{ip}|{}|", self.port),
            None => write!(f, "|||{}|", self.port),
        }
    }
}

impl From<SocketAddr> for Bars {
    fn from(address: SocketAddr) -> Self {
        Self {
            ip: Some(address.ip()),
            port: address.port(),
        }
    }
}

/// Reads the argument of `PORT`.
pub fn commas(text: &[u8]) -> Result<SocketAddrV4> {
    read_commas(text).ok_or_else(|| bad(text))
}

/// Reads the argument of `EPRT`.
pub fn bars(text: &[u8]) -> Result<Bars> {
    read_bars(text).ok_or_else(|| bad(text))
}

/// Reads the argument of `SPOR`: addresses in either form, with spaces between.
pub fn list(text: &[u8]) -> Result<Vec<SocketAddr>> {
    let all: Option<Vec<_>> = words(text).take(STRIPES_MAX + 1).map(either).collect();
    match all {
        Some(all) if (1..=STRIPES_MAX).contains(&all.len()) => Ok(all),
        _ => Err(bad(text)),
    }
}

/// Writes the argument of `SPOR`.
pub fn list_text(addresses: &[SocketAddr]) -> String {
    let parts: Vec<_> = addresses.iter().map(|&a| either_text(a)).collect();
    parts.join(" ")
}

/// A passive address: a reply to `PASV`, `EPSV` or `SPAS`, or a delayed 127 or 129.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Passive {
    /// 227 or 127.
    Commas(SocketAddrV4),
    /// 229 or 129 of one line.
    Bars(Bars),
    /// 229 or 129 of several lines: one address a stripe.
    Stripes(Vec<SocketAddr>),
}

impl Passive {
    /// Reads a reply. The text around the address is free: vsftpd puts it in
    /// parentheses and a full stop behind, others leave both out.
    pub fn from_reply(reply: &Reply) -> Result<Self> {
        let first = reply.lines.first().map_or(&[][..], |line| line);
        let found = match reply.code {
            227 | 127 => find_commas(first).map(Self::Commas),
            229 | 129 if reply.lines.len() > 1 => {
                let stripes = reply.inner().iter().take(STRIPES_MAX);
                let all: Option<Vec<_>> = stripes.map(|l| either(l.trim_ascii())).collect();
                all.filter(|all| !all.is_empty()).map(Self::Stripes)
            }
            229 | 129 => find_bars(first).map(Self::Bars),
            _ => None,
        };
        found.ok_or_else(|| bad(first))
    }

    /// Returns the reply that tells this.
    pub fn to_reply(&self, when: When) -> Reply {
        let plus = if when == When::Delayed { 0 } else { 100 };
        match self {
            Self::Commas(at) => Reply::new(
                127 + plus,
                format!("Entering Passive Mode ({})", Commas(*at)),
            ),
            Self::Bars(at) => {
                Reply::new(129 + plus, format!("Entering Extended Passive Mode ({at})"))
            }
            Self::Stripes(all) => {
                let inner = all.iter().map(|&a| either_text(a));
                let first = "Entering Striped Passive Mode.".to_owned();
                Reply::of_lines(
                    129 + plus,
                    [first].into_iter().chain(inner).chain(["End".to_owned()]),
                )
            }
        }
    }
}

/// When the server sends a passive address.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum When {
    /// In the reply to the command that asked.
    AtOnce,
    /// After the transfer command (`OPTS PASV AllowDelayed=1;`).
    Delayed,
}

fn either(text: &[u8]) -> Option<SocketAddr> {
    if text.first().is_some_and(u8::is_ascii_digit) {
        return read_commas(text).map(SocketAddr::V4);
    }
    let Bars { ip, port } = read_bars(text)?;
    Some(SocketAddr::new(ip?, port))
}

fn either_text(address: SocketAddr) -> String {
    match address {
        SocketAddr::V4(address) => Commas(address).to_string(),
        SocketAddr::V6(_) => Bars::from(address).to_string(),
    }
}

fn read_commas(text: &[u8]) -> Option<SocketAddrV4> {
    let parts: Option<Vec<u8>> = str::from_utf8(text)
        .ok()?
        .split(',')
        .take(7)
        .map(|part| part.trim().parse().ok())
        .collect();
    let [a, b, c, d, high, low] = parts?[..] else {
        return None;
    };
    let port = u16::from_be_bytes([high, low]);
    Some(SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), port))
}

fn find_commas(text: &[u8]) -> Option<SocketAddrV4> {
    let of_address = |b: &u8| b.is_ascii_digit() || *b == b',';
    text.split(|b| !of_address(b))
        .find_map(|part| read_commas(part.strip_suffix(b",").unwrap_or(part)))
}

fn read_bars(text: &[u8]) -> Option<Bars> {
    let text = str::from_utf8(text).ok()?;
    // RFC 2428 lets the delimiter be any printable character.
    let bar = text
        .chars()
        .next()
        .filter(|c| ('!'..='~').contains(c) && !c.is_ascii_alphanumeric())?;
    let parts: Vec<_> = text.split(bar).take(6).collect();
    let ["", family, ip, port, ""] = parts[..] else {
        return None;
    };
    let ip = match (family, ip) {
        ("", "") => None,
        ("1", ip) => Some(IpAddr::V4(ip.parse().ok()?)),
        ("2", ip) => Some(IpAddr::V6(ip.parse().ok()?)),
        _ => return None,
    };
    let port = port.parse().ok()?;
    Some(Bars { ip, port })
}

fn find_bars(text: &[u8]) -> Option<Bars> {
    let open = text.iter().position(|&b| b == b'(')?;
    let close = text.iter().rposition(|&b| b == b')')?;
    read_bars(text.get(open + 1..close)?)
}

fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(u8::is_ascii_whitespace)
        .filter(|w| !w.is_empty())
}

fn bad(text: &[u8]) -> Error {
    Error::BadAddress { text: shown(text) }
}

/// The largest striped servers ever run had 64 data nodes.
pub(crate) const STRIPES_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn passive() -> impl Strategy<Value = Passive> {
        prop_oneof![
            any::<SocketAddrV4>().prop_map(Passive::Commas),
            (any::<Option<IpAddr>>(), any::<u16>())
                .prop_map(|(ip, port)| Passive::Bars(Bars { ip, port })),
            prop::collection::vec(address(), 1..5).prop_map(Passive::Stripes),
        ]
    }

    /// Without scope, which the wire cannot carry.
    fn address() -> impl Strategy<Value = SocketAddr> {
        any::<(IpAddr, u16)>().prop_map(SocketAddr::from)
    }

    proptest! {
        #[test]
        fn passive_reply_survives_round_trip(passive in passive(), delayed in any::<bool>()) {
            let when = if delayed { When::Delayed } else { When::AtOnce };
            prop_assert_eq!(Passive::from_reply(&passive.to_reply(when)), Ok(passive));
        }

        #[test]
        fn arguments_read_as_they_were_written(v4 in any::<SocketAddrV4>(), any in address(), more in prop::collection::vec(address(), 1..5)) {
            prop_assert_eq!(commas(Commas(v4).to_string().as_bytes()), Ok(v4));
            prop_assert_eq!(bars(Bars::from(any).to_string().as_bytes()), Ok(Bars::from(any)));
            prop_assert_eq!(list(list_text(&more).as_bytes()), Ok(more));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[0-9,|()a-z:. -]{0,40}", code in 100..400u16) {
            let _ = Passive::from_reply(&Reply::new(code, &text));
            let _ = (commas(text.as_bytes()), bars(text.as_bytes()), list(text.as_bytes()));
        }
    }

    #[test]
    fn the_text_around_an_address_is_free() {
        let at: SocketAddrV4 = "127.0.0.1:21239".parse().unwrap();
        for text in [
            "Entering Passive Mode (127,0,0,1,82,247)",
            "Entering Passive Mode (127,0,0,1,82,247).",
            "Entering Passive Mode. 127,0,0,1,82,247",
            "=127,0,0,1,82,247",
            "Ok, 2 of us are 127,0,0,1,82,247, really",
        ] {
            let read = Passive::from_reply(&Reply::new(227, text));
            assert_eq!(read, Ok(Passive::Commas(at)), "{text}");
        }
    }

    #[test]
    fn gct_lists_its_stripes() {
        let reply = Reply::of_lines(
            229,
            ["Entering Striped Passive Mode.", "127,0,0,1,80,128", "End"],
        );
        let stripes = vec!["127.0.0.1:20608".parse().unwrap()];
        assert_eq!(Passive::from_reply(&reply), Ok(Passive::Stripes(stripes)));
    }

    #[test]
    fn no_addresses_are_refused() {
        for text in [
            "Passive delayed.",
            "(1,2,3,4,5)",
            "(1,2,3,4,5,256)",
            "(1,2,3,4,5,6,7)",
            "",
        ] {
            assert!(
                Passive::from_reply(&Reply::new(227, text)).is_err(),
                "{text}"
            );
        }
        for text in ["|1|::1|5|", "|||", "|3|x|5|", "|||70000|", "|||5"] {
            assert!(bars(text.as_bytes()).is_err(), "{text}");
        }
    }
}
