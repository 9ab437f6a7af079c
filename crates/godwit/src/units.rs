//! Numbers as people write and read them: sizes, rates, durations, dates.

use godwit_wire::time::{self, Civil, Rfc3339};
use std::num::NonZeroU64;
use std::time::Duration;

/// Returns a size with three digits and a binary unit: `1.2 GiB`.
pub(crate) fn size(bytes: u64) -> String {
    let (value, unit) = scale(bytes as f64);
    match unit {
        "" => format!("{bytes} B"),
        _ if value < 9.995 => format!("{value:.2} {unit}iB"),
        _ if value < 99.95 => format!("{value:.1} {unit}iB"),
        _ => format!("{value:.0} {unit}iB"),
    }
}

/// Returns a size as `ls -h` does: `1.2G`.
pub(crate) fn short(bytes: u64) -> String {
    let (value, unit) = scale(bytes as f64);
    match unit {
        "" => bytes.to_string(),
        // Rounded up, as coreutils: a file never looks smaller than it is.
        _ if value <= 9.9 => format!("{:.1}{unit}", (value * 10.0).ceil() / 10.0),
        _ => format!("{:.0}{unit}", value.ceil()),
    }
}

fn scale(bytes: f64) -> (f64, &'static str) {
    let mut value = bytes;
    for unit in ["", "K", "M", "G", "T", "P"] {
        if value < 1024.0 {
            return (value, unit);
        }
        value /= 1024.0;
    }
    (value, "E")
}

/// Reads a size of socket buffers.
pub(crate) fn parse_buffer(text: &str) -> Result<u32, String> {
    match parse_size(text)? {
        bytes @ 4096..=67_108_864 => Ok(bytes as u32),
        _ => Err("4K is the least and 64M the most that a socket is asked to hold".into()),
    }
}

/// Reads a count of bytes: `4096`, `10M`, `1.5GiB`, `2TB`. Units are powers of 1024,
/// except `KB MB GB TB`, as in `dd`.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    if text.starts_with('-') {
        return Err("must be 0 or more".into());
    }
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.trim().to_ascii_uppercase().as_str() {
        "" | "B" => 1,
        "K" | "KIB" => 1 << 10,
        "M" | "MIB" => 1 << 20,
        "G" | "GIB" => 1 << 30,
        "T" | "TIB" => 1 << 40,
        "P" | "PIB" => 1 << 50,
        "KB" => 1000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        other => return Err(format!("{other:?} is no unit of size; use K, M, G, T or P")),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(|| "too large".into());
    }
    let value: f64 = number
        .parse()
        .map_err(|_| format!("{text:?} is no size; write it like 4096 or 10M"))?;
    // A fraction of a byte would be cut off: another size.
    match value * factor as f64 {
        bytes if bytes < u64::MAX as f64 => Ok(bytes as u64),
        _ => Err("too large".into()),
    }
}

/// Reads so many bytes a second: `20M`, `20M/s`.
pub(crate) fn parse_rate(text: &str) -> Result<NonZeroU64, String> {
    let bytes = parse_size(text.strip_suffix("/s").unwrap_or(text))?;
    NonZeroU64::new(bytes).ok_or_else(|| "must be more than 0".into())
}

/// Reads an offset in a file.
pub(crate) fn parse_offset(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        offset if offset < FILE_MAX => Ok(offset),
        _ => Err("no file is so long: 1024P is the most".into()),
    }
}

/// Reads the bytes of a part of a file.
pub(crate) fn parse_part(text: &str) -> Result<u64, String> {
    match parse_offset(text)? {
        0 => Err("a part has 1 byte at least; write it like 4096 or 64M".into()),
        bytes => Ok(bytes),
    }
}

/// The longest file.
const FILE_MAX: u64 = 1 << 60;

/// Reads a duration above 0: `30` (seconds), `500ms`, `30s`, `5m`, `2h`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    if text.starts_with('-') {
        return Err(NO_TIME.into());
    }
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit.trim() {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        other => {
            return Err(format!(
                "{other:?} is no unit of time; use ms, s, m, h or d"
            ));
        }
    };
    let value: f64 = number
        .parse()
        .map_err(|_| format!("{text:?} is no duration; write it like 30 or 5m"))?;
    match Duration::try_from_secs_f64(value * seconds) {
        Ok(Duration::ZERO) => Err(NO_TIME.into()),
        Ok(time) => Ok(time),
        Err(_) => Err("too long".into()),
    }
}

