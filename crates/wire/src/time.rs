//! Times as MLST, MDTM and MFMT write them (RFC 3659 §2.3): `YYYYMMDDHHMMSS[.fraction]`, UTC.

use std::{fmt, str::FromStr, time::Duration};

/// Reads a time; `None` if it is none, or before 1970.
pub fn parse(text: &[u8]) -> Option<Duration> {
    let (whole, fraction) = match text.iter().position(|&b| b == b'.') {
        Some(dot) => (&text[..dot], &text[dot + 1..]),
        None => (text, &text[..0]),
    };
    if whole.len() != 14 {
        return None;
    }
    let part = |range: std::ops::Range<usize>| digits(&whole[range]);
    let (year, month, day) = (part(0..4)?, part(4..6)?, part(6..8)?);
    let (hour, minute, second) = (part(8..10)?, part(10..12)?, part(12..14)?);
    let seconds = seconds(Civil {
        year,
        month,
        day,
        hour,
        minute,
        second,
    })?;
    Some(Duration::new(seconds, nanoseconds(fraction)?))
}

/// A time of day of the calendar, UTC.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(missing_docs)]
pub struct Civil {
    pub year: u64,
    pub month: u64,
    pub day: u64,
    pub hour: u64,
    pub minute: u64,
    pub second: u64,
}

impl Civil {
    /// Returns the calendar of a time since the epoch.
    pub fn from_epoch(seconds: u64) -> Self {
        let (days, of_day) = (seconds / DAY_SECONDS, seconds % DAY_SECONDS);
        // Eras of 400 years that begin on 1 March, so that the leap day is last.
        let z = days + 719_468;
        let (era, of_era) = (z / 146_097, z % 146_097);
        let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * of_year + 2) / 153;
        let day = of_year - (153 * from_march + 2) / 5 + 1;
        let month = if from_march < 10 {
            from_march + 3
        } else {
            from_march - 9
        };
        Self {
            year: year_of_era + era * 400 + u64::from(month <= 2),
            month,
            day,
            hour: of_day / 3600,
            minute: of_day / 60 % 60,
            second: of_day % 60,
        }
    }
}

/// Returns seconds since the epoch; `None` if it is no date, or before 1970.
pub fn seconds(at: Civil) -> Option<u64> {
    let leap =
        at.year.is_multiple_of(4) && (!at.year.is_multiple_of(100) || at.year.is_multiple_of(400));
    let month_days = [
        31,
        if leap { 29 } else { 28 },
        31,
        30,
        31,
        30,
        31,
        31,
        30,
        31,
        30,
        31,
    ];
    let in_month = month_days.get(usize::try_from(at.month.checked_sub(1)?).ok()?)?;
    // A leap second (60) is a time that exists; it counts as the next second.
    let fits =
        (1..=*in_month).contains(&at.day) && at.hour < 24 && at.minute < 60 && at.second <= 60;
    if !fits || !(1970..=9999).contains(&at.year) {
        return None;
    }
    let year = at.year - u64::from(at.month <= 2);
    let (era, year_of_era) = (year / 400, year % 400);
    let of_year = (153 * ((at.month + 9) % 12) + 2) / 5 + at.day - 1;
    let of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year;
    let days = era * 146_097 + of_era - 719_468;
    Some(days * DAY_SECONDS + at.hour * 3600 + at.minute * 60 + at.second)
}

/// Writes a time since the epoch: whole seconds, or with nine digits of fraction if there is one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Written(pub Duration);

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = Civil::from_epoch(self.0.as_secs());
        write!(
            f,
            "{:04}{:02}{:02}{:02}{:02}{:02}",
            at.year, at.month, at.day, at.hour, at.minute, at.second
        )?;
        match self.0.subsec_nanos() {
            0 => Ok(()),
            nanoseconds => write!(f, ".{nanoseconds:09}"),
        }
    }
}

