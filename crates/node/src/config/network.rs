//! Addresses of which several are meant by one value.

use super::values::parse;
use std::{fmt, net::IpAddr, str::FromStr};

/// Addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Network {
    ip: IpAddr,
    bits: u32,
}

impl Network {
    /// Tells whether an address is one of these.
    pub fn holds(&self, ip: IpAddr) -> bool {
        let shift = |width: u32| width - self.bits;
        match (self.ip, ip.to_canonical()) {
            (IpAddr::V4(net), IpAddr::V4(ip)) => {
                let differs = net.to_bits() ^ ip.to_bits();
                differs.checked_shr(shift(32)).unwrap_or(0) == 0
            }
            (IpAddr::V6(net), IpAddr::V6(ip)) => {
                let differs = net.to_bits() ^ ip.to_bits();
                differs.checked_shr(shift(128)).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.bits)
    }
}

impl FromStr for Network {
    type Err = String;

    /// `10.0.0.0/8`, or one address.
    fn from_str(text: &str) -> Result<Self, String> {
        let (ip, bits) = text.split_once('/').unwrap_or((text, ""));
        let ip = parse::<IpAddr>(ip)?.to_canonical();
        let most = if ip.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            "" => most,
            bits => parse::<u32>(bits)?,
        };
        let network = Self { ip, bits };
        if bits > most {
            return Err(format!("{ip} has no more than {most} bits"));
        }
        // 10.1.2.3/8 would mean all of 10.0.0.0/8: that is hardly meant.
        match network.first() == ip {
            true => Ok(network),
            false => Err(format!("the first address of that is {}", network.first())),
        }
    }
}

impl Network {
    fn first(&self) -> IpAddr {
        match self.ip {
            IpAddr::V4(ip) => {
                let mask = u32::MAX.checked_shl(32 - self.bits).unwrap_or(0);
                IpAddr::V4((ip.to_bits() & mask).into())
            }
            IpAddr::V6(ip) => {
                let mask = u128::MAX.checked_shl(128 - self.bits).unwrap_or(0);
                IpAddr::V6((ip.to_bits() & mask).into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_contains_addresses_of_its_prefix() {
        for (network, address, held) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "::ffff:10.0.0.1", true),
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "127.0.0.2", false),
            ("0.0.0.0/0", "192.0.2.1", true),
            ("0.0.0.0/0", "::1", false),
            ("::1", "::1", true),
            ("fd00::/8", "fd12::1", true),
            ("fd00::/8", "fe80::1", false),
            ("::/0", "2001:db8::1", true),
        ] {
            let network: Network = network.parse().unwrap();
            assert_eq!(
                network.holds(address.parse().unwrap()),
                held,
                "{network} {address}"
            );
        }
    }
}
