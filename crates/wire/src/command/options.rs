//! `OPTS`: how other commands are done from now on.

use super::{Parsed, option, refuse, seconds_at_most, text, word};
use crate::address::STRIPES_MAX;
use godwit_core::Striping;
use std::time::Duration;

/// `OPTS`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Opts {
    /// Options of sending.
    Retr {
        /// Data connections.
        parallelism: Option<Parallelism>,
        /// Seconds between performance markers; 0 is none.
        markers: Option<Duration>,
        /// Which bytes each of several senders has.
        striping: Option<Striping>,
    },
    /// The address of a passive port may come with the transfer.
    PasvAllowDelayed(bool),
    /// Markers while a checksum is computed.
    CksmMarkers(Duration),
    /// The facts in listings, as the client wrote them; unknown ones are left out later.
    Facts {
        /// `MLST`, `MLSD`, `MLSR` or `MLSC`.
        of: &'static str,
        /// Their names.
        names: Vec<String>,
    },
    /// Names are UTF-8, or any bytes.
    Utf8,
    /// `OPTS GODWIT 1`, and its parameters.
    Godwit {
        /// Whether digests are computed and told: not `digests=0`.
        digests: bool,
        /// `stripe=I/N;ends=E`: the part that this session has in striped transfers.
        share: Option<StripeShare>,
    },
}

/// `Parallelism=` of `OPTS RETR`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Parallelism {
    /// Data connections to begin with.
    pub first: usize,
    /// At most.
    pub most: usize,
}

/// The part that a member has in the striped transfers of its front.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StripeShare {
    /// The index of the stripe.
    pub index: u64,
    /// The count of stripes.
    pub count: u64,
    /// How many ends of data the sender announces to its target, those of other senders among them. 0: another sender
    /// announces them; `None`: only its own, since no other sends to that target.
    pub ends: Option<u64>,
}

impl std::fmt::Display for StripeShare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "stripe={}/{};", self.index, self.count)?;
        match self.ends {
            Some(ends) => write!(f, "ends={ends};"),
            None => Ok(()),
        }
    }
}

pub(super) fn parse_options(rest: &[u8]) -> Parsed<Opts> {
    let (of, rest) = word(rest);
    let value = text(rest);
    match text(of).to_ascii_uppercase().as_str() {
        "RETR" => parse_retr_options(&value),
        "PASV" => match option(&value, "ALLOWDELAYED") {
            Some(on) => Ok(Opts::PasvAllowDelayed(on == "1")),
            None => refuse(501, "AllowDelayed=0; or =1; is known."),
        },
        "CKSM" => match option(&value, "MARKERS").and_then(|n| n.parse().ok()) {
            Some(seconds) => Ok(Opts::CksmMarkers(seconds_at_most(seconds))),
            None => refuse(501, "Markers=seconds; is known."),
        },
        "MLST" => Ok(facts_of("MLST", &value)),
        "MLSD" => Ok(facts_of("MLSD", &value)),
        "MLSR" => Ok(facts_of("MLSR", &value)),
        "MLSC" => Ok(facts_of("MLSC", &value)),
        "UTF8" | "UTF-8" => match value.to_ascii_uppercase().as_str() {
            "" | "ON" => Ok(Opts::Utf8),
            _ => refuse(501, "Names are sent as they are stored, UTF-8 or not."),
        },
        "GODWIT" => parse_godwit_options(&value),
        _ => refuse(500, "OPTS failed."),
    }
}

fn facts_of(of: &'static str, value: &str) -> Opts {
    let names = value.split(';').map(str::trim).filter(|n| !n.is_empty());
    Opts::Facts {
        of,
        names: names.take(FACTS_MAX).map(Into::into).collect(),
    }
}

fn parse_godwit_options(value: &str) -> Parsed<Opts> {
    let not_spoken = || {
        refuse(
            501,
            "GODWIT 1 is spoken here, with digests=0 if they are not wanted.",
        )
    };
    let mut items = value.trim_end_matches(';').split(';');
    if items.next() != Some("1") {
        return not_spoken();
    }
    let (mut digests, mut stripe, mut ends) = (true, None, None);
    for item in items {
        match item.split_once('=') {
            Some(("digests", "0")) => digests = false,
            Some(("stripe", value)) => stripe = Some(value),
            Some(("ends", value)) => ends = Some(value),
            _ => return not_spoken(),
        }
    }
    let number = |text: &str| text.parse::<u64>().ok();
    let share = stripe.map(|stripe| {
        let (index, count) = stripe.split_once('/')?;
        let (index, count) = (number(index)?, number(count)?);
        let ends = match ends {
            Some(ends) => Some(number(ends)?),
            None => None,
        };
        (index < count && count <= STRIPES_MAX as u64).then_some(StripeShare { index, count, ends })
    });
    match share {
        Some(None) => refuse(501, "A stripe is told as I/N, counted from 0."),
        share => Ok(Opts::Godwit {
            digests,
            share: share.flatten(),
        }),
    }
}