/// Writes a time since the epoch as RFC 3339 does, by the second: `2026-11-21T14:05:09Z`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rfc3339(pub Duration);

impl fmt::Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = Civil::from_epoch(self.0.as_secs());
        write!(
            f,
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
            at.year, at.month, at.day, at.hour, at.minute, at.second
        )
    }
}

/// Writes a time since the epoch as HTTP does: `Sun, 06 Nov 1994 08:49:37 GMT`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HttpDate(pub Duration);

impl fmt::Display for HttpDate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = Civil::from_epoch(self.0.as_secs());
        // 1 January 1970 was a Thursday.
        let day = DAYS[(self.0.as_secs() / DAY_SECONDS % 7) as usize];
        let month = MONTHS[at.month as usize - 1];
        write!(
            f,
            "{day}, {:02} {month} {:04} {:02}:{:02}:{:02} GMT",
            at.day, at.year, at.hour, at.minute, at.second
        )
    }
}

/// Reads the form that `Display` writes, but not the two older forms of HTTP.
impl FromStr for HttpDate {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let words: Vec<&str> = text.split([' ', ':']).collect();
        let [_, day, month, year, hour, minute, second, "GMT"] = words[..] else {
            return Err(());
        };
        let number = |text: &str| digits(text.as_bytes()).ok_or(());
        let month = MONTHS.iter().position(|name| *name == month).ok_or(())?;
        let at = Civil {
            year: number(year)?,
            month: month as u64 + 1,
            day: number(day)?,
            hour: number(hour)?,
            minute: number(minute)?,
            second: number(second)?,
        };
        seconds(at).map(Duration::from_secs).map(Self).ok_or(())
    }
}

fn digits(text: &[u8]) -> Option<u64> {
    text.iter().try_fold(0, |n, b| {
        b.is_ascii_digit().then(|| n * 10 + u64::from(b - b'0'))
    })
}

/// Digits beyond the ninth are cut off.
fn nanoseconds(fraction: &[u8]) -> Option<u32> {
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digit = |i| fraction.get(i).map_or(0, |b| u32::from(b - b'0'));
    Some((0..9).fold(0, |n, i| n * 10 + digit(i)))
}

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];
const DAY_SECONDS: u64 = 86_400;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn dates_of_http() {
        let at = |seconds| HttpDate(Duration::from_secs(seconds)).to_string();
        assert_eq!(at(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(at(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        let read = |text: &str| text.parse::<HttpDate>().map(|date| date.0.as_secs());
        assert_eq!(read(&at(784_111_777)), Ok(784_111_777));
        for text in [
            "",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 CET",
            "Sun, 32 Nov 1994 08:49:37 GMT",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    proptest! {
            #[test]
        fn a_time_reads_as_it_was_written(seconds in 0..250_000_000_000u64, nanoseconds in 0..1_000_000_000u32) {
            let time = Duration::new(seconds, nanoseconds);
            prop_assert_eq!(parse(Written(time).to_string().as_bytes()), Some(time));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[0-9.]{0,30}") {
            let _ = parse(text.as_bytes());
        }
    }

    #[test]
    fn known_times_agree() {
        assert_eq!(
            parse(b"20261121020036"),
            Some(Duration::from_secs(1_795_226_436))
        );
        assert_eq!(
            parse(b"20000229235959.5"),
            Some(Duration::new(951_868_799, 500_000_000))
        );
        assert_eq!(Written(Duration::ZERO).to_string(), "19700101000000");
    }

    #[test]
    fn time_is_written_as_programs_read_it() {
        let at = Duration::from_millis(1_795_277_736_500);
        assert_eq!(Rfc3339(at).to_string(), "2026-11-21T16:15:36Z");
    }

    #[test]
    fn no_dates_are_refused() {
        for text in [
            "",
            "2026",
            "20261321000000",
            "20260229000000",
            "19691231235959",
            "2026112102003x",
            "20261121020036.x",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }
}
