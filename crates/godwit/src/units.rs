//! Numbers as people write and read them: sizes, rates, durations, dates.

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
    Ok((value * factor as f64) as u64)
}

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
    let (date, seconds) = (
        civil(since_epoch.as_secs() / 86400),
        since_epoch.as_secs() % 86400,
    );
    let (year, month, day) = date;
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
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
    let (&[year, month, day], time) = digits.split_first_chunk::<3>().ok_or_else(wrong)?;
    let possible = (1970..10000).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && time.len() <= 3
        && time.iter().zip([24, 60, 61]).all(|(&t, below)| t < below);
    if !possible {
        return Err(wrong());
    }
    let of_day: u64 = time.iter().zip([3600, 60, 1]).map(|(t, s)| t * s).sum();
    Ok(Duration::from_secs(days(year, month, day) * 86400 + of_day))
}

/// Returns the proleptic Gregorian date of a day since the epoch.
fn civil(day: u64) -> (u64, u64, u64) {
    // Counted in eras of 400 years from 0000-03-01, so that the leap day is the last of its year.
    let day = day + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, of_month)
}

/// Returns the day since the epoch of a date; the inverse of [`civil`].
fn days(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month = if month > 2 { month - 3 } else { month + 9 };
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * month + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
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
        for text in ["", "M", "-1", "1X", "99999999999T"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
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
        for day in (0..200_000).step_by(13) {
            let (y, m, d) = civil(day);
            assert_eq!(days(y, m, d), day);
        }
        assert_eq!(parse_instant("2000-02-29").unwrap().as_secs(), 951_782_400);
        assert_eq!(
            minute(parse_instant("2026-11-21T14:05:09Z").unwrap()),
            "2026-11-21 14:05"
        );
        for text in ["", "yesterday", "2026-13-01", "2026-01-01T25:00", "1-2"] {
            assert!(parse_instant(text).is_err(), "{text}");
        }
    }
}
