//! Lines between a node and its relay on a parked connection, which waits for a visitor. As soon as a visitor is
//! accepted, the connection is the visitor's, byte by byte.

use std::{fmt, net::SocketAddr, str::FromStr, time::Duration};

/// The call by which a connection is parked.
pub const CALL: &str = "park";

/// The protocol that a parked connection is upgraded to (`Upgrade`).
pub const UPGRADE: &str = "godwit-park";

/// How often the relay says that it is still there, and is answered.
pub const BEAT: Duration = Duration::from_secs(15);

/// After so long without a word from the other side it is gone.
pub const SILENCE: Duration = Duration::from_secs(60);

/// No line is longer.
pub const LINE_BYTES_MAX: usize = 80;

/// A line on a parked connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ParkLine {
    /// By both, the relay first: a sign of life.
    Beat,
    /// By the relay: a visitor is connected from this address, and its bytes follow.
    Visitor(SocketAddr),
    /// By the node: the visitor is accepted, and the node's bytes follow.
    Taken,
}

/// The refusal of a line that is none of these.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("an unknown line on a parked connection")]
pub struct Unknown;

/// With its end.
impl fmt::Display for ParkLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Beat => f.write_str("beat\n"),
            Self::Visitor(from) => writeln!(f, "visitor {from}"),
            Self::Taken => f.write_str("taken\n"),
        }
    }
}

/// Without its end.
impl FromStr for ParkLine {
    type Err = Unknown;

    fn from_str(line: &str) -> Result<Self, Unknown> {
        match line {
            "beat" => Ok(Self::Beat),
            "taken" => Ok(Self::Taken),
            _ => {
                let from = line.strip_prefix("visitor ").ok_or(Unknown)?;
                from.parse().map(Self::Visitor).map_err(|_| Unknown)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_heard() {
        let from = "[fd00:1111:2222:3333:4444:5555:6666:7777%4294967295]:65535";
        let from = from.parse().unwrap();
        for said in [ParkLine::Beat, ParkLine::Taken, ParkLine::Visitor(from)] {
            let line = said.to_string();
            assert!(line.len() <= LINE_BYTES_MAX, "{line}");
            assert_eq!(line.strip_suffix('\n').unwrap().parse(), Ok(said));
        }
        for wrong in ["", "beat ", "Beat", "visitor", "visitor fermi", "taken\r"] {
            assert_eq!(wrong.parse::<ParkLine>(), Err(Unknown), "{wrong}");
        }
    }
}