const NO_TIME: &str = "must be above 0";

/// Returns a duration as a person says it: `0.8s`, `12s`, `3m05s`, `2h14m`.
pub(crate) fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..10 => format!("{:.1}s", time.as_secs_f64()),
        10..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86400 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86400, seconds / 3600 % 24),
    }
}

/// Returns a time since the epoch as `2026-11-21T14:05:09Z` (RFC 3339, UTC).
pub(crate) fn instant(since_epoch: Duration) -> String {
    Rfc3339(since_epoch).to_string()
}

/// Returns a time since the epoch as `ls -l` shows it, in UTC: `2026-11-21 14:05`.
pub(crate) fn minute(since_epoch: Duration) -> String {
    instant(since_epoch)[..16].replace('T', " ")
}

/// Reads `2026-11-21`, `2026-11-21T14:05`, `2026-11-21 14:05:09`, with or without `Z`; UTC.
pub(crate) fn parse_instant(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no date; write it like 2026-11-21 or 2026-11-21T14:05:09");
    let digits: Vec<u64> = text
        .trim_end_matches('Z')
        .split(['-', 'T', ' ', ':'])
        .map(str::parse)
        .collect::<Result<_, _>>()
        .map_err(|_| wrong())?;
    let (&[year, month, day], of_day) = digits.split_first_chunk::<3>().ok_or_else(wrong)?;
    let (hour, minute, second) = match *of_day {
        [] => (0, 0, 0),
        [hour] => (hour, 0, 0),
        [hour, minute] => (hour, minute, 0),
        [hour, minute, second] => (hour, minute, second),
        _ => return Err(wrong()),
    };
    let at = Civil {
        year,
        month,
        day,
        hour,
        minute,
        second,
    };
    time::seconds(at).map(Duration::from_secs).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("10M", 10 << 20),
            ("1.5GiB", 3 << 29),
            ("2KB", 2000),
            ("7 k", 7168),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in [
            "",
            "M",
            "-1",
            "1X",
            "99999999999T",
            "18446744073709551616",
            "99999999999999999999999.5",
            "16385.0P",
        ] {
            assert!(parse_size(text).is_err(), "{text}");
        }
        assert_eq!(parse_size("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(parse_offset("1023P"), Ok(1023 << 50));
        for text in ["1024P", "9223372036854775800", "18446744073709551615"] {
            assert!(parse_offset(text).is_err(), "{text}");
        }
        assert!(parse_part("0").is_err_and(|why| why.contains("1 byte")));
    }

    #[test]
    fn sizes_are_shown_with_three_digits() {
        let shown: Vec<_> = [0, 1023, 1024, 10 << 20, 1_288_490_188].map(size).into();
        assert_eq!(shown, ["0 B", "1023 B", "1.00 KiB", "10.0 MiB", "1.20 GiB"]);
        assert_eq!([1023, 1025, 10 << 20].map(short), ["1023", "1.1K", "10M"]);
    }

    #[test]
    fn durations_are_read_and_shown() {
        assert_eq!(parse_duration("1.5h"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse_duration("30"), Ok(Duration::from_secs(30)));
        assert!(parse_duration("soon").is_err());
        for text in ["0", "0ms", "0.0h", "-1"] {
            assert_eq!(
                parse_duration(text),
                Err("must be above 0".into()),
                "{text}"
            );
        }
        let shown = [800, 12_000, 185_000, 8_040_000].map(|ms| duration(Duration::from_millis(ms)));
        assert_eq!(shown, ["0.8s", "12s", "3m05s", "2h14m"]);
    }

    #[test]
    fn dates_go_there_and_back() {
        assert_eq!(instant(Duration::ZERO), "1970-01-01T00:00:00Z");
        assert_eq!(
            instant(Duration::from_secs(951_782_399)),
            "2000-02-28T23:59:59Z"
        );
        assert_eq!(
            instant(Duration::from_secs(951_782_400)),
            "2000-02-29T00:00:00Z"
        );
        assert_eq!(parse_instant("2000-02-29").unwrap().as_secs(), 951_782_400);
        assert_eq!(
            minute(parse_instant("2026-11-21T14:05:09Z").unwrap()),
            "2026-11-21 14:05"
        );
        for text in [
            "",
            "yesterday",
            "2026-13-01",
            "2026-02-30",
            "2026-01-01T25:00",
            "1-2",
        ] {
            assert!(parse_instant(text).is_err(), "{text}");
        }
    }
}
