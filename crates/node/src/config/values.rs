//! Reads typed values from their texts.

use super::{Access, ConfigValue, Error};
use godwit_core::Url;
use std::{collections::BTreeMap, fmt, net::SocketAddr, ops::RangeInclusive, str::FromStr};

/// Reads values out of texts, and says whose fault it was.
pub(super) struct ConfigValues<'a>(pub(super) &'a BTreeMap<&'static str, ConfigValue>);

impl<'a> ConfigValues<'a> {
    pub(super) fn text(&self, key: &'static str) -> &'a str {
        &self.0[key].text
    }

    pub(super) fn one<T>(
        &self,
        key: &'static str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, Error> {
        let value = &self.0[key];
        read(value.text.trim()).map_err(|why| Error::BadValue {
            origin: value.origin.clone(),
            key: key.into(),
            value: value.text.clone(),
            why,
        })
    }

    pub(super) fn optional<T>(
        &self,
        key: &'static str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Error> {
        match self.text(key).trim() {
            "" => Ok(None),
            _ => self.one(key, read).map(Some),
        }
    }

    pub(super) fn number(&self, key: &'static str) -> Result<u64, Error> {
        self.one(key, parse::<u64>)
    }

    pub(super) fn at_least_one(&self, key: &'static str) -> Result<usize, Error> {
        self.one(key, |text| match parse::<usize>(text)? {
            0 => Err("must be at least 1".into()),
            number => Ok(number),
        })
    }
}

pub(super) fn parse<T: FromStr>(text: &str) -> Result<T, String>
where
    T::Err: fmt::Display,
{
    text.parse().map_err(|error: T::Err| error.to_string())
}

pub(super) fn parse_bool(text: &str) -> Result<bool, String> {
    match text {
        "true" | "yes" | "1" => Ok(true),
        "false" | "no" | "0" => Ok(false),
        _ => Err("true or false".into()),
    }
}

pub(super) fn parse_access(text: &str) -> Result<Access, String> {
    match text {
        "none" => Ok(Access::None),
        "read" => Ok(Access::Read),
        "write" => Ok(Access::Write),
        _ => Err("none, read or write".into()),
    }
}

pub(super) fn parse_level(text: &str) -> Result<(), String> {
    match text {
        "error" | "warn" | "info" | "debug" | "trace" => Ok(()),
        _ => Err("error, warn, info, debug or trace".into()),
    }
}

/// `50000-51000`, `50000,51000` as Globus writes it, or one port.
pub(super) fn parse_ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let (first, last) = text.split_once(['-', ',']).unwrap_or((text, text));
    let (first, last) = (parse::<u16>(first.trim())?, parse::<u16>(last.trim())?);
    if first == 0 || first > last {
        return Err("the first port must be above 0 and not above the last".into());
    }
    Ok(first..=last)
}

/// Several with commas, or none.
pub(super) fn parse_list<T: FromStr<Err = String>>(text: &str) -> Result<Vec<T>, String> {
    let parts = text.split(',').map(str::trim);
    parts
        .filter(|part| !part.is_empty())
        .map(T::from_str)
        .collect()
}

/// Names of peers with commas, or none.
pub(super) fn parse_names(text: &str) -> Result<Vec<String>, String> {
    let parts = text.split(',').map(str::trim);
    let mut names: Vec<String> = Vec::new();
    for name in parts.filter(|part| !part.is_empty()) {
        if name.contains([':', '/']) {
            return Err(format!("{name}: a peer is named as godwit peers shows it"));
        }
        if !names.iter().any(|named| named == name) {
            names.push(name.into());
        }
    }
    Ok(names)
}

/// An address with a port, or a bare port for all addresses.
pub(super) fn parse_addresses(text: &str) -> Result<Vec<SocketAddr>, String> {
    let one = |part: &str| match part.trim().parse::<u16>() {
        Ok(port) => Ok(SocketAddr::from(([0u16; 8], port))),
        Err(_) => parse::<SocketAddr>(part.trim()).map_err(|error| {
            let port = part.rsplit(':').next().unwrap_or_default().trim();
            let is_number = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
            match is_number && port.parse::<u16>().is_err() {
                true => {
                    format!("{port} is no port: ports end at 65535 (--ftp 2811, --https 13560)")
                }
                false => error,
            }
        }),
    };
    let parts = text.split(',').filter(|part| !part.trim().is_empty());
    let addresses: Vec<SocketAddr> = parts.map(one).collect::<Result<_, _>>()?;
    match addresses.is_empty() {
        true => Err("an address with a port, a port, or none".into()),
        false => Ok(addresses),
    }
}

/// Reads addresses, or `none`.
pub(super) fn parse_ftp(text: &str) -> Result<Vec<SocketAddr>, String> {
    match text.trim() {
        "none" => Ok(Vec::new()),
        text => parse_addresses(text),
    }
}

/// Reads addresses; empty means none.
pub(super) fn parse_doors(text: &str) -> Result<Vec<SocketAddr>, String> {
    match text.trim() {
        "" | "none" => Ok(Vec::new()),
        text => parse_addresses(text),
    }
}

/// Where a node passes things on.
pub(super) fn parse_next(text: &str) -> Result<Url, String> {
    let url: Url = text.parse().map_err(|bad| format!("{bad}"))?;
    match url.host() {
        Some(_) => Ok(url),
        None => Err("the URL of another node is wanted".into()),
    }
}

/// `HOST:PORT`, with commas between.
pub(super) fn parse_members(text: &str) -> Result<Vec<Url>, String> {
    let one = |part: &str| {
        let url: Url = format!("ftp://{part}/")
            .parse()
            .map_err(|bad| format!("{bad}"))?;
        let is_plain = url.user().is_none() && url.port().is_some();
        is_plain
            .then_some(url)
            .ok_or_else(|| format!("{part}: a member is HOST:PORT"))
    };
    let parts = text.split(',').map(str::trim);
    parts.filter(|part| !part.is_empty()).map(one).collect()
}