fn parse_retr_options(value: &str) -> Parsed<Opts> {
    let (mut parallelism, mut markers) = (None, None);
    let (mut layout, mut block) = (None, None);
    for item in value.split(';').filter(|item| !item.trim().is_empty()) {
        let (key, value) = item.split_once('=').unwrap_or((item, ""));
        match key.trim().to_ascii_uppercase().as_str() {
            "PARALLELISM" => match parse_parallelism(value) {
                Some(numbers) => parallelism = Some(numbers),
                None => return refuse(501, "Parallelism is a number above 0."),
            },
            "MARKERS" => match value.trim().parse() {
                Ok(seconds) => markers = Some(seconds_at_most(seconds)),
                Err(_) => return refuse(501, "Markers is a number of seconds."),
            },
            "STRIPELAYOUT" => layout = Some(value.trim().to_ascii_uppercase()),
            "BLOCKSIZE" => match value.trim().parse() {
                Ok(bytes) if bytes > 0 => block = Some(bytes),
                _ => return refuse(501, "BlockSize is a number of bytes above 0."),
            },
            _ => return refuse(500, "OPTS failed."),
        }
    }
    let blocked = block.map(|bytes| Striping::Blocked { bytes });
    let striping = match layout.as_deref() {
        Some("PARTITIONED") => Some(Striping::Partitioned),
        Some("BLOCKED") => Some(blocked.unwrap_or_default()),
        Some(_) => return refuse(501, "StripeLayout is Partitioned or Blocked."),
        None => blocked,
    };
    Ok(Opts::Retr {
        parallelism,
        markers,
        striping,
    })
}

/// Start, least, most. Of others only the first counts, as with GCT.
fn parse_parallelism(value: &str) -> Option<Parallelism> {
    let mut numbers = value.split(',').map(|number| number.trim().parse().ok());
    let first = numbers.next()?.filter(|&first| first > 0)?;
    let most = numbers.nth(1).flatten().unwrap_or(first);
    Some(Parallelism { first, most })
}

const FACTS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{
        Command,
        tests::{code, parse},
    };

    #[test]
    fn options_of_listings_and_sending() {
        assert_eq!(
            parse("OPTS RETR StripeLayout=Blocked;BlockSize=1000;Parallelism=4,4,4;"),
            Command::Opts(Opts::Retr {
                parallelism: Some(Parallelism { first: 4, most: 4 }),
                markers: None,
                striping: Some(Striping::Blocked { bytes: 1000 }),
            })
        );
        assert_eq!(parse("OPTS UTF8 ON"), Command::Opts(Opts::Utf8));
        assert_eq!(code("OPTS STOR Parallelism=2;"), 500);
        assert_eq!(code("OPTS RETR packetsize=1;"), 500);
        for bad in ["StripeLayout=Odd;", "StripeLayout=Blocked;BlockSize=0;"] {
            assert_eq!(code(&format!("OPTS RETR {bad}")), 501, "{bad}");
        }
        assert_eq!(code("OPTS RETR Parallelism=0;"), 501);
    }

    #[test]
    fn a_member_is_told_its_share() {
        let share = StripeShare {
            index: 2,
            count: 8,
            ends: Some(0),
        };
        assert_eq!(
            parse(&format!("OPTS GODWIT 1;digests=0;{share}")),
            Command::Opts(Opts::Godwit {
                digests: false,
                share: Some(share),
            })
        );
        let alone = StripeShare {
            ends: None,
            ..share
        };
        assert_eq!(
            parse(&format!("OPTS GODWIT 1;{alone}")),
            Command::Opts(Opts::Godwit {
                digests: true,
                share: Some(alone),
            })
        );
        for bad in [
            "stripe=8/8",
            "stripe=1",
            "stripe=0/99999",
            "stripe=0/2;ends=x",
            "so=1",
        ] {
            assert_eq!(code(&format!("OPTS GODWIT 1;{bad}")), 501, "{bad}");
        }
    }
}
